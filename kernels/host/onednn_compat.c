#include "kernels/host/onednn_compat.h"

#include <stdint.h>
#include <stdlib.h>

static const float gn_dnnl_relu_slope = 0x1p-100f;

#if DNNL_VERSION_MAJOR < 3

dnnl_status_t gn_dnnl_md_create(gn_dnnl_md *out, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
				dnnl_format_tag_t tag)
{
	dnnl_memory_desc_t *md = malloc(sizeof *md);
	dnnl_status_t s = md ? dnnl_memory_desc_init_by_tag(md, dims, shape, type, tag) : dnnl_out_of_memory;

	if (s != dnnl_success) {
		free(md);
		return s;
	}
	*out = md;
	return s;
}

void gn_dnnl_md_destroy(gn_dnnl_md md)
{
	free((void *)(uintptr_t)md);
}

dnnl_status_t gn_dnnl_post_sum(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1);
}

dnnl_status_t gn_dnnl_post_relu(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, gn_dnnl_relu_slope, 0);
}

static dnnl_status_t pd_create(dnnl_primitive_desc_t *out, const_dnnl_op_desc_t d, const struct gn_dnnl_context *c)
{
	return dnnl_primitive_desc_create(out, d, c->attr, c->engine, c->forward);
}

dnnl_status_t gn_dnnl_conv_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
				      gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst,
				      const struct gn_dnnl_window *w)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_convolution_forward_desc_init(&d, kind, dnnl_convolution_direct, in, weight, bias, dst,
							     w->stride, w->pad_begin, w->pad_end);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

dnnl_status_t gn_dnnl_conv_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					    gn_dnnl_md weight, gn_dnnl_md dout, const struct gn_dnnl_window *w)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, din, weight, dout,
								   w->stride, w->pad_begin, w->pad_end);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

dnnl_status_t gn_dnnl_conv_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
					      gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout,
					      const struct gn_dnnl_window *w)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t s = dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, in, dweight, dbias, dout,
								      w->stride, w->pad_begin, w->pad_end);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

dnnl_status_t gn_dnnl_linear_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
					gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t s = dnnl_inner_product_forward_desc_init(&d, kind, in, weight, bias, dst);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

dnnl_status_t gn_dnnl_linear_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					      gn_dnnl_md weight, gn_dnnl_md dout)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t s = dnnl_inner_product_backward_data_desc_init(&d, din, weight, dout);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

dnnl_status_t gn_dnnl_linear_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
						gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t s = dnnl_inner_product_backward_weights_desc_init(&d, in, dweight, dbias, dout);

	return s == dnnl_success ? pd_create(out, &d, c) : s;
}

#else

static const dnnl_dims_t no_dilation = {0};

dnnl_status_t gn_dnnl_md_create(gn_dnnl_md *out, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
				dnnl_format_tag_t tag)
{
	dnnl_memory_desc_t md;
	dnnl_status_t s = dnnl_memory_desc_create_with_tag(&md, dims, shape, type, tag);

	if (s == dnnl_success)
		*out = md;
	return s;
}

void gn_dnnl_md_destroy(gn_dnnl_md md)
{
	if (md)
		dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)md);
}

dnnl_status_t gn_dnnl_post_sum(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

dnnl_status_t gn_dnnl_post_relu(dnnl_post_ops_t ops)
{
	return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, gn_dnnl_relu_slope, 0);
}

dnnl_status_t gn_dnnl_conv_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
				      gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst,
				      const struct gn_dnnl_window *w)
{
	return dnnl_convolution_forward_primitive_desc_create(
		out, c->engine, kind, dnnl_convolution_direct, in, weight, bias, dst, w->stride, no_dilation, w->pad_begin,
			w->pad_end, c->attr);
}

dnnl_status_t gn_dnnl_conv_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					    gn_dnnl_md weight, gn_dnnl_md dout, const struct gn_dnnl_window *w)
{
	return dnnl_convolution_backward_data_primitive_desc_create(
		out, c->engine, dnnl_convolution_direct, din, weight, dout, w->stride, no_dilation, w->pad_begin, w->pad_end,
			c->forward, c->attr);
}

dnnl_status_t gn_dnnl_conv_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
					      gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout,
					      const struct gn_dnnl_window *w)
{
	return dnnl_convolution_backward_weights_primitive_desc_create(
		out, c->engine, dnnl_convolution_direct, in, dweight, dbias, dout, w->stride, no_dilation, w->pad_begin, w->pad_end,
			c->forward, c->attr);
}

dnnl_status_t gn_dnnl_linear_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
					gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst)
{
	return dnnl_inner_product_forward_primitive_desc_create(out, c->engine, kind, in, weight, bias, dst, c->attr);
}

dnnl_status_t gn_dnnl_linear_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					      gn_dnnl_md weight, gn_dnnl_md dout)
{
	return dnnl_inner_product_backward_data_primitive_desc_create(out, c->engine, din, weight, dout, c->forward,
		c->attr);
}

dnnl_status_t gn_dnnl_linear_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
						gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout)
{
	return dnnl_inner_product_backward_weights_primitive_desc_create(out, c->engine, in, dweight, dbias, dout,
		c->forward, c->attr);
}

#endif
