/* What the files of gannet launch share: the ranks of one job on this machine (launch_job.c), each started with its output passed
 * on (launch_rank.c). */
#ifndef GN_CMD_LAUNCH_INTERNAL_H
#define GN_CMD_LAUNCH_INTERNAL_H

#include "src/base/option.h"
#include "src/base/status.h"
#include "transport/bootstrap/pmix_server.h"

#include <stddef.h>
#include <sys/types.h>

struct gn_launch_job;

/* size ranks, not started yet. Takes SIGTERM, SIGINT, SIGUSR1 and SIGCHLD over for good, before any thread is made. bind:
 * each rank to its share of the processors. grace_s: what ranks have to end by themselves after one has failed. */
enum gn_status gn_launch_job_create(int size, int bind, int grace_s, struct gn_launch_job **out, struct gn_err *err);
/* Ends what still runs. NULL is fine. */
void gn_launch_job_destroy(struct gn_launch_job *j);
/* Blocks until all ranks of the program have ended and said everything. directory: for the PMIx server. */
enum gn_status gn_launch_job_run(struct gn_launch_job *j, const char *directory, const struct gn_text_list *program,
				 struct gn_err *err);
/* What the launcher should end with. */
int gn_launch_job_code(const struct gn_launch_job *j);

/* One output stream of one rank, passed on line by line, so that lines of several ranks do not mix: its bytes wait here until a line
 * is whole. fd -1: closed. */
struct gn_launch_stream {
	int fd, to;
	size_t len;
	char *line;
};

/* Reads what there is; closes at the end of the stream. */
void gn_launch_stream_read(struct gn_launch_stream *s);
void gn_launch_stream_close(struct gn_launch_stream *s);

struct gn_launch_rank {
	pid_t pid; /* 0: ended */
	int killed; /* because it was stopped */
	struct gn_launch_stream out, error;
};

/* Forks and execs rank number `rank` of `size`; bind: on its share of the processors. */
enum gn_status gn_launch_rank_start(struct gn_launch_rank *r, struct gn_pmix_server *server, int rank, int size, int bind,
				    char *const *argv, struct gn_err *err);

#endif
