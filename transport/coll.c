#include "transport/coll.h"

#include "src/base/arena.h"
#include "src/base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Receptions that may wait in memory of ours at once: enough to keep a link busy while one is being reduced. */
#define SLOTS 8
#define MESSAGE_BITS 20
#define SEQUENCE_BITS 24
#define NO_SLOT UINT32_MAX
/* A broken endpoint alone does not say who died first; the watch does, within its limit and a little more. */
#define VERDICT_NS 7000000000u
#define CHECK_NS 2000000u

struct step_state {
	struct gn_request request; /* first: the request leads back to its step */
	struct gn_coll *coll;
	uint32_t index, missing, slot;
	int arrived;
};

struct gn_coll {
	struct gn_comm *comm;
	struct gn_coll *next_active;
	struct gn_schedule *schedule;
	const struct gn_step *steps;
	size_t step_count;
	struct gn_coll_buffers buffers;
	const char *name;
	struct gn_node_op *shared; /* instead of a schedule */

	struct step_state *states;
	uint32_t *dependents, *first_dependent; /* the dependencies turned around */
	uint32_t *reductions;			/* RECV_REDUCE steps in order */
	size_t reduction_count;
	uint32_t *queue;   /* steps whose dependencies are met */
	uint32_t *landed;  /* steps whose message is through */
	char *scratch;
	size_t slot_bytes;

	int in_flight;
	uint32_t sequence;
	size_t remaining, next_reduction, queue_head, queue_tail, landed_count;
	uint32_t free_slots[SLOTS], free_count, slot_count;
	enum gn_status status;
	struct gn_err why;
};

static void chunk_range(const struct gn_coll *c, const struct gn_step *step, size_t *offset, size_t *len)
{
	uint32_t chunks = gn_schedule_chunks(c->schedule);
	size_t last;

	gn_schedule_range(c->buffers.count, chunks, step->chunk + step->chunk_count - 1, &last, len);
	*len += last;
	gn_schedule_range(c->buffers.count, chunks, step->chunk, offset, &last);
	*len -= *offset;
	*offset *= c->buffers.element_bytes;
	*len *= c->buffers.element_bytes;
}

static uint64_t tag_of(const struct gn_coll *c, int sender, uint32_t message)
{
	return (uint64_t)sender << (SEQUENCE_BITS + MESSAGE_BITS) |
	       (uint64_t)(c->sequence & ((1u << SEQUENCE_BITS) - 1)) << MESSAGE_BITS | message;
}

/* --- creation --- */

static void turn_around(struct gn_coll *c, const uint32_t *dependencies)
{
	uint32_t *at = c->first_dependent;

	for (size_t i = 0; i < c->step_count; i++)
		for (uint32_t d = 0; d < c->steps[i].dependency_count; d++)
			at[dependencies[c->steps[i].first_dependency + d] + 1]++;
	for (size_t i = 0; i < c->step_count; i++)
		at[i + 1] += at[i];
	/* filling moves each start to its end, which is the next one's start: shift back afterwards */
	for (size_t i = 0; i < c->step_count; i++)
		for (uint32_t d = 0; d < c->steps[i].dependency_count; d++)
			c->dependents[at[dependencies[c->steps[i].first_dependency + d]]++] = (uint32_t)i;
	memmove(at + 1, at, sizeof *at * c->step_count);
	at[0] = 0;
}

static void landed(struct gn_request *r)
{
	struct step_state *s = (struct step_state *)r;

	s->coll->landed[s->coll->landed_count++] = s->index;
}

static enum gn_status allocate(struct gn_coll *c, struct gn_err *err)
{
	size_t n = c->step_count + 1, dependency_count, offset, len, longest = 0;
	const uint32_t *dependencies = gn_schedule_dependencies(c->schedule, &dependency_count);

