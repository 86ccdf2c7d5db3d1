/* The programs of all ranks while they run: the first that fails ends the others, and rank 0 says which it was.
 *
 * A rank whose program fails tells rank 0 through the world's heartbeat, which tells all; their programs get SIGTERM, and SIGKILL
 * after a while. A rank that is lost itself (its node died, it was killed) ends the others, too. Collective.
 */
#ifndef GN_JOBS_EXEC_RUN_H
#define GN_JOBS_EXEC_RUN_H

#include "src/jobs/exec_child.h"
#include "transport/bootstrap/world.h"

struct gn_exec_run_options {
	struct gn_exec_child_options child;
	int starts;   /* this rank starts a program; without, it waits for the others' end */
	int grace_s;  /* between SIGTERM and SIGKILL */
};

struct gn_exec_outcome {
	int code;  /* to end with: 0, of the program that failed first, 4 for a lost rank */
	int rank;  /* that failed first, -1: none */
	int lost;  /* the rank itself is lost: reason tells how */
	double seconds; /* from the start of this rank's program to when the failure was known here */
	struct gn_strbuf reason, last_lines;
};

/* Blocks until all programs have ended. Of a failure every rank has an outcome of its own, rank 0's is the one to report. *out is
 * released by gn_exec_outcome_release(), after a failure, too. */
enum gn_status gn_exec_run(struct gn_world *world, const struct gn_exec_run_options *options, struct gn_exec_outcome *out,
			   struct gn_err *err);
void gn_exec_outcome_release(struct gn_exec_outcome *o);

/* A failure as it travels: at most 400 characters in one line. Appends it to out. */
void gn_exec_failure_write(int code, const char *reason, const char *last_lines, struct gn_strbuf *out);
/* From the text of an error that has one in it; 0 when it has none. */
int gn_exec_failure_read(const char *text, int *code, struct gn_strbuf *reason, struct gn_strbuf *last_lines);

#endif
