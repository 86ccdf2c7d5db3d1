/* The end of a run that cannot complete, because a rank of its group is lost, while other groups go on: no message may touch the
 * run's buffers afterwards, and none that UCX still holds may lead to freed memory. */
#include "transport/coll/exec_internal.h"

#include "src/base/clock.h"

#include <sched.h>

/* For messages that no rank waits for any more and that UCX cannot cancel: sends by rendezvous that the receiver has not matched.
 * The receiver has cancelled, too, or does before it makes progress again. */
#define UNMATCHED_NS 300000000u
/* For messages that are partly through, to or from a rank that is alive. */
#define PARTIAL_NS 5000000000u

void gn_exec_cancel(struct gn_exec *e, const struct gn_err *why)
{
	gn_exec_fail(e, why->status, why);
	e->cancelled_ns = gn_clock_ns();
	for (size_t i = 0; i < e->step_count; i++)
		if (e->states[i].request.active && e->steps[i].op != GN_STEP_SEND)
			gn_ucx_cancel(e->ucx, &e->states[i].request);
}

/* How many messages UCX still holds; of them, how many will complete when a living peer makes progress. */
static size_t count_active(const struct gn_exec *e, size_t *partial)
{
	size_t count = 0;

	*partial = 0;
	for (size_t i = 0; i < e->step_count; i++) {
		int peer, sends = e->steps[i].op == GN_STEP_SEND;

		if (!e->states[i].request.active)
			continue;
		count++;
		peer = gn_exec_world_rank(e, e->steps[i].peer);
		*partial += !gn_world_is_lost(e->world, peer) && (!sends || gn_ucx_sends_eagerly(e->ucx, peer));
	}
	return count;
}

int gn_exec_release_messages(struct gn_exec *e)
{
	size_t partial, left;
	uint64_t waited;

	if (!e->cancelled_ns)
		e->cancelled_ns = gn_clock_ns();
	while ((left = count_active(e, &partial))) {
		waited = gn_clock_ns() - e->cancelled_ns;
		if (waited > (partial ? PARTIAL_NS : UNMATCHED_NS))
			break;
		if (!gn_ucx_progress(e->ucx))
			sched_yield();
	}
	if (partial)
		return 0;
	for (size_t i = 0; left && i < e->step_count; i++)
		if (e->states[i].request.active)
			gn_ucx_disown(e->ucx, &e->states[i].request);
	if (left && gn_ucx_keep(e->ucx, e->states))
		e->states = NULL;
	return !left || !e->states;
}
