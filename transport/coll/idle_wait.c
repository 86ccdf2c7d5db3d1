#include "transport/coll/comm_internal.h"

#include <poll.h>
#include <time.h>

/* How often shared (or GPU) memory is polled while messages are awaited, too. */
#define BOTH_NS 100000u
/* And when it alone is: a wakeup may be missed (shm.h). */
#define MEMORY_NS 5000000u

int gn_idle_wait_begin(struct gn_comm *c, struct gn_idle_wait *r)
{
	int by_memory, by_message;

	*r = (struct gn_idle_wait){.fd = -1};
	/* a completed operation may have sends queued in UCX */
	if (!gn_comm_awaits(c, &by_memory, &by_message))
		by_message = 1;
	if (by_memory && c->root->shm) {
		r->shm = c->root->shm;
		r->wakeup_state = gn_shm_wakeup_begin(c->root->shm);
		/* writes before the announcement cause no wakeup: look once more */
		if (gn_comm_progress(c)) {
			gn_shm_wakeup_end(c->root->shm);
			r->shm = NULL;
			return 0;
		}
	}
	if (by_message && gn_ucx_arm(c->ucx))
		r->fd = gn_ucx_event_fd(c->ucx);
	else if (by_message && !by_memory)
		return 0;
	r->limit_ns = by_memory && by_message ? BOTH_NS : by_memory ? MEMORY_NS : UINT64_MAX;
	return 1;
}

void gn_idle_wait_sleep(struct gn_idle_wait *r, uint64_t limit_ns, int wake_fd)
{
	struct pollfd fds[2] = {{.fd = r->fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
	struct timespec limit;

	if (r->limit_ns && limit_ns > r->limit_ns)
		limit_ns = r->limit_ns;
	limit = (struct timespec){(time_t)(limit_ns / 1000000000u), (long)(limit_ns % 1000000000u)};
	if (r->shm && r->fd < 0)
		gn_shm_wakeup_wait(r->shm, r->wakeup_state, &limit);
	else
		ppoll(fds, 2, limit_ns == GN_IDLE_WAIT_UNTIL_WOKEN ? NULL : &limit, NULL);
	if (r->shm)
		gn_shm_wakeup_end(r->shm);
}

void gn_idle_wait_interrupt(const struct gn_comm *c)
{
	if (c->root->shm)
		gn_shm_wake_self(c->root->shm);
}

int gn_comm_idle(struct gn_comm *c, const atomic_int *woken, int wake_fd, uint64_t limit_ns)
{
	struct gn_idle_wait wait;

	/* progress for one operation completes others */
	for (const struct gn_coll *op = c->root->active; op; op = op->next_active)
		if (gn_coll_is_complete(op) || op->status)
			return 0;
	if (!gn_idle_wait_begin(c, &wait))
		return 0;
	/* after the state of the wakeup was read, so that an interrupt before this is seen by one or the other */
	gn_idle_wait_sleep(&wait, atomic_load(woken) ? 1 : limit_ns, wake_fd);
	return 1;
}

void gn_comm_interrupt(const struct gn_comm *c)
{
	gn_idle_wait_interrupt(c);
}
