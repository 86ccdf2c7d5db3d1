/* Updates on a GPU. Only kernels/cuda. */
#ifndef GN_KERNELS_CUDA_UPDATE_H
#define GN_KERNELS_CUDA_UPDATE_H

#include "kernels/backend.h"

/* As in struct gn_compute_class. */
enum gn_status gn_cuda_update_create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out,
				     struct gn_err *err);
void gn_cuda_update_destroy(struct gn_update *u);
enum gn_status gn_cuda_update_set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err);
enum gn_status gn_cuda_update_queue(struct gn_update *u, struct gn_err *err);
enum gn_status gn_cuda_update_fetch(struct gn_update *u, struct gn_err *err);
void gn_cuda_update_result(const struct gn_update *u, struct gn_update_result *out);

#endif
