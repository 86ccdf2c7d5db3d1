/* A run that stays on its GPU: parameters, optimizer state and buffers live there, and a step is forward, loss, backward and
 * update without the host in between, but for batch norms that are summed over a group of ranks. */
#include "src/train/optim/ema.h"
#include "src/train/plan/plan_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Sums of squares are made by the kernel that sums channels: the array as rows of so many. */
enum { COLUMNS = 16 };

static size_t aligned(size_t bytes)
{
	return (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
}

static size_t params_bytes(const struct gn_plan *p)
{
	return gn_model_param_elements(p->model) * sizeof(float);
}

static size_t buffers_bytes(const struct gn_plan *p)
{
	return gn_model_buffer_elements(p->model) * sizeof(float);
}

void gn_plan_cuda_stay_release(struct gn_plan_cuda *d)
{
	/* a step that nobody waited for still writes where it was told to */
	if (d->stream)
		(void)gn_cuda_stream_wait(d->stream, NULL);
	gn_plan_cuda_drop_recordings(d);
	gn_plan_cuda_gather_end(d);
	gn_cuda_optim_destroy(d->optimizer);
	gn_cuda_arena_destroy(d->state);
	d->optimizer = NULL;
	d->state = NULL;
	d->resident = 0;
}

static enum gn_status take_state(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t rows = gn_model_param_elements(p->model) / COLUMNS;
	size_t scratch = gn_cuda_batch_norm_scratch_bytes(d->stream, rows, COLUMNS) + gn_cuda_batch_norm_scratch_bytes(d->stream, 1, COLUMNS);
	int slots = gn_optim_slots(d->update.rule->kind);
	int averages = d->update.average_params != NULL, sums = d->update.batches > 1;
	size_t wanted = (size_t)(slots + averages + sums) * aligned(params_bytes(p)) + (size_t)(1 + averages) * aligned(buffers_bytes(p) + 1) +
			aligned(scratch + 1) + aligned(sizeof d->outcome->sums) + aligned(sizeof *d->average_decay);
	enum gn_status status = gn_cuda_arena_create(d->device, wanted, &d->state, err);

	if (status)
		return gn_err_prefix(err, "state of the optimizer"), status;
	for (int k = 0; k < slots; k++)
		d->state_slots[k] = gn_cuda_arena_take(d->state, params_bytes(p));
	d->kept_buffers = gn_cuda_arena_take(d->state, buffers_bytes(p) + 1);
	d->average_params = averages ? gn_cuda_arena_take(d->state, params_bytes(p)) : NULL;
	d->average_buffers = averages ? gn_cuda_arena_take(d->state, buffers_bytes(p) + 1) : NULL;
	d->average_decay = gn_cuda_arena_take(d->state, sizeof *d->average_decay);
	d->sums.type = GN_CUDA_F32;
	d->sums.rows = rows;
	d->sums.channels = COLUMNS;
	d->sums.sums = gn_cuda_arena_take(d->state, sizeof d->outcome->sums);
	d->sums.scratch = gn_cuda_arena_take(d->state, scratch + 1);
	d->rest = d->sums;
	d->rest.rows = 1;
	d->rest.channels = (int)(gn_model_param_elements(p->model) % COLUMNS);
	d->rest.sums = d->sums.sums + 2 * COLUMNS;
	return d->sums.scratch ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the state of an optimizer");
}

static enum gn_status make_optimizer(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	int count = gn_model_param_count(p->model);
	struct gn_cuda_optim_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
	enum gn_status status;

	if (!tensors)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	for (int i = 0; i < count; i++) {
		const struct gn_param *param = gn_model_param(p->model, i);
		int weight = param->kind == GN_PARAM_WEIGHT;

		tensors[i] = (struct gn_cuda_optim_tensor){
			.params = p->bound.params + param->offset, .grads = p->bound.grads + param->offset, .count = param->count,
			.weight_decay = weight || d->update.decay_all ? d->update.weight_decay : 0, .adapt = weight,
		};
		for (int k = 0; k < gn_optim_slots(d->update.rule->kind); k++)
			tensors[i].slots[k] = d->state_slots[k] + param->offset;
	}
	status = gn_cuda_optim_create(d->stream, d->update.rule, GN_CUDA_F32, tensors, (size_t)count, &d->optimizer, err);
	free(tensors);
	return status;
}

enum gn_status gn_plan_cuda_reside(struct gn_plan *p, const struct gn_plan_update *update, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status;

	if (!p->options.training || p->options.no_memory)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "only a training plan stays on its device");
	gn_plan_cuda_stay_release(d);
	d->update = *update;
	d->launches = d->gathers = d->eager = 0;
	if (p->options.group)
		gn_plan_cuda_run_eagerly(p, "batch norms are summed on the host");
	status = take_state(p, err);
	if (!status)
		status = gn_plan_cuda_gather_begin(p, err);
	if (!status)
		status = make_optimizer(p, err);
	if (status)
		gn_plan_cuda_stay_release(d);
	d->resident = !status;
	return status;
}

static enum gn_status move(struct gn_plan *p, int home, float *device, float *host, size_t bytes, struct gn_err *err)
{
	struct gn_cuda_stream *s = gn_plan_cuda_of(p)->stream;

	return bytes && host ? gn_cuda_copy(s, home ? host : device, home ? device : host, bytes, err) : GN_OK;
}

