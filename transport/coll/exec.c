#include "transport/coll/exec_internal.h"

#include "src/base/alloc.h"

#include <string.h>

/* The block, which stays in the cache, for reductions in which the peer's message is the left operand. */
#define BLOCK_BYTES 8192

static uint64_t tag_of(const struct gn_exec *e, int sender, uint32_t message)
{
	return gn_coll_tag(sender, e->group, e->sequence % GN_SEQUENCES, message) ^ e->signature;
}

void gn_exec_message_done(struct gn_ucx_request *r)
{
	struct gn_step_state *s = (struct gn_step_state *)r;

	s->exec->completed[s->exec->completed_count++] = s->index;
}

void gn_exec_fail(struct gn_exec *e, enum gn_status status, const struct gn_err *why)
{
	if (e->status)
		return;
	e->status = status;
	e->why = *why;
}

static const char *input_of(const struct gn_exec *e, const struct gn_step_state *s)
{
	return (const char *)e->buffers.in + s->in_offset;
}

/* Completes a step and queues its dependents; after a reduction also frees its slot. */
static void done_step(struct gn_exec *e, uint32_t index)
{
	e->remaining--;
	e->states[index].done = 1;
	for (uint32_t d = e->first_dependent[index]; d < e->first_dependent[index + 1]; d++)
		if (--e->states[e->dependents[d]].missing == 0)
			e->queue[e->queue_tail++] = e->dependents[d];
}

static void reduced(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	e->free_slots[e->free_count++] = s->slot;
	s->slot = GN_NO_SLOT;
	s->arrived = 0; /* the step may still be in the queue */
	done_step(e, index);
}

/* --- steps between ranks of one node with buffers in shared memory: the receiver waits for a flag and reads the sender's buffer --- */

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

/* Adds a step that waits for a flag. */
static void poll_later(struct gn_exec *e, uint32_t index)
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
		reduced(e, index);
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
		done_step(e, index);
		return 1;
	}
	if (!gn_shm_flags_is_ready(e->flags, s->shm_peer, step->message))
		return 0;
	if (step->op == GN_STEP_RECV_REDUCE) {
		reduce_or_copy(e, index);
	} else {
		memcpy(gn_exec_output(e, s), gn_shm_flags_data(e->flags, s->shm_peer, s->offset), s->len);
		done_step(e, index);
	}
	gn_shm_flags_set_done(e->flags, s->shm_peer, step->message);
	return 1;
}

/* Polls all such steps in the order in which they were added; returns whether any advanced. */
static int poll_flags(struct gn_exec *e)
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

/* --- a run --- */

/* Reduces a message in its slot into the output; overwrites the message. */
static void reduce(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];
	char *message = gn_exec_slot_of(e, s);

	if (s->len && e->buffers.device) {
		s->arrived = 0; /* queue it only once */
		gn_exec_queue_work(e, index, message);
		return;
	}
	if (s->len && e->steps[index].from_left) {
		e->buffers.reduce(message, gn_exec_output(e, s), s->len / e->buffers.element_bytes);
		memcpy(gn_exec_output(e, s), message, s->len);
	} else if (s->len) {
		e->buffers.reduce(gn_exec_output(e, s), message, s->len / e->buffers.element_bytes);
	}
	reduced(e, index);
}

static void receive(struct gn_exec *e, uint32_t index, void *where)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];
	struct gn_err why;
	enum gn_status status;
	int peer = gn_exec_world_rank(e, step->peer);

	s->posted = 1;
	if (!s->len) {
		gn_exec_message_done(&s->request);
		return;
	}
	status = gn_ucx_receive(e->ucx, peer, tag_of(e, peer, step->message), where, s->len, &s->request,
				   &why);
	if (status)
		gn_exec_fail(e, status, &why);
}

static void send(struct gn_exec *e, uint32_t index, const void *what)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];
	struct gn_err why;
	enum gn_status status;

	if (!s->len) {
		gn_exec_message_done(&s->request);
		return;
	}
	status = gn_ucx_send(e->ucx, gn_exec_world_rank(e, step->peer), tag_of(e, gn_world_rank(e->world), step->message), what, s->len,
				&s->request, &why);
	if (status)
		gn_exec_fail(e, status, &why);
}

static void run_step(struct gn_exec *e, uint32_t index)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];

	s->posted = 1;
	if (s->shm_peer >= 0 && step->op != GN_STEP_RECV_REDUCE) {
		poll_later(e, index);
		return;
	}
	switch (step->op) {
	case GN_STEP_COPY:
		if (s->len && e->buffers.device) {
			gn_exec_queue_work(e, index, input_of(e, s));
			break;
		}
		if (s->len)
			memcpy(gn_exec_output(e, s), input_of(e, s), s->len);
		done_step(e, index);
		break;
	case GN_STEP_SEND:
		send(e, index, step->from_input ? input_of(e, s) : gn_exec_output(e, s));
		break;
	case GN_STEP_RECV:
		receive(e, index, gn_exec_output(e, s));
		break;
	default: /* if the message has not arrived, handle_completed() reduces it */
		if (s->arrived)
			reduce(e, index);
	}
}

