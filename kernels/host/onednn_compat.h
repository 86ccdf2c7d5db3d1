/* The differences between the C APIs of oneDNN 2.x and 3.x, behind one set of functions.
 *
 * In 2.x a memory descriptor is a struct and a primitive needs an operation descriptor; in 3.x memory descriptors are objects and
 * primitive descriptors are created from their arguments. These functions have the names and arguments of 3.x. No dilation;
 * padding, strides and kernels have two dimensions. bias may be NULL. The caller destroys a primitive descriptor
 * (dnnl_primitive_desc_destroy).
 *
 * Thread safety: pure functions of their arguments.
 */
#ifndef GN_KERNELS_HOST_ONEDNN_COMPAT_H
#define GN_KERNELS_HOST_ONEDNN_COMPAT_H

#include <oneapi/dnnl/dnnl.h>

/* A borrowed memory descriptor: from gn_dnnl_md_create, a primitive descriptor or a memory. */
#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *gn_dnnl_md;
#else
typedef const_dnnl_memory_desc_t gn_dnnl_md;
#endif

/* The caller releases *out with gn_dnnl_md_destroy, which accepts NULL. */
dnnl_status_t gn_dnnl_md_create(gn_dnnl_md *out, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
				dnnl_format_tag_t tag);
void gn_dnnl_md_destroy(gn_dnnl_md md);

/* Post-operations: addition of the destination; relu. oneDNN's relu drops NaN, its leaky relu does not: below zero the slope is 2^-100,
 * so that -1 becomes -8e-31 instead of 0, and minus infinity stays (PyTorch's becomes 0). */
dnnl_status_t gn_dnnl_post_sum(dnnl_post_ops_t ops);
dnnl_status_t gn_dnnl_post_relu(dnnl_post_ops_t ops);

struct gn_dnnl_window {
	dnnl_dims_t stride, pad_begin, pad_end;
};

/* Common arguments of all primitive descriptors. */
struct gn_dnnl_context {
	dnnl_engine_t engine;
	const_dnnl_primitive_attr_t attr;
	const_dnnl_primitive_desc_t forward; /* for backward: the corresponding forward primitive */
};

dnnl_status_t gn_dnnl_conv_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
				      gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst,
				      const struct gn_dnnl_window *w);
dnnl_status_t gn_dnnl_conv_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					    gn_dnnl_md weight, gn_dnnl_md dout, const struct gn_dnnl_window *w);
dnnl_status_t gn_dnnl_conv_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
					      gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout,
					      const struct gn_dnnl_window *w);
dnnl_status_t gn_dnnl_linear_forward_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, dnnl_prop_kind_t kind,
					gn_dnnl_md in, gn_dnnl_md weight, gn_dnnl_md bias, gn_dnnl_md dst);
dnnl_status_t gn_dnnl_linear_backward_data_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md din,
					      gn_dnnl_md weight, gn_dnnl_md dout);
dnnl_status_t gn_dnnl_linear_backward_weight_pd(dnnl_primitive_desc_t *out, const struct gn_dnnl_context *c, gn_dnnl_md in,
						gn_dnnl_md dweight, gn_dnnl_md dbias, gn_dnnl_md dout);

#endif
