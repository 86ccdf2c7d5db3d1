#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"
#include "transport/coll/coll_device_internal.h"
#include "transport/topology/oversubscription.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long to wait for the heartbeat's report of a mismatch; it asks the ranks after a second. */
#define MISMATCH_NS 4000000000u
#define CHECK_NS 2000000u
#define RECORD_NS 200000000u
/* Progress calls with events between two health checks. */
#define BUSY_POLLS 4096
/* The longest blocking wait: the delay if a wakeup is missed. */
#define IDLE_WAIT_NS 5000000u
/* The sleep while a device computes, which takes tens of microseconds at least, and the idle polls before it. */
#define DEVICE_PAUSE_NS 20000
#define DEVICE_POLLS 16
/* A device that takes longer to produce the input of an operation is regarded as hung. */
#define READY_NS 600000000000u
/* A library does not report progress: its operation counts as progressing for as long as it would take at 10 MB/s. */
#define LIBRARY_NS_PER_BYTE 100
/* Polls of shared memory before progressing UCX. With oversubscription the awaited rank hardly runs now: a few polls, then one
 * after each of YIELDS calls of sched_yield(). 4 ranks on 2 processors take 0.9 us for 512 B with 4 polls, 1.2 with 16, 2.0 with
 * 32. */
#define SPINS 5000
#define SPINS_OVERSUBSCRIBED 4
#define YIELDS 32

void gn_coll_fail(struct gn_coll *c, enum gn_status status, const struct gn_err *why)
{
	if (c->status)
		return;
	c->status = status;
	c->why = *why;
	gn_coll_end_turn(c);
	atomic_store_explicit(&c->settled, 1, memory_order_release);
}

/* Copies the result from work memory, divides averages, and marks the operation complete. */
static void complete_coll(struct gn_coll *c)
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

static int advance(struct gn_coll *c)
{
	struct gn_err why;
	int moved = 0, done = 0;
	enum gn_status status = c->ops->advance(c, &moved, &done, &why);

	if (status)
		gn_coll_fail(c, status, &why);
	else if (done)
		complete_coll(c);
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

/* Whether c has begun. Operations of a communicator begin in the order in which they were started, the same on all ranks. */
static int begin(struct gn_coll *c)
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
		if (!gn_coll_is_complete(c) && !c->status && begin(c))
			events += (unsigned)advance(c);
	}
	return events;
}

