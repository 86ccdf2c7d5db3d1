#include "transport/shm/shm_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static void signal_wakeup(struct gn_shm_wakeup *b)
{
	atomic_fetch_add(&b->state, 1);
	syscall(SYS_futex, &b->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t gn_shm_wakeup_begin(struct gn_shm *n)
{
	struct gn_shm_wakeup *own = n->wakeups[n->local_rank];
	uint32_t state = atomic_load(&own->state);

	atomic_fetch_add(&own->waiting, 1);
	atomic_fetch_add(n->waiters, 1);
	return state;
}

void gn_shm_wakeup_end(struct gn_shm *n)
{
	atomic_fetch_sub(n->waiters, 1);
	atomic_fetch_sub(&n->wakeups[n->local_rank]->waiting, 1);
}

void gn_shm_wakeup_wait(struct gn_shm *n, uint32_t state, const struct timespec *limit)
{
	syscall(SYS_futex, &n->wakeups[n->local_rank]->state, FUTEX_WAIT, state, limit, NULL, 0);
}

void gn_shm_wake(struct gn_shm *n, int local)
{
	int first = local < 0 ? 0 : local, end = local < 0 ? n->local_size : local + 1;

	for (int i = first; i < end; i++)
		if (i != n->local_rank && atomic_load_explicit(&n->wakeups[i]->waiting, memory_order_relaxed))
			signal_wakeup(n->wakeups[i]);
}

void gn_shm_wake_self(struct gn_shm *n)
{
	signal_wakeup(n->wakeups[n->local_rank]);
}
