/* Steps of several batches on a GPU: gradients of those before the last are summed aside, and join the last one's. */
#include "src/train/plan/plan_cuda.h"

static size_t params_bytes(const struct gn_plan *p)
{
	return gn_model_param_elements(p->model) * sizeof(float);
}

static int batches(const struct gn_plan_cuda *d)
{
	return d->update.batches > 1 ? d->update.batches : 1;
}

enum gn_status gn_plan_cuda_gather_begin(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	void *losses;
	enum gn_status status = gn_cuda_pinned_alloc(d->device, (size_t)batches(d) * sizeof *d->losses, &losses, err);

	if (status)
		return status;
	d->losses = losses;
	if (batches(d) > 1 && !(d->gathered = gn_cuda_arena_take(d->state, params_bytes(p))))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the sums of a step's gradients");
	return status;
}

void gn_plan_cuda_gather_end(struct gn_plan_cuda *d)
{
	if (d->losses)
		gn_cuda_pinned_free(d->device, d->losses);
	d->losses = NULL;
	d->gathered = NULL;
	d->batch = 0;
}

enum gn_status gn_plan_cuda_begin_batch(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t buffers = gn_model_buffer_elements(p->model) * sizeof(float);
	enum gn_status status = gn_plan_cuda_take(p, err);

	if (!status)
		status = gn_cuda_ops_set_step(d->ops, number, err);
	if (!status && d->batch == 0)
		status = gn_cuda_copy(d->stream, d->kept_buffers, p->bound.buffers, buffers, err);
	if (!status && d->batch == 0 && d->gathered)
		status = gn_cuda_fill(d->stream, d->gathered, 0, params_bytes(p), err);
	return status;
}

enum gn_status gn_plan_cuda_gather(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status;

	if (!d->resident || d->batch + 1 >= batches(d))
		return gn_err_set(err, GN_ERR_USAGE, "a step of %d batches gathers %d", batches(d), batches(d) - 1);
	status = gn_plan_cuda_begin_batch(p, number, err);
	if (!status)
		status = gn_plan_cuda_run_gathering(p, number, err);
	if (!status)
		status = gn_cuda_copy(d->stream, &d->losses[d->batch++], d->loss, sizeof *d->loss, err);
	return status;
}

enum gn_status gn_plan_cuda_put_aside(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	return gn_cuda_add(d->stream, GN_CUDA_F32, d->gathered, p->bound.grads, 0, d->gathered, gn_model_param_elements(p->model), err);
}

enum gn_status gn_plan_cuda_join(struct gn_plan *p, size_t offset, size_t count, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	float *to = p->bound.grads + offset;

	return d->gathered ? gn_cuda_add(d->stream, GN_CUDA_F32, to, d->gathered + offset, 0, to, count, err) : GN_OK;
}
