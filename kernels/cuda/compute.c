/* kernels/compute.h on a GPU. */
#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/ops.h"

#include <stdlib.h>
#include <string.h>

/* What cuDNN may take for one convolution; its fastest engines for the first layer of a network want much more. */
#define WORKSPACE_LIMIT ((size_t)1 << 30)

struct cuda_compute {
	struct gn_compute base;
	struct gn_cuda_stream *stream;
	struct gn_cuda_ops *ops;
	enum gn_cuda_type type;
};

static struct cuda_compute *of(struct gn_compute *c)
{
	return (struct cuda_compute *)c;
}

static enum gn_cuda_type type_of(const struct cuda_compute *c, const struct gn_layout *l)
{
	return l->element_bytes == sizeof(float) ? GN_CUDA_F32 : c->type;
}

static void destroy(struct gn_compute *c)
{
	gn_cuda_ops_destroy(of(c)->ops);
	free(c);
}

static enum gn_status set_number(struct gn_compute *c, uint64_t number, struct gn_err *err)
{
	return gn_cuda_ops_set_step(of(c)->ops, number, err);
}

static enum gn_status load(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	return gn_cuda_copy(of(c)->stream, to, from, gn_layout_elements(l) * sizeof(float), err);
}

static enum gn_status load_crops(struct gn_compute *c, const struct gn_layout *l, const float *mean, const float *deviation,
				   const struct gn_crop *from, void *to, struct gn_err *err)
{
	struct gn_cuda_image_args a = {.type = type_of(of(c), l), .n = l->n, .h = l->h, .w = l->w, .channels = l->c, .crops = from,
				       .out = to};

	memcpy(a.mean, mean, sizeof a.mean);
	memcpy(a.deviation, deviation, sizeof a.deviation);
	return gn_cuda_crop_resize_normalise(of(c)->stream, &a, err);
}

static enum gn_status store(struct gn_compute *c, const struct gn_layout *l, const void *from, float *host, struct gn_err *err)
{
	return gn_cuda_copy(of(c)->stream, host, from, gn_layout_bytes(l), err);
}

static enum gn_status put(struct gn_compute *c, void *to, const void *values, size_t bytes, struct gn_err *err)
{
	return gn_cuda_put(of(c)->stream, to, values, bytes, err);
}

static enum gn_status add_tensor(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	return gn_cuda_add(of(c)->stream, type_of(of(c), l), to, from, 0, to, gn_layout_elements(l), err);
}

static enum gn_status add(struct gn_compute *c, const float *from, float *to, size_t count, struct gn_err *err)
{
	return gn_cuda_add(of(c)->stream, GN_CUDA_F32, to, from, 0, to, count, err);
}

static enum gn_status scale(struct gn_compute *c, float *x, double factor, size_t count, struct gn_err *err)
{
	return count ? gn_cuda_scale(of(c)->stream, GN_CUDA_F32, x, factor, count, err) : GN_OK;
}

static enum gn_status loss(struct gn_compute *c, const struct gn_loss_args *a, struct gn_err *err)
{
	struct gn_cuda_loss_args args = {
		.type = GN_CUDA_F32, .batch = a->batch, .classes = a->classes, .logits = a->logits, .labels = a->targets.labels,
		.pair_labels = a->targets.pair_labels, .lambdas = a->targets.lambdas, .smoothing = a->smoothing, .grad_scale = a->grad_scale,
		.dlogits = a->dlogits, .rows = a->rows, .out = a->out, .mean = a->mean, .correct = a->correct, .share = a->share,
	};

	return gn_cuda_softmax_cross_entropy(of(c)->stream, &args, err);
}

enum gn_status gn_compute_create_cuda(struct gn_stream *s, const struct gn_compute_cuda_options *options, struct gn_compute **out,
				      struct gn_err *err)
{
	static const struct gn_compute_class class = {
		.destroy = destroy, .set_number = set_number, .load = load, .load_crops = load_crops, .store = store,
		.put = put, .add_tensor = add_tensor, .add = add, .scale = scale, .loss = loss, .update = &gn_cuda_update,
	};
	enum gn_cuda_type type = options->bf16 ? GN_CUDA_BF16 : options->fp16 ? GN_CUDA_F16 : GN_CUDA_F32;
	struct gn_cuda_ops_options oo = {
		.type = type, .tune = options->tune,
		.dnn = {.tf32 = options->tf32, .deterministic = !options->any_order, .workspace_limit_bytes = WORKSPACE_LIMIT,
			.folder = options->folder}};
	struct cuda_compute *c;
	enum gn_status status;

	if (options->bf16 + options->fp16 + options->tf32 > 1)
		return gn_err_set(err, GN_ERR_USAGE, "only one of bf16, fp16 and tf32");
	c = calloc(1, sizeof *c);
	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a device's arithmetic");
	c->base = (struct gn_compute){.class = &class, .stream = s, .backend = GN_BACKEND_CUDA};
	c->stream = gn_cuda_stream_of(s);
	c->type = type;
	status = gn_cuda_ops_create(c->stream, &oo, &c->ops, err);
	if (status) {
		free(c);
		return status;
	}
	c->base.ops = gn_cuda_ops_device(c->ops);
	*out = &c->base;
	return GN_OK;
}
