/* The state of a run in this process's memory, while a session that lost a rank ends and another one of the ranks that are left begins.
 *
 * Thread safety: one thread. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_CARRIED_H
#define GN_TRAIN_LOOP_CARRIED_H

#include "src/base/status.h"
#include "src/train/checkpoint/checkpoint_snapshot.h"
#include "src/train/checkpoint/owner.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed: there is none. */
struct gn_carried {
	int is_there;		/* the rest is */
	struct gn_run_state state;
	int64_t number;		/* of checkpoints that the run has saved */
	struct gn_checkpoint_snapshot copy; /* in torch's order; what the run has none of is NULL. Owned */
	char owner[GN_OWNER_NONCE]; /* of the checkpoint folder; "": it has none */
	uint64_t world;		/* worlds since the start */
	const char *why;	/* the loss, for the log; borrowed; NULL: none */
};

struct gn_session;

/* Local; a session's state as it was after its last finished step. */
enum gn_status gn_carried_take(struct gn_carried *c, struct gn_session *s, struct gn_err *err);
/* Collective. The state of the rank that has come furthest, on all; *done: 0: none has one. For gn_session_restore. */
enum gn_status gn_carried_give(const struct gn_carried *c, struct gn_session *s, int *done, struct gn_err *err);
void gn_carried_release(struct gn_carried *c);

#endif
