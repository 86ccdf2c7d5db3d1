#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
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
	gn_recorder_done(c->comm->recorder, c->record);
	atomic_store_explicit(&c->complete, 1, memory_order_release);
	atomic_store_explicit(&c->settled, 1, memory_order_release);
}

static void advance_shared(struct gn_coll *c)
{
	struct gn_err why;
	int done = 0;
	enum gn_status status = gn_shm_test(c->shared, &done, &why);

	if (status)
		gn_coll_fail(c, status, &why);
	else if (done)
		complete_coll(c);
}

static int advance_exec(struct gn_coll *c)
{
	struct gn_err why;
	int did = gn_exec_advance(c->exec);
	enum gn_status status = gn_exec_check(c->exec, &why);

	if (status)
		gn_coll_fail(c, status, &why);
	else if (gn_exec_done(c->exec))
		complete_coll(c);
	return did;
}

unsigned gn_comm_progress(struct gn_comm *comm)
{
	unsigned events, losses = gn_world_losses(comm->world);

	comm = comm->root;
	if (losses != comm->losses)
		gn_comm_end_lost(comm, losses);
	events = gn_ucx_progress(comm->ucx);
	for (struct gn_coll *c = comm->active; c; c = c->next_active) {
		if (gn_coll_is_complete(c) || c->status)
			continue;
		if (c->shared)
			advance_shared(c);
		else
			events += (unsigned)advance_exec(c);
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
		memory = c->shared != NULL;
		message = 0;
		if (c->exec)
			gn_exec_transports(c->exec, &memory, &message);
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
		advance_shared(c);
	for (int i = 0; i < spins && !is_settled(c); i++) {
		gn_clock_pause();
		advance_shared(c);
	}
	for (int i = 0; oversubscribed && i < YIELDS && !is_settled(c); i++) {
		sched_yield();
		advance_shared(c);
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

enum gn_status gn_coll_start_inside(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status;

	if (c->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "%s was started before its previous run was complete",
				  gn_collective_name(c->args.what));
	if (gn_world_losses(c->comm->world) && (status = gn_comm_check(c->comm, 0, err)))
		return status;
	if (c->comm->failed || c->comm->root->broken)
		return gn_err_set(err, GN_ERR_FAILED, "%s: the communicator has failed",
				  gn_collective_name(c->args.what));
	c->sequence = c->comm->sequence++;
	c->lost = 0;
	atomic_store_explicit(&c->complete, 0, memory_order_relaxed);
	atomic_store_explicit(&c->settled, 0, memory_order_relaxed);
	enter_active(c);
	/* start first, record then: other ranks read the input meanwhile */
	if (c->shared)
		gn_shm_start(c->shared);
	c->record = gn_recorder_start_in(c->comm->recorder, c->comm->group ? c->comm->group->number : 0, c->kind);
	if (c->exec) {
		gn_exec_start(c->exec, c->sequence);
		advance_exec(c);
	} else if (!c->shared) {
		complete_coll(c);
	}
	return GN_OK;
}

enum gn_status gn_coll_start(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(c->comm);
	status = gn_coll_start_inside(c, err);
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

/* Waits for the failure's reason: the heartbeat knows which rank died first and what all ranks started, a broken connection only its
 * other end. Without one, aborts the world and returns the operation's own error. */
static enum gn_status diagnose(struct gn_coll *c, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	uint64_t delay_ns = c->status == GN_ERR_MISMATCH ? MISMATCH_NS : gn_world_failure_reason_ns(c->comm->world);
	uint64_t until = started + (c->exec && gn_exec_failed_alone(c->exec) ? 0 : delay_ns);
	struct timespec pause = {0, 5000000};
	enum gn_status status = GN_OK;

	c->comm->failed = 1;
	if (c->lost) {
		end_record(c);
		if (err)
			*err = c->why;
		return c->status;
	}
	while (!status && gn_clock_ns() < until) {
		gn_recorder_waiting(c->comm->recorder, 0);
		status = gn_comm_check(c->comm, started, err);
		if (!status)
			nanosleep(&pause, NULL);
	}
	if (status)
		return status;
	/* other ranks would wait for this one */
	gn_world_abort(c->comm->world, c->why.text);
	if (err)
		*err = c->why;
	return c->status;
}

int gn_comm_moved(struct gn_comm *comm, int events)
{
	int moved = comm->root->unreported_events;

	comm->root->unreported_events = events;
	if (gn_ucx_is_disconnecting(comm->ucx))
		moved = comm->root->unreported_events = 0;
	return moved;
}

/* Tells the flight recorder that this rank waits, and, every RECORD_NS, for which. moved: there were events since the last call. */
static void record_wait(struct gn_coll *c, uint64_t now, int moved)
{
	struct gn_exec_wait wait = {.peer = -1, .rail = -1};

	gn_recorder_waiting(c->comm->recorder, gn_comm_moved(c->comm, moved));
	if (now - c->comm->root->noted_ns < RECORD_NS)
		return;
	c->comm->root->noted_ns = now;
	if (c->shared)
		gn_shm_waits_for(c->shared, &wait.peer);
	else if (c->exec)
		gn_exec_waits_for(c->exec, &wait);
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
static void yield_or_block(struct gn_comm *c, unsigned count)
{
	struct gn_idle_wait wait;

	if (c->oversubscribed && count > GN_YIELDS && gn_idle_wait_begin(c, &wait))
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
			yield_or_block(c->comm, idle / polls);
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
	if (c->shared)
		spin_shared(c);
	if (!gn_coll_is_complete(c))
		status = wait_on(c, err);
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

/* Returns 0 if UCX may still use the run's memory, or other ranks still wait for this one. */
static int release_messages(struct gn_coll *c)
{
	if (!gn_comm_goes_on(c->comm) || !gn_comm_check(c->comm, 1, NULL))
		return 0;
	if (!c->exec->cancelled_ns)
		gn_exec_cancel(c->exec, &c->why);
	return gn_exec_release_messages(c->exec);
}

void gn_coll_free_inside(struct gn_coll *c)
{
	if (c->in_flight) {
		c->comm->failed = 1;
		end_record(c);
		/* messages may still arrive in the buffers */
		if (c->exec && !release_messages(c))
			gn_comm_break(c->comm);
		leave_active(c);
	}
	gn_shm_op_free(c->shared);
	gn_exec_destroy(c->exec);
	free(c->work);
	free(c->block_first);
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
