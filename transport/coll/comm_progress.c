#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/coll/exec_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Polling interval while UCX's event descriptor cannot be armed because of queued sends; doubles from the first to the second
 * value. */
#define POLL_MIN_NS 20000u
#define POLL_MAX_NS 1000000u
/* The longest blocking wait with operations in flight: the delay if a wakeup is missed. */
#define IDLE_WAIT_NS 5000000u

enum { AWAKE, BY_FD, BY_WAKEUP };

struct gn_comm_progress {
	struct gn_comm *comm;
	pthread_t thread;
	int wake;	      /* eventfd */
	pthread_mutex_t lock; /* held while using the communicator */
	/* Each side writes its own and then reads the other's, sequentially consistent: when the program leaves while the thread is
	 * about to block, at least one of them sees the other. */
	atomic_int wanted;  /* the program is inside a call, or about to be */
	atomic_int blocked; /* what wakes the thread: AWAKE, BY_FD, BY_WAKEUP */
	atomic_int stop;
};

/* What the thread does next. */
struct pause {
	uint64_t limit_ns; /* 0: do not block */
	struct gn_idle_wait wait;
};

/* How often shared (or GPU) memory is polled while messages are awaited, too. */
#define BOTH_NS 100000u
/* And when it alone is: a wakeup may be missed (shm.h). */
#define MEMORY_NS 5000000u

int gn_idle_wait_begin(struct gn_comm *c, struct gn_idle_wait *r)
{
	int by_memory, by_message;

	*r = (struct gn_idle_wait){.fd = -1};
	/* a completed operation may have sends queued in UCX */
	if (!gn_comm_awaits(c, &by_memory, &by_message))
		by_message = 1;
	if (by_memory && c->root->shm) {
		r->shm = c->root->shm;
		r->wakeup_state = gn_shm_wakeup_begin(c->root->shm);
		/* writes before the announcement cause no wakeup: look once more */
		if (gn_comm_progress(c)) {
			gn_shm_wakeup_end(c->root->shm);
			r->shm = NULL;
			return 0;
		}
	}
	if (by_message && gn_ucx_arm(c->ucx))
		r->fd = gn_ucx_event_fd(c->ucx);
	else if (by_message && !by_memory)
		return 0;
	r->limit_ns = by_memory && by_message ? BOTH_NS : by_memory ? MEMORY_NS : UINT64_MAX;
	return 1;
}

