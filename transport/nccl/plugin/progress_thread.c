/* A thread that takes an engine's turns while nobody else does.
 *
 * NCCL's proxy sleeps when all it asked for is done. Over TCP that is too early: UCX calls a message sent as soon as its last
 * part lies in its own queue, which leaves when the socket has room and somebody takes a turn; and UCX's flush, which would
 * tell, wants the receiver to take turns, too, who may sleep as well. So engines with a link over TCP have this thread. It
 * looks every 2 ms, takes turns only when none was taken since it last looked, and looks up to 32 ms apart when they move
 * nothing. Other transports hand what is done to hardware or to the receiver's memory, and have none.
 *
 * It ends with the context, so that the library may go then; connections that outlive it do without.
 *
 * While GPU memory is under way it does nothing: UCX's copies there want a thread with a CUDA context, which is NCCL's.
 */
#include "transport/nccl/plugin/worker.h"

#include "src/base/clock.h"
#include "src/base/thread.h"

#include <stdlib.h>
#include <time.h>

#define SHORT_NS 2000000u
#define LONG_NS 32000000u
/* Before others get the lock. */
#define TURNS 16

struct gn_progress_thread {
	struct gn_worker *engine;
	pthread_t thread;
	pthread_mutex_t lock; /* of stop */
	pthread_cond_t wake;
	int stop;
};

/* Did they move anything? */
static int take_turns(struct gn_worker *e)
{
	unsigned moved = 0;

	for (int i = 0; i < TURNS; i++)
		moved += gn_worker_progress(e);
	return moved > 0;
}

/* Is the engine in use, or was there something to do? */
static int look_after(struct gn_worker *e, unsigned *seen)
{
	int busy;

	if (pthread_mutex_trylock(&e->lock))
		return 1;
	busy = e->turns != *seen;
	if (!busy && !(e->gpu_memory && e->active))
		busy = take_turns(e);
	*seen = e->turns;
	pthread_mutex_unlock(&e->lock);
	return busy;
}

/* Lock held but while it waits. */
static void rest(struct gn_progress_thread *k, uint64_t ns)
{
	uint64_t until = gn_clock_ns() + ns;
	struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&k->wake, &k->lock, &t);
}

static void *keep(void *argument)
{
	struct gn_progress_thread *k = argument;
	uint64_t period_ns = SHORT_NS;
	unsigned seen = 0;

	pthread_setname_np(pthread_self(), "gannet-keeper");
	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		rest(k, period_ns);
		pthread_mutex_unlock(&k->lock);
		if (look_after(k->engine, &seen))
			period_ns = SHORT_NS;
		else if (period_ns < LONG_NS)
			period_ns *= 2;
		pthread_mutex_lock(&k->lock);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

static void release(struct gn_progress_thread *k)
{
	pthread_cond_destroy(&k->wake);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

enum gn_status gn_progress_thread_start(struct gn_worker *e, struct gn_err *err)
{
	pthread_condattr_t clock;
	struct gn_progress_thread *k;
	int rc;

	if (atomic_load(&e->keeper))
		return GN_OK;
	k = calloc(1, sizeof *k);
	if (!k)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread");
	k->engine = e;
	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&k->wake, &clock);
	pthread_condattr_destroy(&clock);
	rc = gn_thread_start(&k->thread, keep, k);
	if (!rc) {
		atomic_store(&e->keeper, k);
		return GN_OK;
	}
	release(k);
	return gn_err_errno(err, rc, "cannot start a thread that sends the ends of messages while NCCL sleeps (see ulimit -u)");
}

void gn_progress_thread_stop(struct gn_worker *e)
{
	struct gn_progress_thread *k = atomic_exchange(&e->keeper, NULL);

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->stop = 1;
	pthread_cond_signal(&k->wake);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	release(k);
}
