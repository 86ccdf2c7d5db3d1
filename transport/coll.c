#include "transport/coll.h"

#include "src/base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A broken endpoint alone does not say who died first; the watch does, within its limit and a little more. */
#define VERDICT_NS 7000000000u
/* Ranks that disagree are asked about it after a second's wait. */
#define MISMATCH_NS 4000000000u
#define CHECK_NS 2000000u
#define NOTE_NS 200000000u
/* Looks at neighbours' memory before turning to the network: long when nobody else needs the processor. */
#define SPINS 20000
#define SPINS_CROWDED 64

static void fail(struct gn_coll *c, enum gn_status status, const struct gn_err *why)
{
	if (c->status)
		return;
	c->status = status;
	c->why = *why;
}

/* The result where it belongs, in the state it belongs in. */
static void finish(struct gn_coll *c)
{
	size_t bytes = c->result_count * gn_dtype_bytes(c->args.type);

	if (c->result_from)
		memcpy(c->result, c->result_from, bytes);
	if (c->divide)
		gn_reduce_divide(c->args.type, c->result, c->result_count, c->divide);
	c->complete = 1;
	gn_recorder_done(c->comm->recorder, c->record);
}

static void advance_shared(struct gn_coll *c)
{
	struct gn_err why;
	int done = 0;
	enum gn_status status = gn_node_test(c->shared, &done, &why);

	if (status)
		fail(c, status, &why);
	else if (done)
		finish(c);
}

static int advance_exec(struct gn_coll *c)
{
	struct gn_err why;
	int did = gn_exec_advance(c->exec);
	enum gn_status status = gn_exec_check(c->exec, &why);

	if (status)
		fail(c, status, &why);
	else if (gn_exec_done(c->exec))
		finish(c);
	return did;
}

/* Returns non-zero when something happened. */
static unsigned progress_all(struct gn_comm *comm)
{
	unsigned events = gn_fabric_progress(comm->fabric);

	for (struct gn_coll *c = comm->active; c; c = c->next_active) {
		if (c->complete || c->status)
			continue;
		if (c->shared)
			advance_shared(c);
		else
			events += (unsigned)advance_exec(c);
	}
	return events;
}

void gn_coll_progress(void *comm)
{
	progress_all(comm);
}

/* The fast path: neighbours in shared memory answer within microseconds, so look there alone for a while. */
static void spin_shared(struct gn_coll *c)
{
	int limit = gn_node_crowded(c->comm->node) ? SPINS_CROWDED : SPINS;

	for (int i = 0; i < limit && !c->complete && !c->status; i++)
		advance_shared(c);
}

static void enter_active(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->active;

	/* first come, first served among equals */
	while (*at && (*at)->args.priority >= c->args.priority)
		at = &(*at)->next_active;
	c->next_active = *at;
	*at = c;
	c->in_flight = 1;
}

static void leave_active(struct gn_coll *c)
{
	struct gn_coll **at = &c->comm->active;

	while (*at && *at != c)
		at = &(*at)->next_active;
	if (*at)
		*at = c->next_active;
	c->in_flight = 0;
}

enum gn_status gn_coll_start(struct gn_coll *c, struct gn_err *err)
{
	if (c->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "%s was started again before it was complete",
				  gn_collective_name(c->args.what));
	if (c->comm->failed)
		return gn_err_set(err, GN_ERR_FAILED, "%s: the communicator has failed before",
				  gn_collective_name(c->args.what));
	c->sequence = c->comm->sequence++;
	c->complete = 0;
	enter_active(c);
	/* neighbours first: the record is written while they read */
	if (c->shared)
		gn_node_start(c->shared);
	c->record = gn_recorder_start(c->comm->recorder, &c->op);
	if (c->exec) {
		gn_exec_start(c->exec, c->sequence);
		advance_exec(c);
	} else if (!c->shared) {
		finish(c);
	}
	return GN_OK;
}

