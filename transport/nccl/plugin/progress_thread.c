/* A thread that progresses a worker while NCCL does not.
 *
 * NCCL's proxy thread sleeps when all its requests are complete. Over TCP that is too early: UCX completes a send once its last
 * part is in UCX's own queue, which is sent only when the socket has room and the worker is progressed; UCX's flush, which would
 * wait for that, needs the receiver to progress, too, which may sleep as well. So a worker with a link over TCP has this thread. It
 * checks the worker every 2 ms, progresses it only if no other thread has since the last check, and extends the interval to 32 ms
 * while nothing happens. Other transports pass completed sends to hardware or to the receiver's memory and need no thread.
 *
 * The thread ends with the context, so that the library may be unloaded then; connections that outlive the context have none.
 *
 * While operations on GPU memory are in progress the thread does nothing: UCX's copies need a thread with a CUDA context, which is
 * NCCL's.
 */
#include "transport/nccl/plugin/worker.h"

#include "src/base/clock.h"
#include "src/base/thread.h"

#include <stdlib.h>
#include <time.h>

#define SHORT_NS 2000000u
#define LONG_NS 32000000u
/* Progress calls before the lock is released. */
#define CALLS 16

struct gn_progress_thread {
	struct gn_worker *worker;
	pthread_t thread;
	pthread_mutex_t lock; /* of stop */
	pthread_cond_t wake;
	int stop;
};

/* Whether there was progress. */
static int progress(struct gn_worker *w)
{
	unsigned moved = 0;

	for (int i = 0; i < CALLS; i++)
		moved += gn_worker_progress(w);
	return moved > 0;
}

/* Progresses the worker unless another thread has. Returns whether the worker is in use. */
static int check_worker(struct gn_worker *w, unsigned *seen)
{
	int busy;

	if (pthread_mutex_trylock(&w->lock))
		return 1;
	busy = w->progress_calls != *seen;
	if (!busy && !(w->gpu_memory && w->active))
		busy = progress(w);
	*seen = w->progress_calls;
	pthread_mutex_unlock(&w->lock);
	return busy;
}

/* Lock held, released while it waits. */
static void wait_ns(struct gn_progress_thread *t, uint64_t ns)
{
	uint64_t until = gn_clock_ns() + ns;
	struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&t->wake, &t->lock, &deadline);
}

static void *run_thread(void *argument)
{
	struct gn_progress_thread *t = argument;
	uint64_t period_ns = SHORT_NS;
	unsigned seen = 0;

	pthread_setname_np(pthread_self(), "gannet-progress");
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		wait_ns(t, period_ns);
		pthread_mutex_unlock(&t->lock);
		if (check_worker(t->worker, &seen))
			period_ns = SHORT_NS;
		else if (period_ns < LONG_NS)
			period_ns *= 2;
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void release(struct gn_progress_thread *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

enum gn_status gn_progress_thread_start(struct gn_worker *w, struct gn_err *err)
{
	pthread_condattr_t clock;
	struct gn_progress_thread *t;
	int rc;

	if (atomic_load(&w->progress_thread))
		return GN_OK;
	t = calloc(1, sizeof *t);
	if (!t)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread");
	t->worker = w;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &clock);
	pthread_condattr_destroy(&clock);
	rc = gn_thread_start(&t->thread, run_thread, t);
	if (!rc) {
		atomic_store(&w->progress_thread, t);
		return GN_OK;
	}
	release(t);
	return gn_err_errno(err, rc, "cannot start the progress thread, which completes sends while NCCL's proxy sleeps (see "
			    "ulimit -u)");
}

void gn_progress_thread_stop(struct gn_worker *w)
{
	struct gn_progress_thread *t = atomic_exchange(&w->progress_thread, NULL);

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stop = 1;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	release(t);
}
