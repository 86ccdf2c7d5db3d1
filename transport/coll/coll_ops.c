/* How operations run: schedules, the shared memory of a node, a library's. Staging is in staged.c. */
#include "transport/coll/coll_device_internal.h"
#include "transport/coll/comm_internal.h"

/* --- schedules --- */

static enum gn_status schedule_start(struct gn_coll *c, struct gn_err *err)
{
	(void)err;
	gn_exec_start(c->exec, c->sequence);
	return GN_OK;
}

static enum gn_status schedule_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	*moved = gn_exec_advance(c->exec);
	*done = gn_exec_done(c->exec);
	c->failed_alone = gn_exec_failed_alone(c->exec);
	return gn_exec_check(c->exec, err);
}

static void schedule_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	gn_exec_waits_for(c->exec, out);
}

static void schedule_transports(const struct gn_coll *c, int *by_memory, int *by_message)
{
	gn_exec_transports(c->exec, by_memory, by_message);
}

/* Returns 0 if UCX may still use the run's memory, or other ranks still wait for this one. */
static int release_messages(struct gn_coll *c)
{
	if (!gn_comm_goes_on(c->comm) || !gn_comm_check(c->comm, 1, NULL))
		return 0;
	if (!c->exec->cancelled_ns)
		gn_exec_cancel(c->exec, &c->why);
	return gn_exec_release_messages(c->exec);
}

static void schedule_free(struct gn_coll *c)
{
	/* messages may still arrive in the buffers */
	if (c->in_flight && !release_messages(c))
		gn_comm_break(c->comm);
	gn_exec_destroy(c->exec);
}

const struct gn_coll_ops gn_coll_by_schedule = {.start = schedule_start, .advance = schedule_advance, .waits_for = schedule_waits_for,
						.transports = schedule_transports, .free = schedule_free};
const struct gn_coll_ops gn_coll_direct = {.name = "ucx-direct", .start = schedule_start, .advance = schedule_advance,
					   .waits_for = schedule_waits_for, .transports = schedule_transports, .free = schedule_free};

/* --- shared memory of a node --- */

static enum gn_status shared_start(struct gn_coll *c, struct gn_err *err)
{
	(void)err;
	gn_shm_start(c->shared);
	return GN_OK;
}

static enum gn_status shared_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	(void)moved;
	return gn_shm_test(c->shared, done, err);
}

static void shared_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	gn_shm_waits_for(c->shared, &out->peer);
}

static void shared_transports(const struct gn_coll *c, int *by_memory, int *by_message)
{
	(void)c;
	*by_memory = 1;
	*by_message = 0;
}

static void shared_free(struct gn_coll *c)
{
	gn_shm_op_free(c->shared);
}

const struct gn_coll_ops gn_coll_by_shm = {.start = shared_start, .advance = shared_advance, .waits_for = shared_waits_for,
					   .transports = shared_transports, .free = shared_free};

/* --- a library's --- */

static enum gn_status library_start(struct gn_coll *c, struct gn_err *err)
{
	return c->library->backend->ops->start(c->library, c->before, err);
}

static enum gn_status library_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	(void)moved;
	return c->library->backend->ops->test(c->library, done, err);
}

static void library_free(struct gn_coll *c)
{
	c->library->backend->ops->free(c->library);
}

const struct gn_coll_ops gn_coll_by_library = {.takes_event = 1, .start = library_start, .advance = library_advance, .free = library_free};
