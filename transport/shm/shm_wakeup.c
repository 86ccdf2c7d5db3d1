#include "transport/shm/shm_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct gn_shm_bell *bell_of(const struct gn_shm *n, int local)
{
	return &gn_shm_control_of(n, local)->bell;
}

static void ring(struct gn_shm_bell *b)
{
	atomic_fetch_add(&b->state, 1);
	syscall(SYS_futex, &b->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t gn_shm_listen(struct gn_shm *n)
{
	struct gn_shm_bell *own = bell_of(n, n->local_rank);
	uint32_t state = atomic_load(&own->state);

	atomic_fetch_add(&own->listens, 1);
	atomic_fetch_add(&bell_of(n, 0)->listeners, 1);
	return state;
}

void gn_shm_listen_no_more(struct gn_shm *n)
{
	atomic_fetch_sub(&bell_of(n, 0)->listeners, 1);
	atomic_fetch_sub(&bell_of(n, n->local_rank)->listens, 1);
}

void gn_shm_await_bell(struct gn_shm *n, uint32_t state, const struct timespec *limit)
{
	syscall(SYS_futex, &bell_of(n, n->local_rank)->state, FUTEX_WAIT, state, limit, NULL, 0);
}

void gn_shm_ring(struct gn_shm *n, int local)
{
	int first = local < 0 ? 0 : local, end = local < 0 ? n->local_size : local + 1;

	for (int i = first; i < end; i++)
		if (i != n->local_rank && atomic_load_explicit(&bell_of(n, i)->listens, memory_order_relaxed))
			ring(bell_of(n, i));
}

void gn_shm_ring_own(struct gn_shm *n)
{
	ring(bell_of(n, n->local_rank));
}
