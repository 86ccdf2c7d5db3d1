#include "src/train/parallel/device_reducer.h"

#include "src/base/clock.h"
#include "src/train/plan/gpu_memory.h"
#include "transport/coll/agree.h"

#include <sched.h>

static void leave(void *context, int param, void *event)
{
	struct gn_device_reducer *s = context;

	gn_reducer_after(s->reducer, event);
	gn_reducer_ready(s->reducer, param);
}

static int cuts(void *context, int param)
{
	return gn_reducer_ends_bucket(((struct gn_device_reducer *)context)->reducer, param);
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
	if (!s->backend)
		status = gn_gpu_carrier_create(s->comm, how, gn_plan_gpu(plan), log, &s->backend, err);
	if (status)
		return status;
	status = gn_reducer_create_on(s->backend, model, gn_plan_sums(plan), gn_model_buffer_elements(model), form, &s->reducer,
				      err);
	return gn_agree_status(s->comm, status, err);
}

void gn_device_reducer_close(struct gn_device_reducer *s)
{
	gn_reducer_destroy(s->reducer);
	s->reducer = NULL;
	s->plan = NULL;
}

void gn_device_reducer_release(struct gn_device_reducer *s)
{
	gn_device_reducer_close(s);
	gn_coll_backend_destroy(s->backend);
	s->backend = NULL;
}

void gn_device_reducer_begin(struct gn_device_reducer *s)
{
	if (s->reducer)
		gn_reducer_begin(s->reducer);
}

void gn_device_reducer_leave(struct gn_device_reducer *s)
{
	if (s->reducer)
		gn_reducer_poll(s->reducer);
}

enum gn_status gn_device_reducer_finish(struct gn_device_reducer *s, uint64_t *exposed_ns, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(s->comm);
	enum gn_status status = GN_OK;
	int done = 0;

	*exposed_ns = 0;
	if (!s->reducer)
		return GN_OK;
	status = gn_plan_went_back(s->plan, &done, err);
	while (!status && !done && !gn_world_check(world, NULL)) {
		gn_reducer_poll(s->reducer);
		sched_yield();
		status = gn_plan_went_back(s->plan, &done, err);
	}
	s->through_ns = gn_clock_ns();
	/* it knows best why, when the world is no more */
	if (!status)
		status = gn_reducer_wait(s->reducer, err);
	if (!status && !done)
		status = gn_world_check(world, err);
	*exposed_ns = gn_clock_ns() - s->through_ns;
	return status ? status : gn_plan_apply(s->plan, err);
}
