/* What a lost rank ends: the operations of the groups that it is in, and nothing else. */
#include "transport/coll/comm_internal.h"

#include "src/base/clock.h"
#include "transport/coll/exec_internal.h"

#include <sched.h>

/* The end of a run that cannot complete, because a rank of its group is lost, while other groups go on: no message may touch the
 * run's buffers afterwards, and none that UCX still holds may lead to freed memory. */

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

enum gn_status gn_comm_check(const struct gn_comm *c, uint64_t started_ns, struct gn_err *err)
{
	enum gn_status status;

	if (!c->group || c->ends_with_world)
		return started_ns ? gn_world_check_wait(c->world, started_ns, err) : gn_world_check(c->world, err);
	status = gn_world_check_ranks(c->world, c->group->ranks, c->size, started_ns, err);
	if (status == GN_ERR_PEER_LOST)
		gn_err_prefix(err, "group %s", c->group->name);
	return status;
}

void gn_comm_end_with_world(struct gn_comm *c)
{
	c->ends_with_world = 1;
}

int gn_comm_goes_on(const struct gn_comm *c)
{
	const int own = gn_world_rank(c->world);

	return c->root->independent && !c->root->broken && !gn_world_aborted(c->world) &&
	       !gn_world_check_ranks(c->world, &own, 1, 0, NULL);
}

static void end_coll(struct gn_coll *c)
{
	struct gn_err why;
	enum gn_status status = gn_comm_check(c->comm, 0, &why);

	if (!status)
		return;
	c->lost = 1;
	c->comm->failed = 1;
	gn_coll_fail(c, status, &why);
	if (c->exec && gn_comm_goes_on(c->comm))
		gn_exec_cancel(c->exec, &why);
}

void gn_comm_end_lost(struct gn_comm *root, unsigned losses)
{
	root->losses = losses;
	/* first what waits for them, then what is under way to them */
	for (struct gn_coll *c = root->active; c; c = c->next_active)
		if (!gn_coll_is_complete(c) && !c->status)
			end_coll(c);
	for (int r = 0; r < root->size && gn_comm_goes_on(root); r++)
		if (gn_world_is_lost(root->world, r))
			gn_ucx_drop(root->ucx, r);
}

void gn_comm_break(struct gn_comm *c)
{
	c->failed = c->root->broken = 1;
	gn_ucx_abandon(c->ucx);
}
