/* The ranks of one job on this machine: started, listened to, signalled, ended. */
#ifndef GN_CMD_LAUNCH_JOB_H
#define GN_CMD_LAUNCH_JOB_H

#include "src/base/option.h"
#include "src/base/status.h"

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

#endif
