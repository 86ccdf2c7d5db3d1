#include "transport/shm/multi_reduce.h"
#include "transport/shm/shm_internal.h"

#include <string.h>

static struct gn_stage *stage_of(const struct gn_shm *n, int local)
{
	return &gn_shm_control_of(n, local)->stage;
}

static char *place_of(const struct gn_shm *n, int local, uint64_t piece)
{
	return stage_of(n, local)->bytes[piece % GN_STAGE_PLACES];
}

static atomic_uint_fast64_t *counter_of(struct gn_stage *s, enum gn_stage_step step)
{
	return step == GN_STAGE_STAGED ? &s->staged : step == GN_STAGE_REDUCED ? &s->reduced : &s->read;
}

/* Whether all have done this step of the pieces below `until`; who has not is kept. */
static int all_reached(const struct gn_shm *n, struct gn_stage_run *r, enum gn_stage_step step, uint64_t until)
{
	for (int i = 0; i < n->local_size; i++)
		if (atomic_load_explicit(counter_of(stage_of(n, i), step), memory_order_acquire) < until) {
			r->late = i;
			return 0;
		}
	return 1;
}

static void reach(struct gn_shm *n, enum gn_stage_step step, uint64_t until)
{
	atomic_store_explicit(counter_of(stage_of(n, n->local_rank), step), until, memory_order_release);
	gn_shm_tell(n, -1);
}

/* Where the piece begins in the buffers. */
static size_t piece_at(const struct gn_stage_run *r, uint64_t piece, size_t *len)
{
	size_t at = (size_t)(piece - r->first) * GN_STAGE_BYTES, rest = r->bytes - at;

	*len = rest < GN_STAGE_BYTES ? rest : GN_STAGE_BYTES;
	return at;
}

/* What this local rank reduces of a piece, cut at cache lines so that no line is written by two. */
static size_t share_at(const struct gn_shm *n, int local, size_t piece_len, size_t *len)
{
	size_t lines = (piece_len + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES, ranks = (size_t)n->local_size;
	size_t from = lines * (size_t)local / ranks * GN_ALIGN_BYTES, end = lines * ((size_t)local + 1) / ranks * GN_ALIGN_BYTES;

	if (end > piece_len)
		end = piece_len;
	*len = end - from;
	return from;
}

/* What the neighbours need of this rank's input: all of the piece, or their shares. */
static void stage_piece(struct gn_shm *n, struct gn_stage_run *r)
{
	size_t len, at = piece_at(r, r->staged, &len), mine = 0, from = 0;
	char *place = place_of(n, n->local_rank, r->staged);
	const char *in = r->in + at;

	if (r->by_shares)
		from = share_at(n, n->local_rank, len, &mine);
	memcpy(place, in, from);
	memcpy(place + from + mine, in + from + mine, len - from - mine);
	reach(n, GN_STAGE_STAGED, ++r->staged);
}

static void reduce_piece(struct gn_shm *n, struct gn_stage_run *r)
{
	size_t len, at = piece_at(r, r->reduced, &len), mine = len, from = 0;
	char *parts[GN_STAGE_RANKS], *out = r->out + at, *shared;

	if (r->by_shares)
		from = share_at(n, n->local_rank, len, &mine);
	for (int i = 0; i < n->local_size; i++)
		parts[i] = place_of(n, i, r->reduced) + from;
	if (!r->by_shares) {
		gn_multi_combine(out, parts, n->local_size, mine / r->element_bytes, r->element_bytes, r->reduce);
		r->reduced++;
		return;
	}
	/* this rank's own part of it has stayed where it was, and its result goes to where that would have been */
	shared = parts[n->local_rank];
	parts[n->local_rank] = (char *)r->in + at + from;
	gn_multi_combine_both(out + from, shared, parts, n->local_size, mine / r->element_bytes, r->element_bytes, r->reduce);
	reach(n, GN_STAGE_REDUCED, ++r->reduced);
}

/* The neighbours' results, beginning with the next one's: not all at the same one's. */
static void read_piece(struct gn_shm *n, struct gn_stage_run *r)
{
	size_t len, at = piece_at(r, r->read, &len);

	for (int k = 1; k < n->local_size && r->by_shares; k++) {
		int i = (n->local_rank + k) % n->local_size;
		size_t theirs, from = share_at(n, i, len, &theirs);

		memcpy(r->out + at + from, place_of(n, i, r->read) + from, theirs);
	}
	reach(n, GN_STAGE_READ, ++r->read);
}

void gn_stage_begin(struct gn_shm *n, struct gn_stage_run *r)
{
	r->first = r->staged = r->reduced = r->read = n->stage_pieces;
	r->end = n->stage_pieces += (r->bytes + GN_STAGE_BYTES - 1) / GN_STAGE_BYTES;
	r->by_shares = r->bytes >= GN_STAGE_SHARES_BYTES;
	r->late = -1;
}

static int may_stage(const struct gn_shm *n, struct gn_stage_run *r)
{
	return r->staged < r->end && r->staged < r->read + GN_STAGE_AHEAD &&
	       (r->staged < GN_STAGE_PLACES || all_reached(n, r, GN_STAGE_READ, r->staged - GN_STAGE_PLACES + 1));
}

static int may_reduce(const struct gn_shm *n, struct gn_stage_run *r)
{
	return r->reduced < r->staged && all_reached(n, r, GN_STAGE_STAGED, r->reduced + 1);
}

static int may_read(const struct gn_shm *n, struct gn_stage_run *r)
{
	return r->read < r->reduced && (!r->by_shares || all_reached(n, r, GN_STAGE_REDUCED, r->read + 1));
}

int gn_stage_advance(struct gn_shm *n, struct gn_stage_run *r)
{
	int moved = 1;

	/* operations pass one after the other */
	if (atomic_load_explicit(&stage_of(n, n->local_rank)->read, memory_order_relaxed) < r->first)
		return 0;
	while (moved && r->read < r->end) {
		moved = 0;
		/* what others wait for comes first */
		if (may_stage(n, r)) {
			stage_piece(n, r);
			moved = 1;
		}
		if (may_reduce(n, r)) {
			reduce_piece(n, r);
			moved = 1;
		}
		if (may_read(n, r)) {
			read_piece(n, r);
			moved = 1;
		}
	}
	return r->read == r->end;
}
