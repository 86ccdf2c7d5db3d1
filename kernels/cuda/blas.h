/* Linear layers and batches of products by cuBLASLt: one plan per shape and pass, created once and run many times.
 *
 * Rows are images: x [n][c], weight [out_c][c] as in PyTorch, y [n][out_c]. x, y and the multiplied weight have one type, sums are
 * accumulated in float, and the gradients of weight and bias are float for every type. cuBLASLt's heuristics return algorithms,
 * best first; only those that accumulate in float are requested. A pass without an algorithm is GN_ERR_UNSUPPORTED: the caller uses
 * another operator. cuBLASLt is loaded at first use, as cuDNN is. Every error names the call, the shape and the device.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_BLAS_H
#define GN_KERNELS_CUDA_BLAS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/device/cuda.h"
#include "kernels/cuda/type.h"

struct gn_blas;
struct gn_blas_plan;

struct gn_blas_options {
	int tf32; /* multiply f32 with 10 bits of mantissa on tensor cores */
	size_t workspace_limit_bytes;
};

/* Creates it on a stream, which must outlive it. GN_ERR_NOT_FOUND without cuBLASLt. */
enum gn_status gn_blas_create(struct gn_cuda_stream *s, const struct gn_blas_options *options, struct gn_blas **out,
			      struct gn_err *err);
void gn_blas_destroy(struct gn_blas *b);

struct gn_blas_linear {
	enum gn_cuda_type type;
	int n, c, out_c;
};

enum gn_blas_pass {
	GN_BLAS_FORWARD,	 /* y = x weight^T */
	GN_BLAS_FORWARD_BIAS,	 /* y = x weight^T + bias; the bias has the tensors' type */
	GN_BLAS_BACKWARD_DATA,	 /* x (its gradient) = y weight, with y the gradient of the output */
	GN_BLAS_BACKWARD_WEIGHT, /* weight (its gradient, float) = y^T x */
	GN_BLAS_BACKWARD_WEIGHT_BIAS, /* the same, and bias (its gradient, float) = column sums of y */
	GN_BLAS_BATCH,		      /* y = x weight of a struct gn_blas_batch */
	GN_BLAS_PASSES
};

/* "forward", "backward data", ... */
const char *gn_blas_pass_name(enum gn_blas_pass pass);

/* Device memory aligned to 16 bytes; workspaces to GN_CUDA_ALIGN_BYTES. Tensors that a pass does not use may be NULL. */
struct gn_blas_data {
	void *x, *weight, *y, *bias;
};

/* b is borrowed and must outlive the plan. */
enum gn_status gn_blas_plan_create(struct gn_blas *b, const struct gn_blas_linear *linear, enum gn_blas_pass pass,
				   struct gn_blas_plan **out, struct gn_err *err);

/* count products d = a b of matrices in rows: a [rows][depth], b [depth][columns], d [rows][columns]; transposed: stored as [depth][rows]
 * and [columns][depth]. Strides are the elements from row to row, steps those from product to product. */
struct gn_blas_batch {
	enum gn_cuda_type type, result_type; /* of a and b; of d: the same, or f32 */
	int rows, columns, depth;
	int a_transposed, b_transposed;
	int a_stride, b_stride, d_stride;
	int64_t count, a_step, b_step, d_step;
};

/* As gn_blas_plan_create(); of its data x is a, weight b and y d. */
enum gn_status gn_blas_batch_create(struct gn_blas *b, const struct gn_blas_batch *batch, struct gn_blas_plan **out, struct gn_err *err);
void gn_blas_plan_destroy(struct gn_blas_plan *p);
/* Sufficient for every candidate. */
size_t gn_blas_plan_workspace_bytes(const struct gn_blas_plan *p);
/* Runs the candidates on that memory, blocks, and keeps the fastest. Overwrites outputs. */
enum gn_status gn_blas_tune(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err);
/* Enqueues the product on the stream. */
enum gn_status gn_blas_run(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
