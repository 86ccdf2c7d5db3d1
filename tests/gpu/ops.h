/* What the checks of operators share: a case, its numbers in torch's order, and what the oracle makes of them. */
#ifndef GN_TESTS_GPU_OPS_H
#define GN_TESTS_GPU_OPS_H

#include "kernels/cuda/ops.h"
#include "tests/gpu/fixture.h"

struct ops_case {
	const char *name;
	struct gn_op_desc desc; /* layouts hold shapes alone */
	int inference;
	int halves; /* the gradient of the output comes as two */
};

enum { OPS_STEP = 5 };

/* All in torch's order, in float: what goes in, and what each backend gives. */
struct ops_numbers {
	float *x[2], *dy, *weight, *bias, *mean, *var;
	float *y, *dx[2], *dweight, *dbias, *new_mean, *new_var;
	float *sums; /* of channels, and of squares: of a convolution's output, of a batch norm's input */
};

struct ops_sizes {
	struct gn_layout in[2], out;
	size_t x[2], y, weight, bias, channels, sums;
};

/* count floats, zeroed; ends the program when there is no memory. */
float *ops_floats(size_t count);
/* count numbers at random that the type holds exactly. */
float *ops_draw(struct fixture *b, enum gn_cuda_type type, size_t count, double mean, double deviation);
/* For the device, or with element_bytes 8 for the oracle. */
struct gn_op_desc ops_plain_desc(const struct ops_case *c, int element_bytes);
struct ops_sizes ops_sizes_of(struct fixture *b, const struct ops_case *c);
/* Inputs, at random. */
void ops_fill(struct fixture *b, enum gn_cuda_type type, const struct ops_case *c, const struct ops_sizes *s, struct ops_numbers *n);
/* Of a tensor in torch's order; sums: [2][l->c]. */
void ops_sum_channels(const struct gn_layout *l, const float *x, float *sums);
void ops_make_results(const struct ops_sizes *s, struct ops_numbers *n);
void ops_free_results(struct ops_numbers *n);
void ops_run_oracle(struct fixture *b, const struct ops_case *c, const struct ops_sizes *s, struct ops_numbers *n);
/* Fails the point where got is further from want than the type's tolerance times factor; the largest of each type is kept. NaN must be NaN,
 * and infinity not finite. */
extern double ops_worst[3];
void ops_compare(struct fixture *b, enum gn_cuda_type type, const char *what, const float *got, const float *want, size_t count,
		 double factor);

/* ops_device.c. Memory of the device, zeroed; NULL for none. */
void *ops_device_bytes(struct fixture *b, size_t bytes);
/* Of a tensor in torch's order, in float. */
void *ops_to_device(struct fixture *b, struct gn_cuda_ops *ops, const struct gn_layout *l, const float *x);
void ops_from_device(struct fixture *b, struct gn_cuda_ops *ops, const struct gn_layout *l, const void *x, float *out);

/* ops_conv_bn.c: a batch norm and the convolution behind it, which know each other. */
void check_links(struct fixture *b, struct gn_cuda_ops *ops, enum gn_cuda_type type);

#endif
