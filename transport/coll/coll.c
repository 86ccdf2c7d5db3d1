#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
#include "transport/coll/coll_device_internal.h"

#include <stdlib.h>
#include <string.h>

void gn_coll_fail(struct gn_coll *c, enum gn_status status, const struct gn_err *why)
{
	if (c->status)
		return;
	c->status = status;
	c->why = *why;
	gn_coll_end_turn(c);
	atomic_store_explicit(&c->settled, 1, memory_order_release);
}

void gn_coll_complete(struct gn_coll *c)
{
	size_t bytes = c->result_count * gn_dtype_bytes(c->args.type);

	if (c->result_from)
		memcpy(c->result, c->result_from, bytes);
	if (c->divide)
		gn_reduce_divide(c->args.type, c->result, c->result_count, c->divide);
	/* before `complete` is set, because another thread may then start the next run */
	if (c->record)
		gn_recorder_done(c->comm->recorder, c->record);
	atomic_store_explicit(&c->complete, 1, memory_order_release);
	atomic_store_explicit(&c->settled, 1, memory_order_release);
}

int gn_coll_advance(struct gn_coll *c)
{
	struct gn_err why;
	int moved = 0, done = 0;
	enum gn_status status = c->ops->advance(c, &moved, &done, &why);

	if (status)
		gn_coll_fail(c, status, &why);
	else if (done)
		gn_coll_complete(c);
	return moved;
}

void gn_coll_end_turn(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->waiting;

	while (*at && *at != c)
		at = &(*at)->next_waiting;
	if (*at)
		*at = c->next_waiting;
}

int gn_coll_begin(struct gn_coll *c)
{
	struct gn_err why;
	int ready = 1;
	enum gn_status status = GN_OK;

	if (c->begun)
		return 1;
	if (c->comm->waiting != c)
		return 0;
	if (c->before && !c->ops->takes_event)
		status = gn_event_done(c->before, &ready, &why);
	if (!status && !ready)
		return 0;
	c->begun = 1;
	c->failed_alone = status != GN_OK;
	if (!status)
		status = c->ops->start(c, &why);
	if (!c->ops->long_turn)
		gn_coll_end_turn(c);
	if (status)
		gn_coll_fail(c, status, &why);
	return !status;
}

unsigned gn_comm_progress(struct gn_comm *comm)
{
	unsigned events, losses = gn_world_losses(comm->world);

	comm = comm->root;
	if (losses != comm->losses)
		gn_comm_end_lost(comm, losses);
	events = gn_ucx_progress(comm->ucx);
	for (struct gn_coll *c = comm->active; c; c = c->next_active) {
		if (!gn_coll_is_complete(c) && !c->status && gn_coll_begin(c))
			events += (unsigned)gn_coll_advance(c);
	}
	return events;
}

void gn_coll_progress(void *comm)
{
	gn_comm_progress(comm);
}

void gn_comm_poll(struct gn_comm *c)
{
	gn_comm_enter(c);
	gn_comm_progress(c->root);
	gn_comm_leave(c);
}

int gn_comm_awaits(const struct gn_comm *comm, int *by_memory, int *by_message)
{
	int count = 0, memory, message;

	*by_memory = *by_message = 0;
	for (const struct gn_coll *c = comm->root->active; c; c = c->next_active) {
		if (gn_coll_is_complete(c) || c->status)
			continue;
		/* a device is polled at the interval of those that wait for both */
		memory = message = 1;
		if (c->begun && c->ops->transports)
			c->ops->transports(c, &memory, &message);
		*by_memory |= memory;
		*by_message |= message;
		count++;
	}
	return count;
}

static void enter_active(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->root->active;

	/* behind operations of the same priority */
	while (*at && (*at)->args.priority >= c->args.priority)
		at = &(*at)->next_active;
	c->next_active = *at;
	*at = c;
	c->in_flight = 1;
}

void gn_coll_leave_active(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->root->active;

	while (*at && *at != c)
		at = &(*at)->next_active;
	if (*at)
		*at = c->next_active;
	c->in_flight = 0;
}

static void set_started(struct gn_coll *c, uint32_t sequence)
{
	c->sequence = sequence;
	c->begun = c->lost = 0;
	c->record = 0;
	atomic_store_explicit(&c->complete, 0, memory_order_relaxed);
	atomic_store_explicit(&c->settled, 0, memory_order_relaxed);
	enter_active(c);
}

