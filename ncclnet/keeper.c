#include "ncclnet/keeper.h"

#include "src/base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORT_NS 2000000u
#define LONG_NS 32000000u
/* Before others get the lock. */
#define TURNS 16

struct gn_keeper {
	pthread_t thread;
	pthread_cond_t wake;
	int stop;
};

/* Did they move anything? */
static int take_turns(struct gn_engine *e)
{
	unsigned moved = 0;

	for (int i = 0; i < TURNS; i++)
		moved += gn_engine_progress(e);
	return moved > 0;
}

/* Lock held but while it waits. */
static void rest(struct gn_keeper *k, pthread_mutex_t *lock, uint64_t ns)
{
	uint64_t until = gn_clock_ns() + ns;
	struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&k->wake, lock, &t);
}

static void *keep(void *argument)
{
	struct gn_engine *e = argument;
	struct gn_keeper *k = e->keeper;
	uint64_t period_ns = SHORT_NS;
	unsigned seen;

	pthread_mutex_lock(&e->lock);
	while (!k->stop) {
		seen = e->turns;
		rest(k, &e->lock, period_ns);
		if (k->stop || (e->gpu_memory && e->active))
			continue;
		if (e->turns != seen || take_turns(e))
			period_ns = SHORT_NS;
		else if (period_ns < LONG_NS)
			period_ns *= 2;
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

/* Signals are the program's. */
static int start_thread(struct gn_engine *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&e->keeper->thread, NULL, keep, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

enum gn_status gn_keeper_start(struct gn_engine *e, struct gn_err *err)
{
	pthread_condattr_t clock;
	int rc;

	if (e->keeper)
		return GN_OK;
	e->keeper = calloc(1, sizeof *e->keeper);
	if (!e->keeper)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread");
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&e->keeper->wake, &clock);
	pthread_condattr_destroy(&clock);
	rc = start_thread(e);
	if (!rc)
		return GN_OK;
	pthread_cond_destroy(&e->keeper->wake);
	free(e->keeper);
	e->keeper = NULL;
	return gn_err_set(err, GN_ERR_FAILED, "no thread to be had: %s", strerror(rc));
}

void gn_keeper_stop(struct gn_engine *e)
{
	struct gn_keeper *k;

	pthread_mutex_lock(&e->lock);
	k = e->keeper;
	if (k) {
		k->stop = 1;
		pthread_cond_signal(&k->wake);
	}
	pthread_mutex_unlock(&e->lock);
	if (!k)
		return;
	pthread_join(k->thread, NULL);
	pthread_cond_destroy(&k->wake);
	free(k);
	e->keeper = NULL;
}
