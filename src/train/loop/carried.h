/* The state of a run in this process's memory, while a session that lost a rank ends and another one of the ranks that are left begins.
 *
 * Thread safety: one thread. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_CARRIED_H
#define GN_TRAIN_LOOP_CARRIED_H

#include "src/base/status.h"
#include "src/train/checkpoint/checkpoint_snapshot.h"
#include "src/train/checkpoint/owner.h"
#include "src/train/loop/state_copy.h"

#include <stdint.h>

/* What a rank carries from world to world of a state that is divided among ranks: the pieces that it had, of which the ranks that are left put
 * the whole together again. A piece is a rank's part of a sharded optimizer, or a stage of a pipeline; a rank may have several, and several
 * ranks the same one. */
enum { GN_CARRIED_COPIES = 4, GN_CARRIED_PIECES = 3 };

/* Elements of a piece: where in the whole, and where in packed arrays. */
struct gn_piece_span {
	size_t begin, count, at;
	int piece;
};

struct gn_carried_copy {
	struct gn_state_copy copy;
	uint64_t world;		       /* that had it divided so */
	int pieces;		       /* of the whole */
	int has[GN_CARRIED_PIECES];    /* its own, one that all ranks have, that of another one; -1: none */
	struct gn_piece_span *spans;   /* of parameters; owned */
	size_t span_count;
	struct gn_piece_span buffers[2];
	int buffer_spans;
	struct gn_weight_layout *layouts; /* of arrays of parameters; owned; NULL: torch's order */
};

/* Zeroed: there is none. */
struct gn_carried {
	int is_there;		/* state, number and copy are the run's */
	int goes_back;		/* no rank has the whole state: the run goes on from its last checkpoint */
	struct gn_run_state state; /* after this rank's last finished step */
	double epoch;		/* the same with its fraction */
	int64_t global_batch;	/* of the run's first world; 0: not known, to one that has just joined */
	int64_t number;		/* of checkpoints that the run has saved */
	int32_t convolution;	/* 1 + enum gn_convolution of the last world; 0: not known */
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
struct gn_session;
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

/* --- session_copies.c: a divided state --- */

/* Whether ranks of the run have parts of its state, or would in a world of more ranks. */
int gn_session_is_divided(const struct gn_session *s);
/* Local. Into c->copies. */
enum gn_status gn_session_take_copies(struct gn_carried *c, struct gn_session *s, struct gn_err *err);
/* Collective. The state of the last step that is there as a whole, on all ranks' hosts, in torch's order but for parts; *number: of
 * checkpoints; *done 0: none is. told: appends what a log says of it. */
enum gn_status gn_session_give_copies(struct gn_carried *c, struct gn_session *s, int64_t *number, int *done, struct gn_strbuf *told,
				      struct gn_err *err);
void gn_carried_copy_release(struct gn_carried_copy *k);

/* --- --elastic MIN[:MAX]: how many ranks a run goes on with after losses, and grows to --- */

/* Pure. *least 0: a run ends with the first loss, as without the option (text NULL). *most 0: nobody may join it. GN_ERR_USAGE: neither. */
enum gn_status gn_elastic_parse(const char *text, int *least, int *most, struct gn_err *err);
/* *least and *most of options; 0 of those that are no such text. */
int gn_elastic_least(const struct gn_train_options *o);
int gn_elastic_most(const struct gn_train_options *o);

#endif