	c->states = calloc(n, sizeof *c->states);
	c->dependents = calloc(dependency_count + 1, sizeof *c->dependents);
	c->first_dependent = calloc(n + 1, sizeof *c->first_dependent);
	c->reductions = calloc(n, sizeof *c->reductions);
	c->queue = calloc(n, sizeof *c->queue);
	c->landed = calloc(n, sizeof *c->landed);
	if (!c->states || !c->dependents || !c->first_dependent || !c->reductions || !c->queue || !c->landed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu steps", c->step_count);
	turn_around(c, dependencies);
	for (size_t i = 0; i < c->step_count; i++) {
		c->states[i].request.complete = landed;
		c->states[i].coll = c;
		c->states[i].index = (uint32_t)i;
		if (c->steps[i].op != GN_STEP_RECV_REDUCE)
			continue;
		c->reductions[c->reduction_count++] = (uint32_t)i;
		chunk_range(c, &c->steps[i], &offset, &len);
		longest = len > longest ? len : longest;
	}
	if (!c->reduction_count)
		return GN_OK;
	c->slot_bytes = (longest + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
	c->slot_count = c->reduction_count < SLOTS ? (uint32_t)c->reduction_count : SLOTS;
	c->scratch = gn_alloc_aligned(c->slot_bytes * c->slot_count + GN_ALIGN_BYTES);
	return c->scratch ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for reductions");
}

static enum gn_status connect_peers(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < c->step_count && !status; i++) {
		if (c->steps[i].op == GN_STEP_SEND)
			status = gn_fabric_connect(c->comm->fabric, c->steps[i].peer, err);
		if (!status && c->steps[i].message >> MESSAGE_BITS)
			status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%s: too many messages between two ranks", c->name);
	}
	return status;
}

static void destroy(struct gn_coll *c)
{
	gn_node_op_free(c->shared);
	gn_schedule_destroy(c->schedule);
	free(c->states);
	free(c->dependents);
	free(c->first_dependent);
	free(c->reductions);
	free(c->queue);
	free(c->landed);
	free(c->scratch);
	free(c);
}

enum gn_status gn_coll_create(struct gn_comm *comm, struct gn_schedule *schedule, const struct gn_coll_buffers *buffers,
			      const char *name, struct gn_coll **out, struct gn_err *err)
{
	struct gn_coll *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (!c) {
		gn_schedule_destroy(schedule);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	}
	c->comm = comm;
	c->schedule = schedule;
	c->steps = gn_schedule_steps(schedule, &c->step_count);
	c->buffers = *buffers;
	c->name = name;
	status = allocate(c, err);
	if (!status)
		status = connect_peers(c, err);
	if (status) {
		destroy(c);
		return status;
	}
	*out = c;
	return GN_OK;
}

enum gn_status gn_coll_create_shared(struct gn_comm *comm, const struct gn_coll_buffers *buffers, const char *name,
				     struct gn_coll **out, struct gn_err *err)
{
	struct gn_coll *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	c->comm = comm;
	c->buffers = *buffers;
	c->name = name;
	status = gn_node_allreduce(comm->node, buffers->in, buffers->out, buffers->count, buffers->element_bytes,
				   buffers->reduce, &c->shared, err);
	if (status) {
		free(c);
		return status;
	}
	*out = c;
	return GN_OK;
}

/* --- running --- */

static void fail(struct gn_coll *c, enum gn_status status, const struct gn_err *why)
{
	if (c->status)
		return;
	c->status = status;
	c->why = *why;
}

static void done(struct gn_coll *c, uint32_t index)
{
	c->remaining--;
	for (uint32_t d = c->first_dependent[index]; d < c->first_dependent[index + 1]; d++)
		if (--c->states[c->dependents[d]].missing == 0)
			c->queue[c->queue_tail++] = c->dependents[d];
}

static void reduce(struct gn_coll *c, uint32_t index)
{
	const struct gn_step *step = &c->steps[index];
	struct step_state *s = &c->states[index];
	size_t offset, len;
	char *mine, *message = c->scratch + s->slot * c->slot_bytes;

	chunk_range(c, step, &offset, &len);
	mine = (char *)c->buffers.out + offset;
	if (len && step->from_left) {
		c->buffers.reduce(message, mine, len / c->buffers.element_bytes);
		memcpy(mine, message, len);
	} else if (len) {
		c->buffers.reduce(mine, message, len / c->buffers.element_bytes);
	}
	c->free_slots[c->free_count++] = s->slot;
	s->slot = NO_SLOT;
	s->arrived = 0; /* it may still stand in the queue */
	done(c, index);
}

static void receive(struct gn_coll *c, uint32_t index, void *where, size_t len)
{
	const struct gn_step *step = &c->steps[index];
	struct gn_err why;
	enum gn_status status;

	if (!len) {
		landed(&c->states[index].request);
		return;
	}
	status = gn_fabric_receive(c->comm->fabric, tag_of(c, step->peer, step->message), where, len,
				   &c->states[index].request, &why);
	if (status)
		fail(c, status, &why);
}

static void send(struct gn_coll *c, uint32_t index, const void *what, size_t len)
{
	const struct gn_step *step = &c->steps[index];
	struct gn_err why;
	enum gn_status status;

	if (!len) {
		landed(&c->states[index].request);
		return;
	}
	status = gn_fabric_send(c->comm->fabric, step->peer, tag_of(c, gn_world_rank(c->comm->world), step->message),
				what, len, &c->states[index].request, &why);
	if (status)
		fail(c, status, &why);
}

static void run_step(struct gn_coll *c, uint32_t index)
{
	const struct gn_step *step = &c->steps[index];
	size_t offset, len;
	char *out;

	chunk_range(c, step, &offset, &len);
	out = (char *)c->buffers.out + offset;
	switch (step->op) {
	case GN_STEP_COPY:
		if (len)
			memcpy(out, (const char *)c->buffers.in + offset, len);
		done(c, index);
		break;
	case GN_STEP_SEND:
		send(c, index, step->from_input ? (const char *)c->buffers.in + offset : out, len);
		break;
	case GN_STEP_RECV:
		receive(c, index, out, len);
		break;
	default: /* the message may be here already; if not, its arrival finds nothing missing */
		if (c->states[index].arrived)
			reduce(c, index);
	}
}

/* In order, or a late one could hold the memory that an early one needs. */
static void post_reductions(struct gn_coll *c)
{
	while (c->free_count && c->next_reduction < c->reduction_count && !c->status) {
		uint32_t index = c->reductions[c->next_reduction++];
		size_t offset, len;

		chunk_range(c, &c->steps[index], &offset, &len);
		c->states[index].slot = c->free_slots[--c->free_count];
		receive(c, index, c->scratch + c->states[index].slot * c->slot_bytes, len);
	}
}

static void take_landed(struct gn_coll *c)
{
	uint32_t index = c->landed[--c->landed_count];
	struct step_state *s = &c->states[index];
	struct gn_err why;

	if (s->request.status == GN_ERR_MISMATCH) {
		gn_err_set(&why, GN_ERR_MISMATCH,
			   "%s number %u: the message from rank %d on %s has another length than the one expected: the ranks "
			   "disagree about the size or the order of their collectives", c->name, c->sequence,
			   c->steps[index].peer, gn_world_host_of(c->comm->world, c->steps[index].peer));
		fail(c, GN_ERR_MISMATCH, &why);
		return;
	}
	if (s->request.status) {
		gn_err_set(&why, s->request.status, "%s: a message %s rank %d on %s failed: %s", c->name,
			   c->steps[index].op == GN_STEP_SEND ? "to" : "from", c->steps[index].peer,
			   gn_world_host_of(c->comm->world, c->steps[index].peer), gn_status_text(s->request.status));
		fail(c, s->request.status, &why);
		return;
	}
	if (c->steps[index].op != GN_STEP_RECV_REDUCE) {
		done(c, index);
		return;
	}
	s->arrived = 1;
	if (!s->missing)
		reduce(c, index);
}

static void advance(struct gn_coll *c)
{
	do {
		post_reductions(c);
		while (c->landed_count && !c->status)
			take_landed(c);
		while (c->queue_head < c->queue_tail && !c->status)
			run_step(c, c->queue[c->queue_head++]);
	} while (!c->status && (c->landed_count || c->queue_head < c->queue_tail ||
				(c->free_count && c->next_reduction < c->reduction_count)));
}

static void leave_active(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->active;

	while (*at && *at != c)
		at = &(*at)->next_active;
	if (*at)
		*at = c->next_active;
	c->in_flight = 0;
}

static void advance_shared(struct gn_coll *c)
{
	struct gn_err why;
	int is_done = 0;
	enum gn_status status = gn_node_test(c->shared, &is_done, &why);

	if (status)
		fail(c, status, &why);
	if (is_done)
		c->remaining = 0;
}

static unsigned progress_all(struct gn_comm *comm)
{
	unsigned events = gn_fabric_progress(comm->fabric);

	for (struct gn_coll *c = comm->active; c; c = c->next_active) {
		if (c->shared && c->remaining)
			advance_shared(c);
		else if (c->landed_count)
			advance(c);
	}
	return events;
}

/* The fast path: neighbours in shared memory answer within microseconds, so look there alone for a while. */
static void spin_shared(struct gn_coll *c)
{
	int limit = gn_node_crowded(c->comm->node) ? 64 : 20000;

	for (int i = 0; i < limit && c->remaining && !c->status; i++)
		advance_shared(c);
}

enum gn_status gn_coll_start(struct gn_coll *c, struct gn_err *err)
{
	if (c->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "%s was started again before it was complete", c->name);
	if (c->comm->failed)
		return gn_err_set(err, GN_ERR_FAILED, "%s: the communicator has failed before", c->name);
	c->sequence = c->comm->sequence++;
	c->remaining = c->step_count;
	c->next_reduction = c->queue_head = c->queue_tail = c->landed_count = 0;
	for (c->free_count = 0; c->free_count < c->slot_count; c->free_count++)
		c->free_slots[c->free_count] = c->slot_count - 1 - c->free_count;
	for (size_t i = 0; i < c->step_count; i++) {
		c->states[i].missing = c->steps[i].dependency_count;
		c->states[i].slot = NO_SLOT;
		c->states[i].arrived = 0;
		c->states[i].request.status = GN_OK;
		if (!c->states[i].missing)
			c->queue[c->queue_tail++] = (uint32_t)i;
	}
	c->in_flight = 1;
	c->next_active = c->comm->active;
	c->comm->active = c;
	if (c->shared) {
		c->remaining = 1;
		gn_node_start(c->shared);
	} else {
		advance(c);
	}
	return GN_OK;
}

/* The watch knows who died first; a broken connection only knows its other end. */
static enum gn_status diagnose(struct gn_coll *c, struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + VERDICT_NS, started = gn_clock_ns();
	struct timespec pause = {0, 5000000};
	enum gn_status status = GN_OK;

	c->comm->failed = 1;
	while (c->status != GN_ERR_MISMATCH && !status && gn_clock_ns() < until) {
		status = gn_world_check_wait(c->comm->world, started, err);
		if (!status)
			nanosleep(&pause, NULL);
	}
	if (status)
		return status;
	/* the others would wait for this rank, which does not go on */
	gn_world_give_up(c->comm->world, c->why.text);
	if (err)
		*err = c->why;
	return c->status;
}

/* Whether to go on waiting; called every few milliseconds at most. */
static enum gn_status look_around(struct gn_coll *c, uint64_t started, struct gn_err *err)
{
	enum gn_status status = gn_world_check_wait(c->comm->world, started, err);

