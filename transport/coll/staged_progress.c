#include "src/base/clock.h"
#include "transport/coll/staged_internal.h"

#include <sched.h>
#include <time.h>

/* Polls between two yields, and the sleep after four of them: a copy of a chunk takes tens of microseconds. */
#define POLLS 64
#define PAUSE_NS 20000
#define CHECK_NS 2000000u

static enum gn_status start_down(struct gn_stager *s, struct gn_err *err)
{
	struct gn_staged *op = s->queue;
	struct gn_staged_chunk *p = &s->ring[(s->first + s->count) % s->slots];
	int slot = gn_staged_slot_of(op, op->started);
	char *device = op->device + op->started * op->chunk_bytes;
	enum gn_status status = s->engine->ops->down(s->engine, slot, gn_stager_slot(s, slot), device,
						     gn_staged_bytes_of(op, op->started), op->started ? NULL : op->after, err);

	if (status)
		return status;
	*p = (struct gn_staged_chunk){op, op->started++, GN_STAGED_DOWN};
	s->count++;
	s->busy[slot] = s->copying[slot] = 1;
	if (op->started == op->chunks)
		s->queue = op->next;
	return GN_OK;
}

static enum gn_status poll_copy(struct gn_stager *s, struct gn_staged_chunk *p, enum gn_staged_phase then, struct gn_err *err)
{
	int slot = gn_staged_slot_of(p->op, p->chunk), done = 0;
	enum gn_status status = s->engine->ops->poll(s->engine, slot, &done, err);

	if (status || !done)
		return status;
	s->copying[slot] = 0;
	p->phase = then;
	if (then == GN_STAGED_DONE) {
		s->busy[slot] = 0;
		p->op->in_flight = ++p->op->finished < p->op->chunks;
	}
	return GN_OK;
}

static enum gn_status test_sum(struct gn_stager *s, struct gn_staged_chunk *p, struct gn_err *err)
{
	struct gn_staged *op = p->op;
	int slot = gn_staged_slot_of(op, p->chunk), done = 0;
	enum gn_status status = gn_coll_test(gn_staged_coll_of(op, p->chunk), &done, err);

	if (status || !done)
		return status;
	status = s->engine->ops->up(s->engine, slot, op->device + p->chunk * op->chunk_bytes, gn_stager_slot(s, slot),
				    gn_staged_bytes_of(op, p->chunk), err);
	if (status)
		return status;
	s->copying[slot] = 1;
	p->phase = GN_STAGED_UP;
	return GN_OK;
}

/* Allreduces start in the order of the ring, the same on all ranks. may_start: those of all earlier chunks have started. */
static enum gn_status advance_chunk(struct gn_stager *s, struct gn_staged_chunk *p, int may_start, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (p->phase == GN_STAGED_DOWN)
		status = poll_copy(s, p, GN_STAGED_READY, err);
	if (!status && p->phase == GN_STAGED_READY && may_start) {
		status = gn_coll_start(gn_staged_coll_of(p->op, p->chunk), err);
		p->phase = status ? GN_STAGED_READY : GN_STAGED_SUM;
	}
	if (!status && p->phase == GN_STAGED_SUM)
		status = test_sum(s, p, err);
	if (!status && p->phase == GN_STAGED_UP)
		status = poll_copy(s, p, GN_STAGED_DONE, err);
	return status;
}

/* Advances all chunks without blocking. *moved: any chunk changed its phase. */
static enum gn_status advance(struct gn_stager *s, int *moved, struct gn_err *err)
{
	int may_start = 1;

	*moved = 0;
	for (int i = 0; i < s->count; i++) {
		struct gn_staged_chunk *p = &s->ring[(s->first + i) % s->slots];
		enum gn_staged_phase before = p->phase;
		enum gn_status status = advance_chunk(s, p, may_start, err);

		if (status)
			return status;
		may_start &= p->phase >= GN_STAGED_SUM;
		*moved |= p->phase != before;
	}
	while (s->count && s->ring[s->first].phase == GN_STAGED_DONE) {
		s->first = (s->first + 1) % s->slots;
		s->count--;
	}
	while (s->queue && s->count < s->slots && !s->busy[gn_staged_slot_of(s->queue, s->queue->started)]) {
		enum gn_status status = start_down(s, err);

		if (status)
			return status;
		*moved = 1;
	}
	return GN_OK;
}

/* Advances, and keeps the first failure. */
static enum gn_status advance_or_fail(struct gn_stager *s, int *moved, struct gn_err *err)
{
	struct gn_world *world = gn_comm_world(s->comm);

	if (!s->status) {
		s->status = advance(s, moved, &s->why);
		/* other ranks would wait for this one */
		if (s->status && !gn_world_check(world, NULL))
			gn_world_abort(world, s->why.text);
	}
	if (s->status && err)
		*err = s->why;
	return s->status;
}

enum gn_status gn_staged_test(struct gn_staged *op, int *done, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int moved;

	if (op->in_flight)
		status = advance_or_fail(op->stager, &moved, err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

/* The oldest allreduce in flight, if no copy is in flight (copies have to be polled); else NULL. */
static struct gn_coll *find_sum(const struct gn_stager *s)
{
	for (int i = 0; i < s->slots; i++)
		if (s->copying[i])
			return NULL;
	for (int i = 0; i < s->count; i++) {
		const struct gn_staged_chunk *p = &s->ring[(s->first + i) % s->slots];

		if (p->phase == GN_STAGED_SUM)
			return gn_staged_coll_of(p->op, p->chunk);
	}
	return NULL;
}

/* Waits when nothing advanced: in the allreduce if that is all there is to wait for, else by polling, yielding, sleeping. */
static enum gn_status wait_idle(struct gn_stager *s, unsigned polls, uint64_t *checked, struct gn_err *err)
{
	struct gn_coll *sum = find_sum(s);
	struct timespec pause = {0, PAUSE_NS};
	uint64_t now;

	if (sum)
		return gn_coll_wait(sum, err);
	if (polls % POLLS)
		return GN_OK;
	if (polls > 4 * POLLS)
		nanosleep(&pause, NULL);
	else
		sched_yield();
	now = gn_clock_ns();
	if (now - *checked < CHECK_NS)
		return GN_OK;
	*checked = now;
	return gn_world_check(gn_comm_world(s->comm), err);
}

enum gn_status gn_staged_wait(struct gn_staged *op, struct gn_err *err)
{
	struct gn_stager *s = op->stager;
	uint64_t checked = 0;
	unsigned idle = 0;
	int moved = 0;

	while (op->in_flight) {
		enum gn_status status = advance_or_fail(s, &moved, err);

		if (status)
			return status;
		idle = moved ? 0 : idle + 1;
		if (moved || !op->in_flight)
			continue;
		s->status = wait_idle(s, idle, &checked, &s->why);
	}
	return GN_OK;
}
