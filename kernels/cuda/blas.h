/* Linear layers by cuBLASLt: one plan for a shape and a pass, made once and run often.
 *
 * Rows are images: x [n][c], weight [out_c][c] as torch has it, y [n][out_c]. x, y and the weight that multiplies are of one
 * type, sums are kept in float, and the gradients of weight and bias are float whatever the type. cuBLASLt's heuristics
 * name algorithms, best first; those that would add up in the tensors' type are not asked for. A pass that none of them
 * takes is GN_ERR_UNSUPPORTED: the caller goes the long way. cuBLASLt is opened when it is first needed, as cuDNN is.
 * Every error names the call, the shape and the device.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_BLAS_H
#define GN_KERNELS_CUDA_BLAS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda/device.h"
#include "kernels/cuda/type.h"

struct gn_blas;
struct gn_blas_plan;

struct gn_blas_options {
	int tf32; /* f32 may be multiplied with 10 bits of mantissa, by tensor cores */
	size_t workspace_limit_bytes;
};

/* On the stream, which outlives it. Without cuBLASLt: GN_ERR_NOT_FOUND. */
enum gn_status gn_blas_create(struct gn_cuda_stream *s, const struct gn_blas_options *options, struct gn_blas **out,
			      struct gn_err *err);
void gn_blas_destroy(struct gn_blas *b);

struct gn_blas_linear {
	enum gn_cuda_type type;
	int n, c, out_c;
};

enum gn_blas_pass {
	GN_BLAS_FORWARD,	 /* y = x weight^T */
	GN_BLAS_FORWARD_BIAS,	 /* y = x weight^T + bias, which is of the type, too */
	GN_BLAS_BACKWARD_DATA,	 /* x, its gradient, = y weight, with y the gradient of the output */
	GN_BLAS_BACKWARD_WEIGHT, /* weight, its gradient in float, = y^T x */
	GN_BLAS_BACKWARD_WEIGHT_BIAS, /* and bias, its gradient in float: the sums of y's columns */
	GN_BLAS_PASSES
};

/* "forward", "backward data", ... */
const char *gn_blas_pass_name(enum gn_blas_pass pass);

/* Memory on the device, aligned to 16 bytes, and workspaces to GN_CUDA_ALIGN_BYTES; what a pass does not name may be NULL. */
struct gn_blas_data {
	void *x, *weight, *y, *bias;
};

/* The blas is borrowed. */
enum gn_status gn_blas_plan_create(struct gn_blas *b, const struct gn_blas_linear *linear, enum gn_blas_pass pass,
				   struct gn_blas_plan **out, struct gn_err *err);
void gn_blas_plan_destroy(struct gn_blas_plan *p);
/* Enough for every candidate. */
size_t gn_blas_plan_workspace_bytes(const struct gn_blas_plan *p);
/* How many algorithms may still be taken; 1 after gn_blas_tune. */
int gn_blas_plan_candidates(const struct gn_blas_plan *p);
/* Runs the candidates on that memory, waits, and keeps the fastest. Outputs are overwritten. */
enum gn_status gn_blas_tune(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err);
/* Queues. */
enum gn_status gn_blas_run(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
