/* The state of a run in this process's memory, while a session that lost a rank ends and another one of the ranks that are left begins.
 *
 * Thread safety: one thread. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_CARRIED_H
#define GN_TRAIN_LOOP_CARRIED_H

#include "src/base/status.h"
#include "src/train/checkpoint/checkpoint_snapshot.h"
#include "src/train/checkpoint/owner.h"
#include "src/train/loop/carried_copy.h"

#include <stdint.h>

/* Zeroed: there is none. */
struct gn_carried {
	int is_there;		/* state, number and copy are the run's */
	int goes_back;		/* no rank has the whole state: the run goes on from its last checkpoint */
	struct gn_run_state state; /* after this rank's last finished step */
	double epoch;		/* the same with its fraction */
	int64_t global_batch;	/* of the run's first world; 0: not known, to one that has just joined */
	int64_t number;		/* of checkpoints that the run has saved */
	struct gn_checkpoint_snapshot copy; /* in torch's order; what the run has none of is NULL. Owned */
	struct gn_carried_copy copies[GN_CARRIED_COPIES]; /* instead of it where the state is divided; the newest first. Owned */
	int stages;		/* of the run's first pipelines; 0: not known */
	char mesh[32];		/* --parallel of the present world */
	char owner[GN_OWNER_NONCE]; /* of the checkpoint folder; "": it has none */
	uint64_t world;		/* worlds since the start */
	int is_planned;		/* the last world ended because some were to be taken in, or to leave */
	int leaves;		/* this process has joined, is asked to stop, and was in its last step */
	int has_begun;		/* the log says that the run goes on in this one */
	const char *why;	/* the loss, for the log; borrowed; NULL: none */
	int ranks;		/* of the last world that trained; 0: none has */
	uint64_t lost_ns;	/* when that finished its last step, here */
	uint64_t unlogged_steps; /* of its finished steps those that no line of the log counts, */
	double unlogged_s;	/* and their time */
};

struct gn_comm;
struct gn_train_options;

/* Local; a session's state as it was after its last finished step. */
enum gn_status gn_carried_take(struct gn_carried *c, struct gn_session *s, struct gn_err *err);
/* Collective. The state of the rank that has come furthest, on all, or what ranks have together; *done: 0: there is none. For
 * gn_session_restore. */
enum gn_status gn_carried_give(struct gn_carried *c, struct gn_session *s, int *done, struct gn_err *err);
/* Collective, at the start of each world: what --elastic-batch makes of the options; those who have joined learn the first world's batch. */
enum gn_status gn_carried_batch(struct gn_carried *c, struct gn_comm *comm, struct gn_train_options *o, struct gn_err *err);
/* Rank 0, when the first step after a loss begins: a line of the log about what the loss cost. */
enum gn_status gn_carried_log_recovery(const struct gn_carried *c, struct gn_session *s, struct gn_err *err);
/* For gn_metrics_log_set_guard, of a session of rank 0: GN_ERR_PEER_LOST when it was stopped or cut off meanwhile, and others may go on without it, whose
 * log it is then. Cheap but after a time as long as the limit of silence, when it asks them. */
enum gn_status gn_carried_may_write(void *session, struct gn_err *err);
/* No rank goes on after a loss, which this process says in the log for all, unless that has an end already; and the checkpoint folder is
 * free. */
void gn_carried_log_failure(const struct gn_carried *c, const struct gn_train_options *o, struct gn_log *log, const struct gn_err *err);
/* Local. The states, of a process that waits now: if nobody has them when it is taken in, it goes back to the last checkpoint. */
void gn_carried_forget(struct gn_carried *c);
void gn_carried_release(struct gn_carried *c);

#endif
