/* A clock that a test of limits of time puts forward, instead of waiting: stands for src/base/clock.c in the program of its only
 * source that includes it. Besides what it is put forward by, it runs as the real one does. */
#ifndef GN_TESTS_TRANSPORT_MADE_UP_CLOCK_H
#define GN_TESTS_TRANSPORT_MADE_UP_CLOCK_H

#include "src/base/clock.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic uint64_t clock_ahead_ns;

uint64_t gn_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + atomic_load(&clock_ahead_ns);
}

double gn_clock_s(void)
{
	return (double)gn_clock_ns() * 1e-9;
}

double gn_clock_thread_cpu_s(void)
{
	return gn_clock_s();
}

void gn_clock_sleep_ns(uint64_t ns)
{
	const struct timespec pause = {0, (long)ns};

	nanosleep(&pause, NULL);
}

/* Puts it forward by ms. */
static inline void pass_ms(uint64_t ms)
{
	atomic_fetch_add(&clock_ahead_ns, ms * 1000000);
}

#endif
