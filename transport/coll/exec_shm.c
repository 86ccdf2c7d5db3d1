/* Steps between ranks of one node whose buffers reach each other: no message, but a word in the lane, and the sender's memory. */
#include "transport/coll/exec_internal.h"

#include "src/base/alloc.h"

#include <string.h>

/* So much of a message of a neighbour's is combined at once when it has to come first: it stays in the cache. */
#define BLOCK_BYTES 8192

/* Straight from the neighbour's memory. */
static void reduce_from(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];
	const char *theirs = gn_shm_flags_data(e->lane, s->lane, s->offset);
	size_t element = e->buffers.element_bytes, each = BLOCK_BYTES / element * element;
	_Alignas(GN_ALIGN_BYTES) char block[BLOCK_BYTES];

	if (!e->steps[index].from_left) {
		e->buffers.reduce(gn_exec_mine(e, s), theirs, s->len / element);
		return;
	}
	for (size_t at = 0; at < s->len; at += each) {
		size_t len = s->len - at < each ? s->len - at : each;

		memcpy(block, theirs + at, len);
		e->buffers.reduce(block, gn_exec_mine(e, s) + at, len / element);
		memcpy(gn_exec_mine(e, s) + at, block, len);
	}
}

void gn_exec_poll_later(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	if (!s->len) {
		gn_exec_landed(&s->request);
		return;
	}
	if (e->steps[index].op == GN_STEP_SEND)
		gn_shm_flags_set_ready(e->lane, s->lane, e->steps[index].message);
	e->polled[e->polled_count++] = index;
}

/* Straight from the neighbour's memory when this rank is ready for it. When it is not, the message is taken in early, as one
 * over the fabric is: the neighbour may be waiting for that, and this rank for the neighbour. */
static void take_reduction(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	if (!s->missing) {
		reduce_from(e, index);
		gn_exec_reduced(e, index);
		return;
	}
	memcpy(gn_exec_slot_of(e, s), gn_shm_flags_data(e->lane, s->lane, s->offset), s->len);
	s->arrived = 1;
}

/* Whether the neighbour has done its part, and then this rank's. */
static int take_polled(struct gn_exec *e, uint32_t index)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];

	if (step->op == GN_STEP_SEND) {
		if (!gn_shm_flags_is_done(e->lane, s->lane, step->message))
			return 0;
		gn_exec_done_step(e, index);
		return 1;
	}
	if (!gn_shm_flags_is_ready(e->lane, s->lane, step->message))
		return 0;
	if (step->op == GN_STEP_RECV_REDUCE) {
		take_reduction(e, index);
	} else {
		memcpy(gn_exec_mine(e, s), gn_shm_flags_data(e->lane, s->lane, s->offset), s->len);
		gn_exec_done_step(e, index);
	}
	gn_shm_flags_set_done(e->lane, s->lane, step->message);
	return 1;
}

/* In the order in which they became possible. */
int gn_exec_poll_lane(struct gn_exec *e)
{
	size_t kept = 0, count = e->polled_count;

	for (size_t i = 0; i < count; i++) {
		uint32_t index = e->polled[i];

		if (!take_polled(e, index))
			e->polled[kept++] = index;
	}
	e->polled_count = kept;
	return kept < count;
}
