/* Operators of oneDNN, 2.x or 3.x. Only kernels/host/onednn*.c use its API; only onednn_compat.c depends on its version. */
#ifndef GN_KERNELS_HOST_ONEDNN_H
#define GN_KERNELS_HOST_ONEDNN_H

#include "kernels/backend.h"

enum gn_status gn_dnnl_conv_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
/* The input has plain layout. */
enum gn_status gn_dnnl_linear_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_dnnl_reorder_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);

#endif
