/* How far apart two processors are: the round trip of a cache line between them, in nanoseconds, in so many trials with a pause
 * between them. A virtual machine's host moves processors while they pause: to one core (some 40 ns), to cores with a
 * common cache (100) or to others (500), and what ranks share in memory becomes that much slower.
 * usage: apart TRIALS */
#include "src/base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIPS 20000

static _Alignas(64) atomic_long asked;
static _Alignas(64) atomic_long answered;

static void bind_to(int n)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof all, &all))
		return;
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &all) && n-- == 0)
			CPU_SET(c, &one);
	sched_setaffinity(0, sizeof one, &one);
}

static void *answer(void *unused)
{
	bind_to(1);
	for (long k = 1;; k++) {
		while (atomic_load(&asked) < k)
			;
		atomic_store(&answered, k);
	}
	return unused;
}

int main(int argc, char **argv)
{
	int trials = argc > 1 ? atoi(argv[1]) : 1;
	struct timespec pause = {.tv_nsec = 50000000};
	pthread_t thread;
	long k = 0;

	if (pthread_create(&thread, NULL, answer, NULL))
		return 1;
	bind_to(0);
	for (int t = 0; t < trials; t++) {
		uint64_t before = gn_clock_ns();

		for (int i = 0; i < TRIPS; i++) {
			atomic_store(&asked, ++k);
			while (atomic_load(&answered) < k)
				;
		}
		printf("%.0f\n", (double)(gn_clock_ns() - before) / TRIPS);
		nanosleep(&pause, NULL);
	}
	return 0;
}
