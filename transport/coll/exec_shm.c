/* Steps between ranks of one node with buffers in shared memory: the receiver waits for a flag and reads the sender's buffer. */
#include "transport/coll/exec_internal.h"

#include "src/base/alloc.h"

#include <string.h>

/* The block, which stays in the cache, for reductions in which the peer's message is the left operand. */
#define BLOCK_BYTES 8192

/* Reduces from the peer's memory. */
static void reduce_in_place(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];
	const char *theirs = gn_shm_flags_data(e->flags, s->shm_peer, s->offset);
	size_t element = e->buffers.element_bytes, each = BLOCK_BYTES / element * element;
	_Alignas(GN_ALIGN_BYTES) char block[BLOCK_BYTES];

	if (!e->steps[index].from_left) {
		e->buffers.reduce(gn_exec_output(e, s), theirs, s->len / element);
		return;
	}
	for (size_t at = 0; at < s->len; at += each) {
		size_t len = s->len - at < each ? s->len - at : each;

		memcpy(block, theirs + at, len);
		e->buffers.reduce(block, gn_exec_output(e, s) + at, len / element);
		memcpy(gn_exec_output(e, s) + at, block, len);
	}
}

void gn_exec_poll_later(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	if (!s->len) {
		gn_exec_message_done(&s->request);
		return;
	}
	if (e->steps[index].op == GN_STEP_SEND)
		gn_shm_flags_set_ready(e->flags, s->shm_peer, e->steps[index].message);
	e->polled[e->polled_count++] = index;
}

/* Reduces from the peer's memory if the step's dependencies are met. Otherwise copies the message to a slot, as a message over UCX
 * would be: the peer may wait for that, and this rank for the peer. */
static void reduce_or_copy(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	if (!s->missing) {
		reduce_in_place(e, index);
		gn_exec_reduced(e, index);
		return;
	}
	memcpy(gn_exec_slot_of(e, s), gn_shm_flags_data(e->flags, s->shm_peer, s->offset), s->len);
	s->arrived = 1;
}

/* If the peer has set its flag, does this rank's part and returns 1. */
static int try_polled(struct gn_exec *e, uint32_t index)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];

	if (step->op == GN_STEP_SEND) {
		if (!gn_shm_flags_is_done(e->flags, s->shm_peer, step->message))
			return 0;
		gn_exec_done_step(e, index);
		return 1;
	}
	if (!gn_shm_flags_is_ready(e->flags, s->shm_peer, step->message))
		return 0;
	if (step->op == GN_STEP_RECV_REDUCE) {
		reduce_or_copy(e, index);
	} else {
		memcpy(gn_exec_output(e, s), gn_shm_flags_data(e->flags, s->shm_peer, s->offset), s->len);
		gn_exec_done_step(e, index);
	}
	gn_shm_flags_set_done(e->flags, s->shm_peer, step->message);
	return 1;
}

/* In the order in which they were added. */
int gn_exec_poll_flags(struct gn_exec *e)
{
	size_t kept = 0, count = e->polled_count;

	for (size_t i = 0; i < count; i++) {
		uint32_t index = e->polled[i];

		if (!try_polled(e, index))
			e->polled[kept++] = index;
	}
	e->polled_count = kept;
	return kept < count;
}