static enum gn_status move_all(struct gn_plan *p, int home, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status;

	if (!d->resident)
		return gn_err_set(err, GN_ERR_USAGE, "the plan does not stay on its device");
	status = move(p, home, p->bound.params, p->params, params_bytes(p), err);
	if (!status)
		status = move(p, home, p->bound.buffers, p->buffers, buffers_bytes(p), err);
	for (int k = 0; k < gn_optim_slots(d->update.rule->kind) && !status; k++)
		status = move(p, home, d->state_slots[k], d->update.slots[k], params_bytes(p), err);
	if (!status && d->average_params)
		status = move(p, home, d->average_params, d->update.average_params, params_bytes(p), err);
	if (!status && d->average_params)
		status = move(p, home, d->average_buffers, d->update.average_buffers, buffers_bytes(p), err);
	return status ? status : gn_cuda_stream_wait(d->stream, err);
}

enum gn_status gn_plan_cuda_push(struct gn_plan *p, struct gn_err *err)
{
	return move_all(p, 0, err);
}

enum gn_status gn_plan_cuda_pull(struct gn_plan *p, struct gn_err *err)
{
	return move_all(p, 1, err);
}

enum gn_status gn_plan_cuda_queue_gradients(struct gn_plan *p, uint64_t step, struct gn_err *err)
{
	enum gn_status status = gn_plan_run_forward(p, step, err);

	if (!status)
		status = gn_plan_cuda_loss(p, err);
	return status ? status : gn_plan_run_backward(p, NULL, NULL, err);
}

static enum gn_status queue_average(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_cuda_average(d->stream, d->average_params, p->bound.params, gn_model_param_elements(p->model),
						d->average_decay, d->nonfinite, err);

	return status ? status : gn_cuda_average(d->stream, d->average_buffers, p->bound.buffers, gn_model_buffer_elements(p->model),
						 d->average_decay, d->nonfinite, err);
}

enum gn_status gn_plan_cuda_queue_update(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_cuda_fill(d->stream, d->nonfinite, 0, sizeof *d->nonfinite, err);

	if (!status)
		status = gn_cuda_find_nonfinite(d->stream, GN_CUDA_F32, p->bound.grads, gn_model_param_elements(p->model),
						d->nonfinite, err);
	if (!status)
		status = gn_cuda_batch_norm_statistics(d->stream, &d->sums, p->bound.grads, 0, err);
	if (!status && d->rest.channels)
		status = gn_cuda_batch_norm_statistics(d->stream, &d->rest, p->bound.grads + d->sums.rows * COLUMNS, 0, err);
	if (!status && d->update.clip > 0)
		status = gn_cuda_optim_clip(d->optimizer, d->stream, d->sums.sums + COLUMNS, COLUMNS,
					    d->rest.sums + d->rest.channels, d->rest.channels, d->update.clip, err);
	if (!status)
		status = gn_cuda_optim_step(d->optimizer, d->stream, d->nonfinite, err);
	return status || !d->average_params ? status : queue_average(p, err);
}

enum gn_status gn_plan_cuda_queue_outcome(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_cuda_copy(d->stream, &d->losses[d->batch], d->loss, sizeof *d->loss, err);

	if (!status)
		status = gn_cuda_copy(d->stream, d->outcome->sums, d->sums.sums, sizeof d->outcome->sums, err);
	return status ? status : gn_cuda_copy(d->stream, &d->outcome->nonfinite, d->nonfinite, sizeof *d->nonfinite, err);
}

enum gn_status gn_plan_cuda_launch(struct gn_plan *p, uint64_t step, const struct gn_optim_update *u, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_optim_update scaled = *u;
	float decay = (float)gn_ema_decay(d->update.average_decay, u->step);
	enum gn_status status;

	if (!d->resident)
		return gn_err_set(err, GN_ERR_USAGE, "the plan does not stay on its device");
	if (d->update.batches > 1 && d->batch + 1 != d->update.batches)
		return gn_err_set(err, GN_ERR_USAGE, "a step of %d batches of which %d were gathered", d->update.batches, d->batch);
	scaled.grad_scale /= d->loss_scale;
	d->grad_scale = scaled.grad_scale;
	status = gn_plan_cuda_begin_batch(p, step, err);
	if (!status)
		status = gn_cuda_optim_set(d->optimizer, d->stream, &scaled, err);
	/* memory that is not pinned is read before the call returns */
	if (!status && d->average_params)
		status = gn_cuda_copy(d->stream, d->average_decay, &decay, sizeof decay, err);
	if (!status)
		status = gn_plan_cuda_run(p, step, err);
	/* with several ranks, behind their sums */
	return status || d->update.ranks > 1 ? status : gn_plan_cuda_queue_outcome(p, err);
}

enum gn_status gn_plan_cuda_result(struct gn_plan *p, struct gn_plan_result *out, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_plan_result r = {0};
	enum gn_status status = gn_cuda_stream_wait(d->stream, err);

	if (status)
		return status;
	for (int k = 0; k <= d->batch; k++) {
		if (d->losses[k].bad)
			return gn_err_set(err, GN_ERR_DATA, "labels of %d images of the batch are none: there are only %d classes",
					  (int)d->losses[k].bad, gn_model_classes(p->model));
		r.loss += d->losses[k].loss / (d->batch + 1);
	}
	d->batch = 0;
	for (int c = 0; c < COLUMNS; c++)
		r.norm += d->outcome->sums[COLUMNS + c];
	for (int c = 0; c < d->rest.channels; c++)
		r.norm += d->outcome->sums[2 * COLUMNS + d->rest.channels + c];
	r.norm = fabs(d->grad_scale) * sqrt(r.norm);
	r.skipped = d->outcome->nonfinite != 0;
	if (r.skipped)
		status = gn_cuda_copy(d->stream, p->bound.buffers, d->kept_buffers, buffers_bytes(p), err);
	/* the scale stands in the graphs */
	if (!status && gn_plan_cuda_rescale(d, !r.skipped))
		gn_plan_cuda_drop_recordings(d);
	if (!status)
		*out = r;
	return status;
}
