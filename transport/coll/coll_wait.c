/* Test and wait: what a caller does until an operation is complete, and how it learns of a failure. */
#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"
#include "transport/topology/affinity.h"

#include <sched.h>

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

static int is_settled(const struct gn_coll *c)
{
	return gn_coll_is_complete(c) || c->status;
}

static void test_shared(struct gn_coll *c)
{
	struct gn_err why;
	int done = 0;
	enum gn_status status = gn_shm_test(c->shared, &done, &why);

	if (status)
		gn_coll_fail(c, status, &why);
	else if (done)
		gn_coll_complete(c);
}

/* The fast path: other ranks answer in shared memory within microseconds, so poll that alone at first. */
static void spin_shared(struct gn_coll *c)
{
	int oversubscribed = c->comm->oversubscribed, spins = oversubscribed ? SPINS_OVERSUBSCRIBED : SPINS;

	if (!is_settled(c))
		test_shared(c);
	for (int i = 0; i < spins && !is_settled(c); i++) {
		gn_clock_pause();
		test_shared(c);
	}
	for (int i = 0; oversubscribed && i < YIELDS && !is_settled(c); i++) {
		sched_yield();
		test_shared(c);
	}
}

void gn_coll_end_record(struct gn_coll *c)
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
		gn_coll_end_record(c);
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
			gn_world_abort(c->comm->world, status, why.text);
		if (status && c->comm->group)
			gn_err_prefix(&why, "group %s", c->comm->group->name);
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
		gn_coll_leave_active(c);
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
	struct gn_idle_wait wait;

	if (on_device && count > DEVICE_POLLS)
		gn_clock_sleep_ns(DEVICE_PAUSE_NS);
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
	if (c->shared && gn_coll_begin(c))
		spin_shared(c);
	if (!gn_coll_is_complete(c))
		status = wait_on(c, err);
	/* a library ends what the device still does */
	if (status && c->library && c->begun)
		gn_coll_advance(c);
	if (status)
		return status;
	if (c->status)
		return diagnose(c, err);
	gn_coll_leave_active(c);
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
