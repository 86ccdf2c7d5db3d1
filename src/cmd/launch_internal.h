/* gannet launch: the ranks of one job on this machine (launch_job.c), and one rank with its output (launch.c). */
#ifndef GN_CMD_LAUNCH_INTERNAL_H
#define GN_CMD_LAUNCH_INTERNAL_H

#include "src/base/option.h"
#include "src/base/status.h"
#include "src/jobs/exec_guard.h"
#include "transport/bootstrap/pmix_server.h"

#include <sys/types.h>

struct gn_launch_job;

struct gn_launch_options {
	int ranks;
	int bind;	/* bind each rank to its share of the processors */
	int grace_s;	/* seconds between the failure of a rank and SIGTERM to the others */
	int keep_going; /* the failure of a rank does not end the others */
};

/* Creates the ranks, not started yet. Takes over SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGCHLD for the rest of the process: call before any
 * thread starts. */
enum gn_status gn_launch_job_create(const struct gn_launch_options *o, struct gn_launch_job **out, struct gn_err *err);
/* Kills ranks that still run. NULL is fine. */
void gn_launch_job_destroy(struct gn_launch_job *j);
/* Runs the program. Blocks until all ranks have ended and all output is written. directory: for the PMIx server. */
enum gn_status gn_launch_job_run(struct gn_launch_job *j, const char *directory, const struct gn_text_list *program,
				 struct gn_err *err);
/* The exit code of the launcher. */
int gn_launch_job_code(const struct gn_launch_job *j);

struct gn_launch_rank {
	pid_t pid; /* 0: ended */
	int killed; /* killed because it was stopped (SIGSTOP) */
	int status; /* as waitpid() gave it, once it has ended */
	struct gn_exec_output *out, *error;
};

/* Forks and executes rank number `rank` of `size`; bind: on its share of the processors. */
enum gn_status gn_launch_rank_start(struct gn_launch_rank *r, struct gn_pmix_server *server, int rank, int size, int bind,
				    char *const *argv, struct gn_err *err);

#endif
