#include "transport/coll/exec_internal.h"

#include "src/base/alloc.h"

#include <string.h>

static uint64_t tag_of(const struct gn_exec *e, int sender, uint32_t message)
{
	uint64_t sequence = e->sequence & ((1u << GN_SEQUENCE_BITS) - 1);

	return ((uint64_t)sender << (GN_SEQUENCE_BITS + GN_MESSAGE_BITS) | sequence << GN_MESSAGE_BITS | message) ^ e->signature;
}

void gn_exec_landed(struct gn_ucx_request *r)
{
	struct gn_step_state *s = (struct gn_step_state *)r;

	s->exec->landed[s->exec->landed_count++] = s->index;
}

void gn_exec_fail(struct gn_exec *e, enum gn_status status, const struct gn_err *why)
{
	if (e->status)
		return;
	e->status = status;
	e->why = *why;
}

static const char *given(const struct gn_exec *e, const struct gn_step_state *s)
{
	return (const char *)e->buffers.in + (s->offset - e->buffers.in_shift_bytes);
}

void gn_exec_done_step(struct gn_exec *e, uint32_t index)
{
	e->remaining--;
	e->states[index].done = 1;
	for (uint32_t d = e->first_dependent[index]; d < e->first_dependent[index + 1]; d++)
		if (--e->states[e->dependents[d]].missing == 0)
			e->queue[e->queue_tail++] = e->dependents[d];
}

void gn_exec_reduced(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];

	e->free_slots[e->free_count++] = s->slot;
	s->slot = GN_NO_SLOT;
	s->arrived = 0; /* it may still stand in the queue */
	gn_exec_done_step(e, index);
}

/* The message may be overwritten. */
static void reduce(struct gn_exec *e, uint32_t index)
{
	struct gn_step_state *s = &e->states[index];
	char *message = gn_exec_slot_of(e, s);

	if (s->len && e->buffers.memory) {
		s->arrived = 0; /* as below: once is enough */
		gn_exec_queue_work(e, index, message);
		return;
	}
	if (s->len && e->steps[index].from_left) {
		e->buffers.reduce(message, gn_exec_mine(e, s), s->len / e->buffers.element_bytes);
		memcpy(gn_exec_mine(e, s), message, s->len);
	} else if (s->len) {
		e->buffers.reduce(gn_exec_mine(e, s), message, s->len / e->buffers.element_bytes);
	}
	gn_exec_reduced(e, index);
}

static void receive(struct gn_exec *e, uint32_t index, void *where)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];
	struct gn_err why;
	enum gn_status status;

	s->posted = 1;
	if (!s->len) {
		gn_exec_landed(&s->request);
		return;
	}
	status = gn_ucx_receive(e->fabric, step->peer, tag_of(e, step->peer, step->message), where, s->len, &s->request,
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
		gn_exec_landed(&s->request);
		return;
	}
	status = gn_ucx_send(e->fabric, step->peer, tag_of(e, gn_world_rank(e->world), step->message), what, s->len,
				&s->request, &why);
	if (status)
		gn_exec_fail(e, status, &why);
}

static void run_step(struct gn_exec *e, uint32_t index)
{
	const struct gn_step *step = &e->steps[index];
	struct gn_step_state *s = &e->states[index];

	s->posted = 1;
	if (s->lane >= 0 && step->op != GN_STEP_RECV_REDUCE) {
		gn_exec_poll_later(e, index);
		return;
	}
	switch (step->op) {
	case GN_STEP_COPY:
		if (s->len && e->buffers.memory) {
			gn_exec_queue_work(e, index, given(e, s));
			break;
		}
		if (s->len)
			memcpy(gn_exec_mine(e, s), given(e, s), s->len);
		gn_exec_done_step(e, index);
		break;
	case GN_STEP_SEND:
		send(e, index, step->from_input ? given(e, s) : gn_exec_mine(e, s));
		break;
	case GN_STEP_RECV:
		receive(e, index, gn_exec_mine(e, s));
		break;
	default: /* the message may be here already; if not, its arrival finds nothing missing */
		if (s->arrived)
			reduce(e, index);
	}
}

/* In order, or a late one could hold the memory that an early one needs. */
static void post_reductions(struct gn_exec *e)
{
	while (e->free_count && e->next_reduction < e->reduction_count && !e->status) {
		uint32_t index = e->reductions[e->next_reduction++];

		e->states[index].slot = e->free_slots[--e->free_count];
		e->states[index].posted = 1;
		if (e->states[index].lane >= 0)
			gn_exec_poll_later(e, index);
		else
			receive(e, index, gn_exec_slot_of(e, &e->states[index]));
	}
}

static enum gn_status explain(const struct gn_exec *e, uint32_t index, struct gn_err *why)
{
	const struct gn_step *step = &e->steps[index];
	const char *host = gn_world_host_of(e->world, step->peer);
	enum gn_status status = e->states[index].request.status;

	if (status == GN_ERR_MISMATCH)
		return gn_err_set(why, status,
				  "%s number %u: the message from rank %d on %s has another length than the one expected: the ranks "
				  "disagree about the size or the order of their collectives", e->name, e->sequence, step->peer, host);
	return gn_err_set(why, status, "%s: a message %s rank %d on %s failed: %s", e->name,
			  step->op == GN_STEP_SEND ? "to" : "from", step->peer, host, gn_status_text(status));
}

static void take_landed(struct gn_exec *e)
{
	uint32_t index = e->landed[--e->landed_count];
	struct gn_step_state *s = &e->states[index];
	struct gn_err why;

	if (s->request.status) {
		explain(e, index, &why);
		gn_exec_fail(e, s->request.status, &why);
		return;
	}
	if (e->steps[index].op != GN_STEP_RECV_REDUCE) {
		gn_exec_done_step(e, index);
		return;
	}
	s->arrived = 1;
	if (!s->missing)
		reduce(e, index);
}

static int take_works(struct gn_exec *e)
{
	uint32_t index;
	int did = 0;

	for (; gn_exec_take_work(e, &index); did = 1) {
		if (e->steps[index].op == GN_STEP_COPY)
			gn_exec_done_step(e, index);
		else
			gn_exec_reduced(e, index);
	}
	return did;
}

int gn_exec_advance(struct gn_exec *e)
{
	int did = 0, again;

	do {
		again = e->polled_count && gn_exec_poll_lane(e);
		again |= e->work_head < e->work_tail && take_works(e);
		post_reductions(e);
		for (; e->landed_count && !e->status; again = 1)
			take_landed(e);
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
	e->next_reduction = e->queue_head = e->queue_tail = e->landed_count = e->polled_count = 0;
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
	if (e->lane)
		gn_shm_flags_start(e->lane);
	gn_exec_advance(e);
}

int gn_exec_done(const struct gn_exec *e)
{
	return !e->remaining;
}

void gn_exec_ways(const struct gn_exec *e, int *by_memory, int *by_message)
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
		out->peer = e->steps[i].peer;
		out->sends = e->steps[i].op == GN_STEP_SEND;
		out->message = e->steps[i].message;
		out->rail = e->states[i].lane < 0 ? gn_ucx_blocking_rail(e->fabric, out->peer, &e->states[i].request) : -1;
		/* who has not sent explains more than who has not received */
		if (!out->sends)
			return;
	}
}