/* The watch knows who died first, and what all ranks started; a broken connection only knows its other end. */
static enum gn_status diagnose(struct gn_coll *c, struct gn_err *err)
{
	uint64_t started = gn_clock_ns(), until = started + (c->status == GN_ERR_MISMATCH ? MISMATCH_NS : VERDICT_NS);
	struct timespec pause = {0, 5000000};
	enum gn_status status = GN_OK;

	c->comm->failed = 1;
	while (!status && gn_clock_ns() < until) {
		gn_recorder_waiting(c->comm->recorder, 0);
		status = gn_world_check_wait(c->comm->world, started, err);
		if (!status)
			nanosleep(&pause, NULL);
	}
	if (status)
		return status;
	/* the others would wait for this rank, which does not go on */
	gn_world_give_up(c->comm->world, c->why.text);
	if (err)
		*err = c->why;
	return c->status;
}

/* What the flight recorder cannot see by itself; moved: whether anything has happened since the last call. */
static void note_wait(struct gn_coll *c, uint64_t now, int moved)
{
	struct gn_exec_wait wait = {.peer = -1};

	gn_recorder_waiting(c->comm->recorder, moved);
	if (now - c->comm->noted_ns < NOTE_NS)
		return;
	c->comm->noted_ns = now;
	if (c->shared)
		gn_node_waits_for(c->shared, &wait.peer);
	else if (c->exec)
		gn_exec_waits_for(c->exec, &wait);
	gn_recorder_waits_for(c->comm->recorder, c->record, wait.peer, wait.message);
}

/* Whether to go on waiting; called every few milliseconds at most. */
static enum gn_status look_around(struct gn_coll *c, uint64_t started, struct gn_err *err)
{
	enum gn_status status = gn_world_check_wait(c->comm->world, started, err);

	if (!status)
		status = gn_fabric_check(c->comm->fabric, VERDICT_NS, err);
	if (status)
		c->comm->failed = 1;
	return status;
}

enum gn_status gn_coll_test(struct gn_coll *c, int *is_done, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (c->in_flight) {
		progress_all(c->comm);
		if (c->status)
			return diagnose(c, err);
		status = gn_world_check(c->comm->world, err);
		c->comm->failed |= status != GN_OK;
		if (c->complete)
			leave_active(c);
	}
	if (!status)
		*is_done = !c->in_flight;
	return status;
}

static enum gn_status wait_on(struct gn_coll *c, struct gn_err *err)
{
	uint64_t started = 0, checked = 0, now;
	enum gn_status status;
	unsigned idle = 0;
	int moved = 0;

	while (!c->complete && !c->status) {
		if (progress_all(c->comm)) {
			idle = 0;
			moved = 1;
			continue;
		}
		if (++idle % 64)
			continue;
		/* more ranks than processors: let the one that we wait for run */
		sched_yield();
		now = gn_clock_ns();
		if (!started)
			started = now;
		if (now - checked < CHECK_NS)
			continue;
		checked = now;
		note_wait(c, now, moved);
		moved = 0;
		status = look_around(c, started, err);
		if (status)
			return status;
	}
	return GN_OK;
}

enum gn_status gn_coll_wait(struct gn_coll *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!c->in_flight)
		return GN_OK;
	if (c->shared)
		spin_shared(c);
	if (!c->complete)
		status = wait_on(c, err);
	if (status)
		return status;
	if (c->status)
		return diagnose(c, err);
	leave_active(c);
	return GN_OK;
}

void gn_coll_describe(const struct gn_coll *c, struct gn_coll_info *out)
{
	*out = c->info;
}

void gn_coll_free(struct gn_coll *c)
{
	if (!c)
		return;
	if (c->in_flight) {
		c->comm->failed = 1;
		/* messages may still be on their way into the buffers: only an abandoned fabric leaves them alone */
		if (c->exec)
			gn_fabric_abandon(c->comm->fabric);
		leave_active(c);
	}
	gn_node_op_free(c->shared);
	gn_exec_destroy(c->exec);
	free(c->work);
	free(c->block_first);
	free(c);
}
