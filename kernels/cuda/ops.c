#include "kernels/cuda/ops_internal.h"

#include <stdlib.h>

static enum gn_status create_op(struct gn_op_device *device, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct gn_cuda_ops *o = (struct gn_cuda_ops *)device;
	enum gn_status status;

	switch (base->desc.kind) {
	case GN_OP_LINEAR:
		status = o->blas ? gn_cuda_linear_create(o, base, out, err) : GN_ERR_UNSUPPORTED;
		return status == GN_ERR_UNSUPPORTED ? gn_cuda_conv_create(o, base, out, err) : status;
	case GN_OP_CONV:
		return gn_cuda_conv_create(o, base, out, err);
	case GN_OP_BATCH_NORM:
		return gn_cuda_norm_create(o, base, out, err);
	case GN_OP_ATTENTION:
		return gn_cuda_attention_create(o, base, out, err);
	case GN_OP_ACTIVATION:
	case GN_OP_SCALE:
	case GN_OP_CHANNEL_SCALE:
	case GN_OP_DROP_PATH:
	case GN_OP_LAYER_NORM:
	case GN_OP_TOKENS:
	case GN_OP_FIRST_PIXEL:
		return gn_cuda_layer_create(o, base, out, err);
	default:
		return gn_cuda_simple_create(o, base, out, err);
	}
}

static void begin(struct gn_op_device *device)
{
	struct gn_cuda_ops *o = (struct gn_cuda_ops *)device;

	o->collects = 1;
	gn_dnn_collect(o->dnn, 1);
}

static enum gn_status end(struct gn_op_device *device, struct gn_err *err)
{
	struct gn_cuda_ops *o = (struct gn_cuda_ops *)device;
	enum gn_status status = gn_cuda_conv_plan_waiting(o, err);

	o->collects = 0;
	gn_dnn_collect(o->dnn, 0);
	return status;
}

enum gn_status gn_cuda_ops_create(struct gn_cuda_stream *s, const struct gn_cuda_ops_options *options,
				  struct gn_cuda_ops **out, struct gn_err *err)
{
	const struct gn_cuda_info *info = gn_cuda_device_info(gn_cuda_stream_device(s));
	struct gn_blas_options blas = {options->dnn.tf32, options->dnn.workspace_limit_bytes};
	struct gn_dnn_options dnn = options->dnn;
	struct gn_cuda_ops *o;
	enum gn_status status;

	if (options->type == GN_CUDA_BF16 && info->major < 8)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "cuda:%d: %s (compute capability %d.%d) does not support bfloat16: "
				  "use fp16 or fp32", info->ordinal, info->name, info->major, info->minor);
	if (!(o = calloc(1, sizeof *o)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for operators");
	o->base = (struct gn_op_device){create_op, begin, end};
	o->stream = s;
	o->options = *options;
	o->options.dnn.folder = NULL; /* belongs to the caller */
	dnn.tune = options->tune;
	status = gn_dnn_create(s, &dnn, &o->dnn, err);
	/* without cuBLASLt, linear layers are convolutions */
	if (!status && (status = gn_blas_create(s, &blas, &o->blas, err)) == GN_ERR_NOT_FOUND)
		status = GN_OK;
	if (!status)
		status = gn_cuda_arena_create(gn_cuda_stream_device(s), GN_CUDA_ALIGN_BYTES, &o->arena, err);
	if (!status && !(o->step = gn_cuda_arena_take(o->arena, sizeof *o->step)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for operators");
	if (status)
		gn_cuda_ops_destroy(o);
	else
		*out = o;
	return status;
}

void gn_cuda_ops_destroy(struct gn_cuda_ops *o)
{
	if (!o)
		return;
	gn_blas_destroy(o->blas);
	gn_dnn_destroy(o->dnn);
	gn_cuda_arena_destroy(o->arena);
	free(o);
}

struct gn_op_device *gn_cuda_ops_device(struct gn_cuda_ops *o)
{
	return &o->base;
}

enum gn_status gn_cuda_ops_set_step(struct gn_cuda_ops *o, uint64_t step, struct gn_err *err)
{
	return gn_cuda_put(o->stream, o->step, &step, sizeof step, err);
}

struct gn_cuda_ops *gn_cuda_ops_of(const struct gn_op *op)
{
	return (struct gn_cuda_ops *)op->desc.device;
}

struct gn_op *gn_cuda_op_alloc(struct gn_cuda_ops *o, size_t size, const struct gn_op_class *class, const struct gn_op *base,
			       struct gn_err *err)
{
	struct gn_op *op = gn_op_alloc(size, class, base, err);
	int bytes = (int)gn_cuda_type_bytes(o->options.type);

	if (!op)
		return NULL;
	op->info.in[0].block = op->info.in[1].block = op->info.out.block = 0;
	op->info.in[0].element_bytes = op->info.in[1].element_bytes = op->info.out.element_bytes = bytes;
	return op;
}
