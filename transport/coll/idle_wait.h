/* Giving the processor away while waiting for others, until one of them has done something. Private to coll.c and progress.c.
 *
 * Messages announce themselves through the fabric's descriptor, neighbours who write into shared memory through a bell
 * (node.h). While both are awaited the bell is looked at by a clock.
 *
 * sched_yield() does not do it: to the scheduler one that yields in a loop is a process like any other, and may go on for the
 * rest of its slice of milliseconds while the one that it waits for stands by.
 */
#ifndef GN_TRANSPORT_COLL_IDLE_WAIT_H
#define GN_TRANSPORT_COLL_IDLE_WAIT_H

#include "transport/coll/coll.h"

#define GN_IDLE_WAIT_UNTIL_WOKEN UINT64_MAX

struct gn_idle_wait {
	struct gn_shm *node; /* whose bell may be sounded; NULL: none */
	uint32_t bell;
	int fd; /* -1: none */
	uint64_t limit_ns; /* 0: none */
};

/* To be called inside the communicator. Returns zero when something has moved meanwhile, or might, so that there is no reason
 * to rest; else gn_idle_wait_sleep() has to follow. */
int gn_idle_wait_begin(struct gn_comm *c, struct gn_idle_wait *r);
/* Not longer than limit_ns, and only until wake_fd is readable (-1: none) or gn_idle_wait_disturb(). */
void gn_idle_wait_sleep(struct gn_idle_wait *r, uint64_t limit_ns, int wake_fd);
/* From another thread of this process: ends the sleep of whoever waits for the bell. */
void gn_idle_wait_disturb(const struct gn_comm *c);

#endif