	if (!status)
		status = gn_fabric_check(c->comm->fabric, VERDICT_NS, err);
	if (status)
		c->comm->failed = 1;
	return status;
}

enum gn_status gn_coll_test(struct gn_coll *c, int *is_done, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (c->in_flight) {
		progress_all(c->comm);
		if (c->status)
			return diagnose(c, err);
		status = gn_world_check(c->comm->world, err);
		c->comm->failed |= status != GN_OK;
		if (!c->remaining)
			leave_active(c);
	}
	if (!status)
		*is_done = !c->in_flight;
	return status;
}

enum gn_status gn_coll_wait(struct gn_coll *c, struct gn_err *err)
{
	uint64_t started = 0, checked = 0, now;
	enum gn_status status;
	unsigned idle = 0;

	if (c->shared && c->in_flight)
		spin_shared(c);
	while (c->in_flight && c->remaining && !c->status) {
		if (progress_all(c->comm)) {
			idle = 0;
			continue;
		}
		if (++idle % 64)
			continue;
		/* more ranks than processors: let the one that we wait for run */
		sched_yield();
		now = gn_clock_ns();
		if (!started)
			started = now;
		if (now - checked < CHECK_NS)
			continue;
		checked = now;
		status = look_around(c, started, err);
		if (status)
			return status;
	}
	if (c->status)
		return diagnose(c, err);
	if (c->in_flight)
		leave_active(c);
	return GN_OK;
}

void gn_coll_free(struct gn_coll *c)
{
	if (!c)
		return;
	if (c->in_flight && c->shared) {
		c->comm->failed = 1;
		leave_active(c);
	}
	if (c->in_flight) {
		/* messages may still be on their way into the buffers: only an abandoned fabric leaves them alone */
		c->comm->failed = 1;
		gn_fabric_abandon(c->comm->fabric);
		leave_active(c);
	}
	destroy(c);
}
