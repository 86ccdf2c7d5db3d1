#include "src/base/clock.h"

#include <time.h>

uint64_t gn_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double gn_clock_unix_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double gn_clock_s(void)
{
	return (double)gn_clock_ns() * 1e-9;
}

double gn_clock_thread_cpu_s(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

void gn_clock_sleep_ns(uint64_t ns)
{
	const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&pause, NULL);
}
