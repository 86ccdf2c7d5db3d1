#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"

#include <math.h>
#include <stdlib.h>

/* Sums of squares are made by the kernel that sums channels: the gradient as rows of so many. */
enum { COLUMNS = 16 };

/* What the host reads, in pinned memory. */
struct outcome {
	double sums[4 * COLUMNS];
	int32_t nonfinite;
};

struct cuda_update {
	struct gn_update base;
	struct gn_cuda_stream *stream;
	struct gn_update_options options; /* without rule and tensors */
	struct gn_cuda_optim *optimizer;
	struct gn_buffer memory;
	struct gn_cuda_batch_norm sums, rest; /* of the gradient's squares; of those that make no whole row */
	float *decay;
	int32_t *nonfinite;
	struct outcome *outcome;
	double grad_scale; /* of the update under way */
};

static struct cuda_update *of(struct gn_update *u)
{
	return (struct cuda_update *)u;
}

static enum gn_status alloc_memory(struct cuda_update *h, struct gn_device *d, struct gn_err *err)
{
	size_t rows = h->options.elements / COLUMNS, sums = gn_cuda_padded(sizeof h->outcome->sums);
	size_t scratch = gn_cuda_batch_norm_scratch_bytes(h->stream, rows, COLUMNS) + gn_cuda_batch_norm_scratch_bytes(h->stream, 1, COLUMNS);
	void *pinned;
	char *at;
	enum gn_status status = gn_buffer_alloc(d, sums + 2 * GN_CUDA_ALIGN_BYTES + scratch, &h->memory, err);

	if (!status)
		status = gn_pinned_alloc(d, sizeof *h->outcome, &pinned, err);
	if (status)
		return gn_err_prefix(err, "state of the optimizer"), status;
	h->outcome = pinned;
	at = h->memory.address;
	h->sums = (struct gn_cuda_batch_norm){.type = GN_CUDA_F32, .rows = rows, .channels = COLUMNS, .sums = (double *)(void *)at};
	h->decay = (float *)(void *)(at + sums);
	h->nonfinite = (int32_t *)(void *)(at + sums + GN_CUDA_ALIGN_BYTES);
	h->sums.scratch = at + sums + 2 * GN_CUDA_ALIGN_BYTES;
	h->rest = h->sums;
	h->rest.rows = 1;
	h->rest.channels = (int)(h->options.elements % COLUMNS);
	h->rest.sums = h->sums.sums + 2 * COLUMNS;
	return GN_OK;
}

static enum gn_status create_optimizer(struct cuda_update *h, const struct gn_update_options *o, struct gn_err *err)
{
	struct gn_cuda_optim_tensor *tensors = calloc(o->count + 1, sizeof *tensors);
	enum gn_status status;

	if (!tensors)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	for (size_t i = 0; i < o->count; i++) {
		const struct gn_optim_tensor *t = &o->tensors[i];

		tensors[i] = (struct gn_cuda_optim_tensor){.params = t->params, .grads = t->grads, .slots = {t->slots[0], t->slots[1]},
							   .count = t->count, .weight_decay = t->weight_decay, .adapt = t->adapt,
							   .lr_scale = t->lr_scale};
	}
	status = gn_cuda_optim_create(h->stream, o->rule, GN_CUDA_F32, tensors, o->count, &h->optimizer, err);
	free(tensors);
	return status;
}

static void destroy(struct gn_update *u)
{
	struct cuda_update *h = of(u);

	/* an update that nobody waited for still writes its outcome */
	(void)gn_cuda_stream_wait(h->stream, NULL);
	gn_cuda_optim_destroy(h->optimizer);
	if (h->outcome)
		gn_pinned_free(h->memory.device, h->outcome);
	gn_buffer_free(&h->memory);
	free(h);
}

static enum gn_status create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out, struct gn_err *err)
{
	struct cuda_update *h = calloc(1, sizeof *h);
	enum gn_status status;

	if (!h)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	h->stream = gn_cuda_stream_of(c->stream);
	h->options = *options;
	status = alloc_memory(h, gn_stream_device(c->stream), err);
	if (!status)
		status = create_optimizer(h, options, err);
	h->options.rule = NULL;
	h->options.tensors = NULL;
	if (status)
		destroy(&h->base);
	else
		*out = &h->base;
	return status;
}

static enum gn_status set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err)
{
	struct cuda_update *h = of(u);
	const float by = (float)decay;
	enum gn_status status = gn_cuda_optim_set(h->optimizer, h->stream, numbers, err);

	h->grad_scale = numbers->grad_scale;
	if (!status && h->options.averages[0].count)
		status = gn_cuda_put(h->stream, h->decay, &by, sizeof by, err);
	return status;
}

static enum gn_status find_nonfinite(struct cuda_update *h, struct gn_err *err)
{
	enum gn_status status = gn_cuda_fill(h->stream, h->nonfinite, 0, sizeof *h->nonfinite, err);

	if (!status)
		status = gn_cuda_find_nonfinite(h->stream, GN_CUDA_F32, h->options.grads, h->options.elements, h->nonfinite, err);
	if (!status && h->options.finite)
		status = gn_cuda_find_nonfinite(h->stream, GN_CUDA_F32, h->options.finite, 1, h->nonfinite, err);
	return status;
}

static enum gn_status queue(struct gn_update *u, struct gn_err *err)
{
	struct cuda_update *h = of(u);
	const struct gn_update_options *o = &h->options;
	enum gn_status status = find_nonfinite(h, err);

	if (!status)
		status = gn_cuda_batch_norm_statistics(h->stream, &h->sums, o->grads, 0, err);
	if (!status && h->rest.channels)
		status = gn_cuda_batch_norm_statistics(h->stream, &h->rest, o->grads + h->sums.rows * COLUMNS, 0, err);
	if (!status && o->clip > 0)
		status = gn_cuda_optim_clip(h->optimizer, h->stream, h->sums.sums + COLUMNS, COLUMNS, h->rest.sums + h->rest.channels,
					    h->rest.channels, o->clip, err);
	if (!status)
		status = gn_cuda_optim_step(h->optimizer, h->stream, h->nonfinite, err);
	for (int i = 0; i < 2 && !status; i++)
		if (o->averages[i].count)
			status = gn_cuda_average(h->stream, o->averages[i].average, o->averages[i].values, o->averages[i].count, h->decay,
						 h->nonfinite, err);
	return status;
}

static enum gn_status fetch(struct gn_update *u, struct gn_err *err)
{
	struct cuda_update *h = of(u);
	enum gn_status status = gn_cuda_copy(h->stream, h->outcome->sums, h->sums.sums, sizeof h->outcome->sums, err);

	return status ? status : gn_cuda_copy(h->stream, &h->outcome->nonfinite, h->nonfinite, sizeof *h->nonfinite, err);
}

static void result(const struct gn_update *u, struct gn_update_result *out)
{
	const struct cuda_update *h = (const struct cuda_update *)u;
	double squares = 0;

	for (int c = 0; c < COLUMNS; c++)
		squares += h->outcome->sums[COLUMNS + c];
	for (int c = 0; c < h->rest.channels; c++)
		squares += h->outcome->sums[2 * COLUMNS + h->rest.channels + c];
	out->norm = fabs(h->grad_scale) * sqrt(squares);
	out->skipped = h->outcome->nonfinite != 0;
}

const struct gn_update_class gn_cuda_update = {create, destroy, set, queue, fetch, result};
