#include "kernels/host/host.h"
#include "kernels/host/onednn.h"

enum gn_status gn_host_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	/* GN_OP_CONJUGATE is gn_conjugate_create() */
	static enum gn_status (*const creates[])(const struct gn_op *base, struct gn_op **out, struct gn_err *err) = {
		[GN_OP_CONV] = gn_dnnl_conv_create,
		[GN_OP_BATCH_NORM] = gn_host_batch_norm_create,
		[GN_OP_RELU] = gn_host_pointwise_create,
		[GN_OP_MAX_POOL] = gn_host_max_pool_create,
		[GN_OP_ADAPTIVE_AVG_POOL] = gn_host_adaptive_create,
		[GN_OP_ADD] = gn_host_pointwise_create,
		[GN_OP_LINEAR] = gn_dnnl_linear_create,
		[GN_OP_DROPOUT] = gn_host_dropout_create,
		[GN_OP_REORDER] = gn_dnnl_reorder_create,
		[GN_OP_ACTIVATION] = gn_host_activation_create,
		[GN_OP_SCALE] = gn_host_scale_create,
		[GN_OP_CHANNEL_SCALE] = gn_host_scale_create,
		[GN_OP_DROP_PATH] = gn_host_scale_create,
		[GN_OP_LAYER_NORM] = gn_host_layer_norm_create,
		[GN_OP_TOKENS] = gn_host_tokens_create,
		[GN_OP_ATTENTION] = gn_host_attention_create,
		[GN_OP_FIRST_PIXEL] = gn_host_tokens_create,
	};
	struct gn_op plain = *base;

	if ((size_t)base->desc.kind >= sizeof creates / sizeof *creates || !creates[base->desc.kind])
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "unknown operator kind %d", (int)base->desc.kind);
	if (base->desc.kind == GN_OP_LINEAR) {
		plain.info.in[0].block = plain.info.out.block = 1;
		plain.info.in[0].element_bytes = plain.info.out.element_bytes = sizeof(float);
	}
	return creates[base->desc.kind](&plain, out, err);
}
