/* Loads cuBLASLt and runs its matrix products. */
#include "kernels/cuda/blas_internal.h"
#include "kernels/cuda/autotune.h"
#include "src/base/dynlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pass_names[GN_BLAS_PASSES] = {
	"forward", "forward with bias", "backward data", "backward weight", "backward weight and bias", "batch",
};

const char *gn_blas_pass_name(enum gn_blas_pass pass)
{
	return pass_names[pass];
}

static enum gn_status status_of(cublasStatus_t code)
{
	if (code == CUBLAS_STATUS_NOT_SUPPORTED)
		return GN_ERR_UNSUPPORTED;
	return code == CUBLAS_STATUS_ALLOC_FAILED ? GN_ERR_NO_MEMORY : GN_ERR_FAILED;
}

enum gn_status gn_blas_check(const struct gn_blas *b, cublasStatus_t code, const char *call, const struct gn_blas_plan *p,
			     struct gn_err *err)
{
	char shape[120] = "";

	if (code == CUBLAS_STATUS_SUCCESS)
		return GN_OK;
	if (p && p->pass == GN_BLAS_BATCH)
		snprintf(shape, sizeof shape, " (%d products, %s, %dx%d to %d)", (int)p->batch.count, gn_cuda_type_name(p->batch.type), p->batch.rows,
			 p->batch.depth, p->batch.columns);
	else if (p)
		snprintf(shape, sizeof shape, " (linear layer %s, %s, %dx%d to %d)", gn_blas_pass_name(p->pass),
			 gn_cuda_type_name(p->linear.type), p->linear.n, p->linear.c, p->linear.out_c);
	return gn_err_set(err, status_of(code), "cuda:%d: %s: %s%s", b->stream->device->info.ordinal, call,
			  b->api.cublasLtGetStatusName(code), shape);
}

static enum gn_status open_blas(struct gn_blas *b, struct gn_err *err)
{
	const char *missing = NULL;
	char name[40], why[256];

	snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
	b->library = gn_dynlib_open(name, GN_CUDA_FOLDER, why, sizeof why);
	if (!b->library)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "cuBLASLt %d not found: %s; install it, or name its folder in "
				  "LD_LIBRARY_PATH", CUBLAS_VER_MAJOR, why);
#define X(name) missing = gn_dynlib_find(b->library, #name, &b->api.name) ? missing : #name;
	GN_BLAS_FUNCTIONS(X)
#undef X
	if (missing)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this cuBLASLt has no %s: version %d is needed", missing,
				  CUBLAS_VER_MAJOR);
	return gn_blas_check(b, b->api.cublasLtCreate(&b->handle), "cublasLtCreate", NULL, err);
}

enum gn_status gn_blas_create(struct gn_cuda_stream *s, const struct gn_blas_options *options, struct gn_blas **out,
			      struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);
	struct gn_blas *b;

	if (status)
		return status;
	if (!(b = calloc(1, sizeof *b)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuBLASLt");
	b->stream = s;
	b->options = *options;
	status = open_blas(b, err);
	if (status)
		gn_blas_destroy(b);
	else
		*out = b;
	return status;
}

void gn_blas_destroy(struct gn_blas *b)
{
	if (!b)
		return;
	if (b->handle && !gn_cuda_enter(b->stream->device, NULL))
		(void)b->api.cublasLtDestroy(b->handle);
	/* the library stays loaded, as cuDNN's */
	free(b);
}

static enum gn_status run(struct gn_blas_plan *p, int candidate, const struct gn_blas_data *t, void *workspace,
			  struct gn_err *err)
{
	struct gn_blas *b = p->blas;
	const cublasLtMatmulHeuristicResult_t *f = &p->found[candidate];
	int has_bias = p->pass == GN_BLAS_FORWARD_BIAS || p->pass == GN_BLAS_BACKWARD_WEIGHT_BIAS;
	int weight_is_result = p->pass == GN_BLAS_BACKWARD_WEIGHT || p->pass == GN_BLAS_BACKWARD_WEIGHT_BIAS;
	const void *first = weight_is_result ? t->x : t->weight;
	const void *second = p->pass <= GN_BLAS_FORWARD_BIAS || p->pass == GN_BLAS_BATCH ? t->x : t->y;
	void *result = weight_is_result ? t->weight : p->pass == GN_BLAS_BACKWARD_DATA ? t->x : t->y;
	const float one = 1, zero = 0;
	enum gn_status status = GN_OK;

	if (has_bias)
		status = gn_blas_check(b, b->api.cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias,
									sizeof t->bias),
			       "cublasLtMatmulDescSetAttribute of the bias", p, err);
	if (status)
		return status;
	return gn_blas_check(b, b->api.cublasLtMatmul(b->handle, p->product, &one, first, p->a, second, p->b, &zero, result, p->d,
					      result, p->d, &f->algo, workspace, f->workspaceSize, b->stream->native),
		     "cublasLtMatmul", p, err);
}

enum gn_status gn_blas_run(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(p->blas->stream->device, err);

	return status ? status : run(p, p->chosen, data, workspace, err);
}

struct trial {
	struct gn_blas_plan *plan;
	const struct gn_blas_data *data;
	void *workspace;
};

static enum gn_status try_one(void *context, int candidate, struct gn_err *err)
{
	const struct trial *t = context;

	return run(t->plan, candidate, t->data, t->workspace, err);
}

enum gn_status gn_blas_tune(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err)
{
	struct trial t = {p, data, workspace};
	struct gn_cuda_candidates candidates = {p->count, try_one, &t, 0};
	int chosen;
	enum gn_status status = p->count == 1 ? GN_OK : gn_cuda_enter(p->blas->stream->device, err);

	if (status || p->count == 1)
		return status;
	status = gn_cuda_autotune(p->blas->stream, &candidates, &chosen, err);
	if (status)
		return status;
	p->found[0] = p->found[chosen];
	p->count = 1;
	return GN_OK;
}
