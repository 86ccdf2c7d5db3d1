/* Host operators without oneDNN, where it has none or a slower one. Private to kernels/. */
#ifndef GN_KERNELS_HOST_HOST_H
#define GN_KERNELS_HOST_HOST_H

#include "kernels/backend.h"

enum gn_status gn_host_pointwise_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_max_pool_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_batch_norm_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_dropout_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_activation_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_scale_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_layer_norm_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_attention_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
/* Also of the first pixel alone. */
enum gn_status gn_host_tokens_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_adaptive_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);

#endif
