#include "transport/coll/comm_internal.h"

#include "src/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* When the fabric cannot be armed: it has sends in its queue that only looking moves. */
#define NAP_MIN_NS 20000u
#define NAP_MAX_NS 1000000u
/* Nothing should be missed while asleep; if it is, it costs this much and not the job. */
#define REST_NS 5000000u

enum { AWAKE, BY_FD, BY_BELL };

struct gn_comm_progress {
	struct gn_comm *comm;
	pthread_t thread;
	int wake;
	pthread_mutex_t lock; /* held by whoever works on the communicator */
	/* Each side sets its own and then looks at the other's, in an order that all agree on: of a program that leaves and a
	 * thread that lies down, one sees the other. */
	atomic_int program; /* is inside, or wants to be */
	atomic_int asleep;  /* the thread is, and what wakes it */
	atomic_int stop;
};

/* What the thread does next. */
struct pause {
	uint64_t limit_ns; /* 0: it goes on */
	struct gn_idle_wait rest;
};

static void wake(struct gn_comm_progress *p)
{
	uint64_t one = 1;

	switch (atomic_exchange(&p->asleep, AWAKE)) {
	case BY_BELL:
		gn_idle_wait_disturb(p->comm);
		break;
	case BY_FD:
		/* cannot fail but by a full counter, and then the thread is awake */
		if (write(p->wake, &one, sizeof one) < 0)
			return;
	}
}

static void sleep_for(struct gn_comm_progress *p, struct pause *pause)
{
	uint64_t count;

	gn_idle_wait_sleep(&pause->rest, pause->limit_ns, p->wake);
	atomic_store(&p->asleep, AWAKE);
	if (read(p->wake, &count, sizeof count) < 0)
		return;
}

/* One look at everything in flight. Returns what to do until the next. */
static struct pause work(struct gn_comm_progress *p, uint64_t *nap_ns)
{
	struct gn_comm *c = p->comm;
	struct pause pause = {0, {.fd = -1}};
	int by_memory, by_message, events;

	pthread_mutex_lock(&p->lock);
	events = gn_comm_progress(c) != 0;
	if (gn_comm_moved(c, events))
		gn_recorder_moved(c->recorder);
	if (events) {
		*nap_ns = NAP_MIN_NS;
	} else if (gn_idle_wait_begin(c, &pause.rest)) {
		pause.limit_ns = gn_comm_awaits(c, &by_memory, &by_message) ? REST_NS : GN_IDLE_WAIT_UNTIL_WOKEN;
		*nap_ns = NAP_MIN_NS;
	} else {
		pause.limit_ns = *nap_ns;
		*nap_ns = *nap_ns < NAP_MAX_NS / 2 ? *nap_ns * 2 : NAP_MAX_NS;
	}
	/* before anything new can be started */
	if (pause.limit_ns)
		atomic_store(&p->asleep, pause.rest.node && pause.rest.fd < 0 ? BY_BELL : BY_FD);
	pthread_mutex_unlock(&p->lock);
	return pause;
}

static void *run(void *argument)
{
	struct pause until_woken = {GN_IDLE_WAIT_UNTIL_WOKEN, {.fd = -1}};
	struct gn_comm_progress *p = argument;
	uint64_t nap_ns = NAP_MIN_NS;

	/* naps as short as they are meant to be */
	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_setname_np(pthread_self(), "gannet-progress");
	while (!atomic_load(&p->stop)) {
		struct pause pause;

		if (atomic_load(&p->program)) {
			atomic_store(&p->asleep, BY_FD);
			if (atomic_load(&p->program) && !atomic_load(&p->stop))
				sleep_for(p, &until_woken);
			continue;
		}
		pause = work(p, &nap_ns);
		if (!pause.limit_ns)
			continue;
		/* what has begun has to end */
		if (atomic_load(&p->stop))
			pause.limit_ns = 1;
		sleep_for(p, &pause);
	}
	return NULL;
}

static enum gn_status start(struct gn_comm_progress *p, struct gn_err *err)
{
	int failure = gn_thread_start(&p->thread, run, p);

	return failure ? gn_err_errno(err, failure, "cannot start a thread for progress (see ulimit -u)") : GN_OK;
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
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for progress");
	p->comm = c;
	pthread_mutex_init(&p->lock, NULL);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake < 0)
		status = gn_err_errno(err, errno, "cannot start a thread for progress");
	if (!status)
		status = start(p, err);
	if (status) {
		release(p);
		return status;
	}
	*out = p;
	return GN_OK;
}

void gn_comm_progress_destroy(struct gn_comm_progress *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, 1);
	wake(p);
	pthread_join(p->thread, NULL);
	release(p);
}

void gn_comm_progress_take(struct gn_comm_progress *p)
{
	atomic_store(&p->program, 1);
	pthread_mutex_lock(&p->lock);
}

void gn_comm_progress_give(struct gn_comm_progress *p)
{
	int by_memory, by_message, left;

	left = gn_comm_awaits(p->comm, &by_memory, &by_message) || gn_ucx_may_queue(p->comm->fabric);
	pthread_mutex_unlock(&p->lock);
	atomic_store(&p->program, 0);
	if (left)
		wake(p);
}