void gn_idle_wait_sleep(struct gn_idle_wait *r, uint64_t limit_ns, int wake_fd)
{
	struct pollfd fds[2] = {{.fd = r->fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
	struct timespec limit;

	if (r->limit_ns && limit_ns > r->limit_ns)
		limit_ns = r->limit_ns;
	limit = (struct timespec){(time_t)(limit_ns / 1000000000u), (long)(limit_ns % 1000000000u)};
	if (r->shm && r->fd < 0)
		gn_shm_wakeup_wait(r->shm, r->wakeup_state, &limit);
	else
		ppoll(fds, 2, limit_ns == GN_IDLE_WAIT_UNTIL_WOKEN ? NULL : &limit, NULL);
	if (r->shm)
		gn_shm_wakeup_end(r->shm);
}

int gn_comm_idle(struct gn_comm *c, const atomic_int *woken, int wake_fd, uint64_t limit_ns)
{
	struct gn_idle_wait wait;

	/* progress for one operation completes others */
	for (const struct gn_coll *op = c->root->active; op; op = op->next_active)
		if (gn_coll_is_complete(op) || op->status)
			return 0;
	if (!gn_idle_wait_begin(c, &wait))
		return 0;
	/* after the state of the wakeup was read, so that an interrupt before this is seen by one or the other */
	gn_idle_wait_sleep(&wait, atomic_load(woken) ? 1 : limit_ns, wake_fd);
	return 1;
}

/* From another thread of this process: ends a wait for shared memory. */
static void idle_wait_interrupt(const struct gn_comm *c)
{
	if (c->root->shm)
		gn_shm_wake_self(c->root->shm);
}

void gn_comm_interrupt(const struct gn_comm *c)
{
	idle_wait_interrupt(c);
}

static void wake_thread(struct gn_comm_progress *p)
{
	uint64_t one = 1;

	switch (atomic_exchange(&p->blocked, AWAKE)) {
	case BY_WAKEUP:
		idle_wait_interrupt(p->comm);
		break;
	case BY_FD:
		/* fails only if the counter is full, and then the thread is awake */
		if (write(p->wake, &one, sizeof one) < 0)
			return;
	}
}

static void block_thread(struct gn_comm_progress *p, struct pause *pause)
{
	uint64_t count;

	gn_idle_wait_sleep(&pause->wait, pause->limit_ns, p->wake);
	atomic_store(&p->blocked, AWAKE);
	if (read(p->wake, &count, sizeof count) < 0)
		return;
}

/* Advances what is in flight once. Returns how long to block, and on what. */
static struct pause advance(struct gn_comm_progress *p, uint64_t *interval_ns)
{
	struct gn_comm *c = p->comm;
	struct pause pause = {0, {.fd = -1}};
	int by_memory, by_message, events;

	pthread_mutex_lock(&p->lock);
	events = gn_comm_progress(c) != 0;
	if (gn_comm_moved(c, events))
		gn_recorder_moved(c->recorder);
	if (events) {
		*interval_ns = POLL_MIN_NS;
	} else if (gn_idle_wait_begin(c, &pause.wait)) {
		pause.limit_ns = gn_comm_awaits(c, &by_memory, &by_message) ? IDLE_WAIT_NS : GN_IDLE_WAIT_UNTIL_WOKEN;
		*interval_ns = POLL_MIN_NS;
	} else {
		pause.limit_ns = *interval_ns;
		*interval_ns = *interval_ns < POLL_MAX_NS / 2 ? *interval_ns * 2 : POLL_MAX_NS;
	}
	/* before the lock is released, so that an operation started next wakes the thread */
	if (pause.limit_ns)
		atomic_store(&p->blocked, pause.wait.shm && pause.wait.fd < 0 ? BY_WAKEUP : BY_FD);
	pthread_mutex_unlock(&p->lock);
	return pause;
}

static void *progress_loop(void *argument)
{
	struct pause until_woken = {GN_IDLE_WAIT_UNTIL_WOKEN, {.fd = -1}};
	struct gn_comm_progress *p = argument;
	uint64_t interval_ns = POLL_MIN_NS;

	/* the default timer slack of 50 us is longer than the shortest interval */
	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_setname_np(pthread_self(), "gannet-progress");
	while (!atomic_load(&p->stop)) {
		struct pause pause;

		if (atomic_load(&p->wanted)) {
			atomic_store(&p->blocked, BY_FD);
			if (atomic_load(&p->wanted) && !atomic_load(&p->stop))
				block_thread(p, &until_woken);
			continue;
		}
		pause = advance(p, &interval_ns);
		if (!pause.limit_ns)
			continue;
		/* the wait has begun and has to be ended by a call, so make it short */
		if (atomic_load(&p->stop))
			pause.limit_ns = 1;
		block_thread(p, &pause);
	}
	return NULL;
}

static void release(struct gn_comm_progress *p)
{
	if (p->wake >= 0)
		close(p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

enum gn_status gn_comm_progress_create(struct gn_comm *c, struct gn_comm_progress **out, struct gn_err *err)
{
	struct gn_comm_progress *p = calloc(1, sizeof *p);
	enum gn_status status = GN_OK;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a progress thread");
	p->comm = c;
	pthread_mutex_init(&p->lock, NULL);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake < 0)
		status = gn_err_errno(err, errno, "cannot create an event descriptor for the progress thread");
	if (!status)
		status = gn_thread_create(&p->thread, progress_loop, p, "progress", err);
	if (status)
		release(p);
	else
		*out = p;
	return status;
}

void gn_comm_progress_destroy(struct gn_comm_progress *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, 1);
	wake_thread(p);
	pthread_join(p->thread, NULL);
	release(p);
}

void gn_comm_progress_lock(struct gn_comm_progress *p)
{
	atomic_store(&p->wanted, 1);
	pthread_mutex_lock(&p->lock);
}

void gn_comm_progress_unlock(struct gn_comm_progress *p)
{
	int by_memory, by_message, left;

	left = gn_comm_awaits(p->comm, &by_memory, &by_message) || gn_ucx_may_queue(p->comm->ucx);
	pthread_mutex_unlock(&p->lock);
	atomic_store(&p->wanted, 0);
	if (left)
		wake_thread(p);
}

/* What a lost rank ends: the operations of the groups that it is in, and nothing else. */

/* The end of a run that cannot complete, because a rank of its group is lost, while other groups go on: no message may touch the
 * run's buffers afterwards, and none that UCX still holds may lead to freed memory. */

/* For messages that no rank waits for any more and that UCX cannot cancel: sends by rendezvous that the receiver has not matched.
 * The receiver has cancelled, too, or does before it makes progress again. */
#define UNMATCHED_NS 300000000u
/* For messages that are partly through, to or from a rank that is alive. */
#define PARTIAL_NS 5000000000u

void gn_exec_cancel(struct gn_exec *e, const struct gn_err *why)
{
	gn_exec_fail(e, why->status, why);
	e->cancelled_ns = gn_clock_ns();
	for (size_t i = 0; i < e->step_count; i++)
		if (e->states[i].request.active && e->steps[i].op != GN_STEP_SEND)
			gn_ucx_cancel(e->ucx, &e->states[i].request);
}

/* How many messages UCX still holds; of them, how many will complete when a living peer makes progress. */
static size_t count_active(const struct gn_exec *e, size_t *partial)
{
	size_t count = 0;

	*partial = 0;
	for (size_t i = 0; i < e->step_count; i++) {
		int peer, sends = e->steps[i].op == GN_STEP_SEND;

		if (!e->states[i].request.active)
			continue;
		count++;
		peer = gn_exec_world_rank(e, e->steps[i].peer);
		*partial += !gn_world_is_lost(e->world, peer) && (!sends || gn_ucx_sends_eagerly(e->ucx, peer));
	}
	return count;
}

int gn_exec_release_messages(struct gn_exec *e)
{
	size_t partial, left;
	uint64_t waited;

	if (!e->cancelled_ns)
		e->cancelled_ns = gn_clock_ns();
	while ((left = count_active(e, &partial))) {
		waited = gn_clock_ns() - e->cancelled_ns;
		if (waited > (partial ? PARTIAL_NS : UNMATCHED_NS))
			break;
		if (!gn_ucx_progress(e->ucx))
			sched_yield();
	}
	if (partial)
		return 0;
	for (size_t i = 0; left && i < e->step_count; i++)
		if (e->states[i].request.active)
			gn_ucx_disown(e->ucx, &e->states[i].request);
	if (left && gn_ucx_keep(e->ucx, e->states))
		e->states = NULL;
	return !left || !e->states;
}

enum gn_status gn_comm_check(const struct gn_comm *c, uint64_t started_ns, struct gn_err *err)
{
	enum gn_status status;

	if (!c->group || c->ends_with_world)
		return started_ns ? gn_world_check_wait(c->world, started_ns, err) : gn_world_check(c->world, err);
	status = gn_world_check_ranks(c->world, c->group->ranks, c->size, started_ns, err);
	if (status == GN_ERR_PEER_LOST)
		gn_err_prefix(err, "group %s", c->group->name);
	return status;
}

void gn_comm_end_with_world(struct gn_comm *c)
{
	c->ends_with_world = 1;
}

int gn_comm_goes_on(const struct gn_comm *c)
{
	const int own = gn_world_rank(c->world);

	return c->root->independent && !c->root->broken && !gn_world_aborted(c->world) &&
	       !gn_world_check_ranks(c->world, &own, 1, 0, NULL);
}

static void end_coll(struct gn_coll *c)
{
	struct gn_err why;
	enum gn_status status = gn_comm_check(c->comm, 0, &why);

	if (!status)
		return;
	c->lost = 1;
	c->comm->failed = 1;
	gn_coll_fail(c, status, &why);
	if (c->exec && gn_comm_goes_on(c->comm))
		gn_exec_cancel(c->exec, &why);
}

void gn_comm_end_lost(struct gn_comm *root, unsigned losses)
{
	root->losses = losses;
	/* first what waits for them, then what is under way to them */
	for (struct gn_coll *c = root->active; c; c = c->next_active)
		if (!gn_coll_is_complete(c) && !c->status)
			end_coll(c);
	for (int r = 0; r < root->size && gn_comm_goes_on(root); r++)
		if (gn_world_is_lost(root->world, r))
			gn_ucx_drop(root->ucx, r);
}

void gn_comm_break(struct gn_comm *c)
{
	c->failed = c->root->broken = 1;
	gn_ucx_abandon(c->ucx);
}
