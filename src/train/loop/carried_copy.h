/* What a rank carries from world to world of a state that is divided among ranks: the pieces that it had, of which the ranks that are left put
 * the whole together again. Internal to src/train/loop/session_carried.c and session_copies.c.
 *
 * A piece is a rank's part of a sharded optimizer, or a stage of a pipeline; a rank may have several, and several ranks the same one.
 */
#ifndef GN_TRAIN_LOOP_CARRIED_COPY_H
#define GN_TRAIN_LOOP_CARRIED_COPY_H

#include "src/train/loop/state_copy.h"

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

struct gn_carried;
struct gn_session;

/* Whether ranks of the run have parts of its state, or would in a world of more ranks. */
int gn_session_is_divided(const struct gn_session *s);
/* Local. Into c->copies. */
enum gn_status gn_session_take_copies(struct gn_carried *c, struct gn_session *s, struct gn_err *err);
/* Collective. The state of the last step that is there as a whole, on all ranks' hosts, in torch's order but for parts; *number: of
 * checkpoints; *done 0: none is. told: appends what a log says of it. */
enum gn_status gn_session_give_copies(struct gn_carried *c, struct gn_session *s, int64_t *number, int *done, struct gn_strbuf *told,
				      struct gn_err *err);
void gn_carried_copy_release(struct gn_carried_copy *k);

#endif