/* Posts receives of reductions in order: a later one must not occupy a slot that an earlier one needs. */
static void post_reductions(struct gn_exec *e)
{
	while (e->free_count && e->next_reduction < e->reduction_count && !e->status) {
		uint32_t index = e->reductions[e->next_reduction++];

		e->states[index].slot = e->free_slots[--e->free_count];
		e->states[index].posted = 1;
		if (e->states[index].shm_peer >= 0)
			poll_later(e, index);
		else
			receive(e, index, gn_exec_slot_of(e, &e->states[index]));
	}
}

static enum gn_status message_error(const struct gn_exec *e, uint32_t index, struct gn_err *why)
{
	const struct gn_step *step = &e->steps[index];
	int peer = gn_exec_world_rank(e, step->peer);
	const char *host = gn_world_host_of(e->world, peer);
	enum gn_status status = e->states[index].request.status;

	if (status == GN_ERR_MISMATCH)
		return gn_err_set(why, status,
				  "%s number %u: the message from rank %d on %s has an unexpected length: the ranks disagree about the "
				  "size or the order of their collectives", e->name, e->sequence, peer, host);
	if (status == GN_ERR_DATA)
		return gn_err_set(why, GN_ERR_FAILED, "%s: the message from rank %d on %s fails its authentication: it was changed, or sent again, "
				  "between the nodes", e->name, peer, host);
	return gn_err_set(why, status, "%s: a message %s rank %d on %s failed: %s", e->name,
			  step->op == GN_STEP_SEND ? "to" : "from", peer, host, gn_status_text(status));
}

static void handle_completed(struct gn_exec *e)
{
	uint32_t index = e->completed[--e->completed_count];
	struct gn_step_state *s = &e->states[index];
	struct gn_err why;

	if (s->request.status) {
		gn_exec_fail(e, message_error(e, index, &why), &why);
		return;
	}
	if (e->steps[index].op != GN_STEP_RECV_REDUCE) {
		done_step(e, index);
		return;
	}
	s->arrived = 1;
	if (!s->missing)
		reduce(e, index);
}

static int handle_finished_work(struct gn_exec *e)
{
	uint32_t index;
	int did = 0;

	for (; gn_exec_take_work(e, &index); did = 1) {
		if (e->steps[index].op == GN_STEP_COPY)
			done_step(e, index);
		else
			reduced(e, index);
	}
	return did;
}

int gn_exec_advance(struct gn_exec *e)
{
	int did = 0, again;

	do {
		again = e->polled_count && poll_flags(e);
		again |= e->work_head < e->work_tail && handle_finished_work(e);
		post_reductions(e);
		for (; e->completed_count && !e->status; again = 1)
			handle_completed(e);
		for (; e->queue_head < e->queue_tail && !e->status; again = 1)
			run_step(e, e->queue[e->queue_head++]);
		did |= again;
	} while (again && !e->status);
	return did;
}

void gn_exec_start(struct gn_exec *e, uint32_t sequence)
{
	e->sequence = sequence;
	e->remaining = e->step_count;
	e->next_reduction = e->queue_head = e->queue_tail = e->completed_count = e->polled_count = 0;
	e->work_head = e->work_tail = 0;
	for (e->free_count = 0; e->free_count < e->slot_count; e->free_count++)
		e->free_slots[e->free_count] = e->slot_count - 1 - e->free_count;
	for (size_t i = 0; i < e->step_count; i++) {
		struct gn_step_state *s = &e->states[i];

		s->missing = e->steps[i].dependency_count;
		s->slot = GN_NO_SLOT;
		s->arrived = s->posted = s->done = 0;
		s->request.status = GN_OK;
		if (!s->missing)
			e->queue[e->queue_tail++] = (uint32_t)i;
	}
	if (e->flags)
		gn_shm_flags_start(e->flags);
	gn_exec_advance(e);
}

int gn_exec_done(const struct gn_exec *e)
{
	return !e->remaining;
}

void gn_exec_transports(const struct gn_exec *e, int *by_memory, int *by_message)
{
	*by_memory = e->by_memory;
	*by_message = e->by_message;
}

enum gn_status gn_exec_check(const struct gn_exec *e, struct gn_err *err)
{
	if (e->status && err)
		*err = e->why;
	return e->status;
}

void gn_exec_waits_for(const struct gn_exec *e, struct gn_exec_wait *out)
{
	*out = (struct gn_exec_wait){.peer = -1, .rail = -1, .steps_left = e->remaining, .steps = e->step_count};
	for (size_t i = 0; i < e->step_count; i++) {
		if (e->states[i].done || !e->states[i].posted || e->steps[i].op == GN_STEP_COPY)
			continue;
		out->peer = gn_exec_world_rank(e, e->steps[i].peer);
		out->sends = e->steps[i].op == GN_STEP_SEND;
		out->message = e->steps[i].message;
		out->rail = e->states[i].shm_peer < 0 ? gn_ucx_blocking_rail(e->ucx, out->peer, &e->states[i].request) : -1;
		/* a missing message explains more than one that is not received */
		if (!out->sends)
			return;
	}
}
