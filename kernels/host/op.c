#include "kernels/host/host.h"
#include "kernels/host/onednn.h"

enum gn_status gn_host_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct gn_op plain = *base;

	switch (base->desc.kind) {
	case GN_OP_CONV:
		return gn_dnnl_conv_create(base, out, err);
	case GN_OP_BATCH_NORM:
		return gn_host_batch_norm_create(base, out, err);
	case GN_OP_MAX_POOL:
		return gn_host_max_pool_create(base, out, err);
	case GN_OP_LINEAR:
		plain.info.in[0].block = plain.info.out.block = 1;
		plain.info.in[0].element_bytes = plain.info.out.element_bytes = sizeof(float);
		return gn_dnnl_linear_create(&plain, out, err);
	case GN_OP_REORDER:
		return gn_dnnl_reorder_create(base, out, err);
	case GN_OP_RELU:
	case GN_OP_ADD:
		return gn_host_pointwise_create(base, out, err);
	case GN_OP_DROPOUT:
		return gn_host_dropout_create(base, out, err);
	case GN_OP_ADAPTIVE_AVG_POOL:
		return gn_host_adaptive_create(base, out, err);
	case GN_OP_ACTIVATION:
		return gn_host_activation_create(base, out, err);
	case GN_OP_SCALE:
	case GN_OP_CHANNEL_SCALE:
	case GN_OP_DROP_PATH:
		return gn_host_scale_create(base, out, err);
	case GN_OP_LAYER_NORM:
		return gn_host_layer_norm_create(base, out, err);
	case GN_OP_ATTENTION:
		return gn_host_attention_create(base, out, err);
	case GN_OP_TOKENS:
	case GN_OP_FIRST_PIXEL:
		return gn_host_tokens_create(base, out, err);
	case GN_OP_CONJUGATE:
		break; /* gn_conjugate_create */
	}
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "unknown operator kind %d", (int)base->desc.kind);
}