/* Takes what c follows: an event of its own behind the caller's, which may be recorded again. */
static void set_event(struct gn_coll *c, const struct gn_event *after)
{
	struct gn_coll_device *d = c->comm->device;
	struct gn_err why;
	enum gn_status status = GN_OK;

	c->before = after;
	c->ready_ns = 0;
	if (!c->ready)
		return;
	c->started_ns = gn_clock_ns();
	if (!after) {
		c->ready_ns = c->started_ns;
		return;
	}
	status = gn_stream_after(d->gate, after, &why);
	if (!status)
		status = gn_event_record(c->ready, d->gate, &why);
	c->before = c->ready;
	c->failed_alone = status != GN_OK;
	if (status)
		gn_coll_fail(c, status, &why);
}

static void wait_for_turn(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->waiting;

	while (*at)
		at = &(*at)->next_waiting;
	c->next_waiting = NULL;
	*at = c;
}

static enum gn_status check_start(const struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status;

	if (c->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "%s was started before its previous run was complete", c->op.name);
	if (gn_world_losses(c->comm->world) && (status = gn_comm_check(c->comm, 0, err)))
		return status;
	if (c->comm->failed || c->comm->root->broken)
		return gn_err_set(err, GN_ERR_FAILED, "%s: the communicator has failed", c->op.name);
	return GN_OK;
}

enum gn_status gn_coll_start_inside(struct gn_coll *c, const struct gn_event *after, struct gn_err *err)
{
	enum gn_status status = check_start(c, err);
	int begun;

	if (status)
		return status;
	set_started(c, c->comm->sequence);
	c->comm->sequence += c->numbers;
	/* begin first, record then: other ranks read the input meanwhile */
	if (c->shared && !after && !c->comm->waiting) {
		c->before = NULL;
		c->begun = begun = 1;
		c->failed_alone = 0;
		gn_shm_start(c->shared);
	} else {
		wait_for_turn(c);
		set_event(c, after);
		begun = !c->status && gn_coll_begin(c);
	}
	c->record = gn_recorder_start_in(c->comm->recorder, c->comm->group ? c->comm->group->number : 0, c->kind);
	if (begun && !c->shared)
		gn_coll_advance(c);
	return GN_OK;
}

static void begin_now(struct gn_coll *c)
{
	struct gn_err why;
	enum gn_status status;

	c->begun = 1;
	if (c->status)
		return;
	status = c->ops->start(c, &why);
	if (status)
		gn_coll_fail(c, status, &why);
}

void gn_coll_start_inner(struct gn_coll *c, uint32_t sequence)
{
	set_started(c, sequence);
	begin_now(c);
}

enum gn_status gn_coll_start_outside_order(struct gn_coll *c, const struct gn_event *after, struct gn_err *err)
{
	enum gn_status status = check_start(c, err);

	if (status)
		return status;
	set_started(c, 0);
	set_event(c, after);
	begin_now(c);
	if (!c->status)
		gn_coll_advance(c);
	return GN_OK;
}

enum gn_status gn_coll_inner_done(struct gn_coll *c, int *done, struct gn_err *err)
{
	*done = gn_coll_is_complete(c);
	if (*done)
		gn_coll_leave_active(c);
	else if (c->status && err)
		*err = c->why;
	return *done ? GN_OK : c->status;
}

enum gn_status gn_coll_start(struct gn_coll *c, const struct gn_event *after, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(c->comm);
	status = gn_coll_start_inside(c, after, err);
	gn_comm_leave(c->comm);
	return status;
}

void gn_coll_describe(const struct gn_coll *c, struct gn_coll_info *out)
{
	*out = c->info;
}

void gn_coll_free_inside(struct gn_coll *c)
{
	if (c->in_flight) {
		c->comm->failed = 1;
		gn_coll_end_record(c);
	}
	gn_coll_end_turn(c);
	/* preparing may have failed before it was there */
	if (c->ops)
		c->ops->free(c);
	if (c->in_flight)
		gn_coll_leave_active(c);
	gn_event_destroy(c->ready);
	free(c->work);
	free(c->block_first);
	free(c->in_first);
	free(c);
}

void gn_coll_free(struct gn_coll *c)
{
	const struct gn_comm *comm;

	if (!c)
		return;
	comm = c->comm;
	gn_comm_enter(comm);
	gn_coll_free_inside(c);
	gn_comm_leave(comm);
}
