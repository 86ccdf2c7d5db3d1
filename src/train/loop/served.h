/* A run with parameter servers (--update sync, async or ssp:N): which rank is what, and what each does.
 *
 * Workers of sync are one group: their sessions are those of a run of so many ranks, but for where gradients go. A worker of async or ssp
 * has a session of its own, in a group of one, so that no operation of it depends on another worker: the first worker evaluates, logs and
 * saves, and the others write nothing. Ranks that only serve have no session. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_SERVED_H
#define GN_TRAIN_LOOP_SERVED_H

#include "src/train/loop/trainer.h"
#include "src/train/parallel/server.h"

/* As the options say, which have been checked. */
struct gn_server_spec gn_train_servers(const struct gn_train_options *o);
/* Whether the run goes on without a worker that is lost: for gn_world_options. */
int gn_train_keeps_going(const struct gn_train_options *o);
/* Of so many ranks. */
int gn_train_workers(const struct gn_train_options *o, int ranks);
/* gn_train_run() for options with or without servers; comm is the world's. */
enum gn_status gn_train_served(const struct gn_train_options *options, const char *agreed_text, const volatile sig_atomic_t *stop,
			       struct gn_comm *comm, struct gn_log *log, int *told, struct gn_err *err);

#endif
