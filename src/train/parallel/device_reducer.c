#include "src/train/parallel/device_reducer.h"

#include "src/base/clock.h"
#include "src/train/plan/gpu_memory.h"
#include "transport/coll/agree.h"

#include <sched.h>

static void leave(void *context, int param, void *event)
{
	struct gn_device_reducer *s = context;

	gn_reducer_after(s->exchange, event);
	gn_reducer_ready(s->exchange, param);
}

static int cuts(void *context, int param)
{
	return gn_reducer_ends_bucket(((struct gn_device_reducer *)context)->exchange, param);
}

void gn_device_reducer_join(struct gn_device_reducer *s, struct gn_plan_update *update)
{
	update->ranks = gn_comm_size(s->comm);
	update->ready = leave;
	update->cuts = cuts;
	update->context = s;
}

enum gn_status gn_device_reducer_open(struct gn_device_reducer *s, const char *how, struct gn_plan *plan,
				      const struct gn_model *model, const struct gn_reducer_config *form, struct gn_log *log,
				      struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (gn_comm_size(s->comm) == 1)
		return GN_OK;
	s->plan = plan;
	if (!s->carrier)
		status = gn_gpu_carrier_create(s->comm, how, gn_plan_gpu(plan), log, &s->carrier, err);
	if (status)
		return status;
	status = gn_reducer_create_on(s->carrier, model, gn_plan_sums(plan), gn_model_buffer_elements(model), form, &s->exchange,
				      err);
	return gn_agree_status(s->comm, status, err);
}

void gn_device_reducer_close(struct gn_device_reducer *s)
{
	gn_reducer_destroy(s->exchange);
	s->exchange = NULL;
	s->plan = NULL;
}

void gn_device_reducer_release(struct gn_device_reducer *s)
{
	gn_device_reducer_close(s);
	gn_coll_backend_destroy(s->carrier);
	s->carrier = NULL;
}

void gn_device_reducer_begin(struct gn_device_reducer *s)
{
	if (s->exchange)
		gn_reducer_begin(s->exchange);
}

void gn_device_reducer_leave(struct gn_device_reducer *s)
{
	if (s->exchange)
		gn_reducer_poll(s->exchange);
}

enum gn_status gn_device_reducer_finish(struct gn_device_reducer *s, uint64_t *exposed_ns, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(s->comm);
	enum gn_status status = GN_OK;
	int done = 0;

	*exposed_ns = 0;
	if (!s->exchange)
		return GN_OK;
	status = gn_plan_went_back(s->plan, &done, err);
	while (!status && !done && !gn_world_check(world, NULL)) {
		gn_reducer_poll(s->exchange);
		sched_yield();
		status = gn_plan_went_back(s->plan, &done, err);
	}
	s->through_ns = gn_clock_ns();
	/* it knows best why, when the world is no more */
	if (!status)
		status = gn_reducer_wait(s->exchange, err);
	if (!status && !done)
		status = gn_world_check(world, err);
	*exposed_ns = gn_clock_ns() - s->through_ns;
	return status ? status : gn_plan_apply(s->plan, err);
}