void gn_coll_progress(void *comm)
{
	gn_comm_progress(comm);
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

static int is_settled(const struct gn_coll *c)
{
	return gn_coll_is_complete(c) || c->status;
}

/* The fast path: other ranks answer in shared memory within microseconds, so poll that alone at first. */
static void spin_shared(struct gn_coll *c)
{
	int oversubscribed = c->comm->oversubscribed, spins = oversubscribed ? SPINS_OVERSUBSCRIBED : SPINS;

	if (!is_settled(c))
		advance(c);
	for (int i = 0; i < spins && !is_settled(c); i++) {
		gn_clock_pause();
		advance(c);
	}
	for (int i = 0; oversubscribed && i < YIELDS && !is_settled(c); i++) {
		sched_yield();
		advance(c);
	}
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

static void leave_active(struct gn_coll *c)
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
	wait_for_turn(c);
	set_event(c, after);
	/* begin first, record then: other ranks read the input meanwhile */
	begun = !c->status && begin(c);
	c->record = gn_recorder_start_in(c->comm->recorder, c->comm->group ? c->comm->group->number : 0, c->kind);
	if (begun && !c->shared)
		advance(c);
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
		advance(c);
	return GN_OK;
}

enum gn_status gn_coll_inner_done(struct gn_coll *c, int *done, struct gn_err *err)
{
	*done = gn_coll_is_complete(c);
	if (*done)
		leave_active(c);
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

/* The flight recorder no longer has the operation in flight: after a loss this rank may do other work. */
static void end_record(struct gn_coll *c)
{
	if (c->record && !gn_coll_is_complete(c))
		gn_recorder_done(c->comm->recorder, c->record);
	c->record = 0;
}

/* The reason of a failure, for its caller. */
static enum gn_status diagnose(struct gn_coll *c, struct gn_err *err)
{
	uint64_t limit_ns = c->status == GN_ERR_MISMATCH ? MISMATCH_NS : gn_world_failure_reason_ns(c->comm->world);
	struct gn_err why = c->why;
	enum gn_status status = c->status;

	c->comm->failed = 1;
	if (c->lost)
		end_record(c);
	else
		status = gn_agree_explain(c->comm, c->failed_alone ? 0 : limit_ns, c->library != NULL, &why);
	if (err)
		*err = why;
	return status;
}

int gn_comm_moved(struct gn_comm *comm, int events)
{
	int moved = comm->root->unreported_events;

	comm->root->unreported_events = events;
	if (gn_ucx_is_disconnecting(comm->ucx))
		moved = comm->root->unreported_events = 0;
	return moved;
}

/* Whether c waits for this rank's device, or for a library that may still be working: not for other ranks. */
static int is_on_device(struct gn_coll *c, uint64_t now)
{
	int ready = 0;

	if (!c->ready)
		return 0;
	if (!c->ready_ns && !gn_event_done(c->ready, &ready, NULL) && ready)
		c->ready_ns = now;
	if (!c->ready_ns)
		return now - c->started_ns < READY_NS;
	return c->library && now - c->ready_ns < c->op.bytes * LIBRARY_NS_PER_BYTE;
}

/* Tells the flight recorder that this rank waits, and, every RECORD_NS, for which. moved: there were events since the last call. */
static void record_wait(struct gn_coll *c, uint64_t now, int moved)
{
	struct gn_exec_wait wait = {.peer = -1, .rail = -1};

	if (is_on_device(c, now)) {
		gn_recorder_moved(c->comm->recorder);
		return;
	}
	gn_recorder_waiting(c->comm->recorder, gn_comm_moved(c->comm, moved));
	if (now - c->comm->root->noted_ns < RECORD_NS)
		return;
	c->comm->root->noted_ns = now;
	if (c->begun && c->ops->waits_for)
		c->ops->waits_for(c, &wait);
	/* a message, which no other rank has a number for */
	if (!c->record)
		c->record = gn_recorder_start_message(c->comm->recorder, c->comm->group ? c->comm->group->number : 0,
						      gn_world_rank(c->comm->world), c->kind);
	gn_recorder_waits_for(c->comm->recorder, c->record, wait.peer, wait.message, wait.rail);
}

/* Checks for failures while waiting, every CHECK_NS at most. */
static enum gn_status check_health(struct gn_coll *c, uint64_t started, struct gn_err *err)
{
	const int *ranks = c->comm->group ? c->comm->group->ranks : NULL;
	enum gn_status status = gn_comm_check(c->comm, started, err);
	struct gn_err why;

	if (!status) {
		status = gn_ucx_check(c->comm->ucx, ranks, c->comm->size, gn_world_failure_reason_ns(c->comm->world), &why);
		/* other ranks get the reason, not only that this rank left */
		if (status)
			gn_world_abort(c->comm->world, why.text);
		if (status && err)
			*err = why;
	}
	if (status)
		c->comm->failed = 1;
	return status;
}

static enum gn_status check_done(struct gn_coll *c, int *is_done, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (c->in_flight && gn_coll_is_complete(c))
		leave_active(c);
	if (c->in_flight) {
		if (c->status)
			return diagnose(c, err);
		status = gn_comm_check(c->comm, 0, err);
		c->comm->failed |= status != GN_OK;
	}
	if (!status)
		*is_done = !c->in_flight;
	return status;
}

enum gn_status gn_coll_test(struct gn_coll *c, int *is_done, struct gn_err *err)
{
	enum gn_status status;

	/* do not contend with the progress thread until the operation is settled */
	if (c->comm->root->progress && c->in_flight && !atomic_load_explicit(&c->settled, memory_order_acquire)) {
		status = gn_comm_check(c->comm, 0, err);
		c->comm->failed |= status != GN_OK;
		if (!status)
			*is_done = 0;
		return status;
	}
	gn_comm_enter(c->comm);
	if (c->in_flight)
		gn_comm_progress(c->comm);
	status = check_done(c, is_done, err);
	gn_comm_leave(c->comm);
	return status;
}

int gn_coll_done(const struct gn_coll *c)
{
	return gn_coll_is_complete(c);
}

/* Gives up the CPU. With oversubscription the awaited rank is often the next to run; if not, the scheduler may return at once,
 * again and again, so block after some yields. */
static void yield_or_block(struct gn_comm *c, unsigned count, int on_device)
{
	struct timespec pause = {0, DEVICE_PAUSE_NS};
	struct gn_idle_wait wait;

	if (on_device && count > DEVICE_POLLS)
		nanosleep(&pause, NULL);
	else if (c->oversubscribed && count > GN_YIELDS && gn_idle_wait_begin(c, &wait))
		gn_idle_wait_sleep(&wait, IDLE_WAIT_NS, -1);
	else
		sched_yield();
}

static enum gn_status wait_on(struct gn_coll *c, struct gn_err *err)
{
	uint64_t started = 0, checked = 0, now;
	unsigned idle = 0, busy = 0, polls = c->comm->oversubscribed ? GN_POLLS_OVERSUBSCRIBED : GN_POLLS;
	enum gn_status status;
	int moved = 0;

	while (!gn_coll_is_complete(c) && !c->status) {
		if (gn_comm_progress(c->comm)) {
			idle = 0;
			moved = 1;
			/* events may be of other operations and may never stop */
			if (++busy % BUSY_POLLS)
				continue;
		} else if (++idle % polls) {
			continue;
		} else {
			yield_or_block(c->comm, idle / polls, c->ready != NULL);
		}
		now = gn_clock_ns();
		if (!started)
			started = now;
		if (now - checked < CHECK_NS)
			continue;
		checked = now;
		record_wait(c, now, moved);
		moved = 0;
		status = check_health(c, started, err);
		if (status)
			return status;
	}
	return GN_OK;
}

enum gn_status gn_coll_wait_inside(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!c->in_flight)
		return GN_OK;
	if (c->shared && begin(c))
		spin_shared(c);
	if (!gn_coll_is_complete(c))
		status = wait_on(c, err);
	/* a library ends what the device still does */
	if (status && c->library && c->begun)
		advance(c);
	if (status)
		return status;
	if (c->status)
		return diagnose(c, err);
	leave_active(c);
	return GN_OK;
}

enum gn_status gn_coll_wait(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(c->comm);
	status = gn_coll_wait_inside(c, err);
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
		end_record(c);
	}
	gn_coll_end_turn(c);
	/* preparing may have failed before it was there */
	if (c->ops)
		c->ops->free(c);
	if (c->in_flight)
		leave_active(c);
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
