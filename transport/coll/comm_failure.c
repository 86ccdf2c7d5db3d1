/* What a lost rank ends: the operations of the groups that it is in, and nothing else. */
#include "transport/coll/comm_internal.h"

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
