/* Loads cuBLASLt and runs its matrix products. */
#include "kernels/cuda/blas.h"

#include "kernels/cuda/autotune.h"
#include "src/base/dynlib.h"
#include "src/device/cuda_native.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GN_BLAS_FUNCTIONS(X)                                                                                                   \
	X(cublasLtCreate)                                                                                              \
	X(cublasLtDestroy)                                                                                             \
	X(cublasLtGetVersion)                                                                                          \
	X(cublasLtGetStatusName)                                                                                       \
	X(cublasLtMatmulDescCreate)                                                                                    \
	X(cublasLtMatmulDescDestroy)                                                                                   \
	X(cublasLtMatmulDescSetAttribute)                                                                              \
	X(cublasLtMatrixLayoutCreate)                                                                                  \
	X(cublasLtMatrixLayoutDestroy)                                                                                 \
	X(cublasLtMatrixLayoutSetAttribute)                                                                            \
	X(cublasLtMatmulPreferenceCreate)                                                                              \
	X(cublasLtMatmulPreferenceDestroy)                                                                             \
	X(cublasLtMatmulPreferenceSetAttribute)                                                                        \
	X(cublasLtMatmulAlgoGetHeuristic)                                                                              \
	X(cublasLtMatmul)

struct gn_blas {
	struct {
#define X(name) __typeof__(name) *name;
		GN_BLAS_FUNCTIONS(X)
#undef X
	} api;
	void *library;
	struct gn_cuda_stream *stream;
	cublasLtHandle_t handle;
	struct gn_blas_options options;
};

enum { GN_BLAS_CANDIDATES_MAX = 16 };

struct gn_blas_plan {
	struct gn_blas *blas;
	struct gn_blas_linear linear; /* or, of GN_BLAS_BATCH: */
	struct gn_blas_batch batch;
	enum gn_blas_pass pass;
	cublasLtMatmulDesc_t product;
	cublasLtMatrixLayout_t a, b, d;
	int count, chosen;
	cublasLtMatmulHeuristicResult_t found[GN_BLAS_CANDIDATES_MAX];
};

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

/* GN_OK for success; else sets err with the call, cuBLASLt's name of the error, the shape and the device. p NULL: without a
 * shape. */
static enum gn_status blas_check(const struct gn_blas *b, cublasStatus_t code, const char *call, const struct gn_blas_plan *p,
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
	return blas_check(b, b->api.cublasLtCreate(&b->handle), "cublasLtCreate", NULL, err);
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
		status = blas_check(b, b->api.cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias,
									sizeof t->bias),
			       "cublasLtMatmulDescSetAttribute of the bias", p, err);
	if (status)
		return status;
	return blas_check(b, b->api.cublasLtMatmul(b->handle, p->product, &one, first, p->a, second, p->b, &zero, result, p->d,
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

/* --- the matrix product of a pass, and its cuBLASLt algorithms ---
 *
 * cuBLASLt is column-major: rows of c numbers are columns of a c x n matrix, so that it computes y^T = weight x^T. */

static cudaDataType_t data_type(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? CUDA_R_32F : type == GN_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The product d = op(a) op(b), column-major. */
struct product {
	cublasOperation_t a, b;
	int rows[3], columns[3]; /* of a, b, d in memory */
	cudaDataType_t d_type;
	cublasLtEpilogue_t epilogue;
};

/* In columns: d^T = b^T a^T. */
static struct product product_of_batch(const struct gn_blas_batch *l)
{
	return (struct product){
		l->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
		l->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
		{l->b_transposed ? l->depth : l->columns, l->a_transposed ? l->rows : l->depth, l->columns},
		{l->b_transposed ? l->columns : l->depth, l->a_transposed ? l->depth : l->rows, l->rows},
		data_type(l->result_type),
		CUBLASLT_EPILOGUE_DEFAULT,
	};
}

static struct product product_of(const struct gn_blas_plan *p)
{
	int n = p->linear.n, c = p->linear.c, out = p->linear.out_c;
	cudaDataType_t type = data_type(p->linear.type);

	switch (p->pass) {
	case GN_BLAS_BACKWARD_DATA: /* weight y */
		return (struct product){CUBLAS_OP_N, CUBLAS_OP_N, {c, out, c}, {out, n, n}, type, CUBLASLT_EPILOGUE_DEFAULT};
	case GN_BLAS_BACKWARD_WEIGHT: /* x y^T */
		return (struct product){CUBLAS_OP_N, CUBLAS_OP_T, {c, out, c}, {n, n, out}, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT};
	case GN_BLAS_BATCH:
		return product_of_batch(&p->batch);
	case GN_BLAS_BACKWARD_WEIGHT_BIAS:
		return (struct product){CUBLAS_OP_N, CUBLAS_OP_T, {c, out, c}, {n, n, out}, CUDA_R_32F, CUBLASLT_EPILOGUE_BGRADB};
	case GN_BLAS_FORWARD_BIAS: /* weight^T x */
		return (struct product){CUBLAS_OP_T, CUBLAS_OP_N, {c, c, out}, {out, n, n}, type, CUBLASLT_EPILOGUE_BIAS};
	default:
		return (struct product){CUBLAS_OP_T, CUBLAS_OP_N, {c, c, out}, {out, n, n}, type, CUBLASLT_EPILOGUE_DEFAULT};
	}
}

/* The heuristics may look at the presence and the alignment of a bias pointer, which is that of blas.h; they do not read the bias. */
static const uintptr_t any_bias = 16;

static enum gn_status describe_product(struct gn_blas_plan *p, const struct product *q, struct gn_err *err)
{
	struct gn_blas *b = p->blas;
	int fast = p->linear.type == GN_CUDA_F32 && b->options.tf32;
	const struct {
		cublasLtMatmulDescAttributes_t name;
		const void *value;
		size_t bytes;
	} all[] = {
		{CUBLASLT_MATMUL_DESC_TRANSA, &q->a, sizeof q->a},
		{CUBLASLT_MATMUL_DESC_TRANSB, &q->b, sizeof q->b},
		{CUBLASLT_MATMUL_DESC_EPILOGUE, &q->epilogue, sizeof q->epilogue},
		{CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &q->d_type, sizeof q->d_type},
		{CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any_bias, sizeof any_bias},
	};
	size_t count = sizeof all / sizeof *all - (q->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 2 : 0);
	enum gn_status status = blas_check(b, b->api.cublasLtMatmulDescCreate(
		&p->product, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
		"cublasLtMatmulDescCreate", p, err);

	for (size_t i = 0; i < count && !status; i++)
		status = blas_check(b, b->api.cublasLtMatmulDescSetAttribute(p->product, all[i].name, all[i].value, all[i].bytes),
			       "cublasLtMatmulDescSetAttribute", p, err);
	return status;
}

static enum gn_status describe_batch(struct gn_blas_plan *p, cublasLtMatrixLayout_t layout, int32_t count, int64_t step, struct gn_err *err)
{
	__typeof__(cublasLtMatrixLayoutSetAttribute) *set = p->blas->api.cublasLtMatrixLayoutSetAttribute;
	cublasStatus_t code = set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);

	if (!code)
		code = set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
	return blas_check(p->blas, code, "cublasLtMatrixLayoutSetAttribute of a batch", p, err);
}

static enum gn_status describe_matrices(struct gn_blas_plan *p, const struct product *q, struct gn_err *err)
{
	cublasLtMatrixLayout_t *const layouts[3] = {&p->a, &p->b, &p->d};
	cudaDataType_t type = data_type(p->linear.type);
	const struct gn_blas_batch *l = &p->batch;
	const int strides[3] = {l->b_stride, l->a_stride, l->d_stride};
	const int64_t steps[3] = {l->b_step, l->a_step, l->d_step};
	enum gn_status status = GN_OK;

	for (int i = 0; i < 3 && !status; i++) {
		status = blas_check(p->blas, p->blas->api.cublasLtMatrixLayoutCreate(
			layouts[i], i == 2 ? q->d_type : type, (uint64_t)q->rows[i], (uint64_t)q->columns[i],
			l->count ? strides[i] : q->rows[i]), "cublasLtMatrixLayoutCreate", p, err);
		if (!status && l->count)
			status = describe_batch(p, *layouts[i], (int32_t)l->count, steps[i], err);
	}
	return status;
}

/* Restricts the choice: workspace limit, alignment as in blas.h, accumulation in float. */
static enum gn_status prefer(struct gn_blas_plan *p, cublasLtMatmulPreference_t preference, struct gn_err *err)
{
	static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
	const uint32_t sixteen = 16, sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const uint64_t limit = p->blas->options.workspace_limit_bytes;
	__typeof__(cublasLtMatmulPreferenceSetAttribute) *set = p->blas->api.cublasLtMatmulPreferenceSetAttribute;
	cublasStatus_t code = set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);

	if (!code)
		code = set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
	for (size_t i = 0; i < sizeof alignments / sizeof *alignments && !code; i++)
		code = set(preference, alignments[i], &sixteen, sizeof sixteen);
	return blas_check(p->blas, code, "cublasLtMatmulPreferenceSetAttribute", p, err);
}

/* Of what the heuristics return, only algorithms with this state can run. */
static void keep_successful(struct gn_blas_plan *p)
{
	int found = p->count;

	p->count = 0;
	for (int i = 0; i < found; i++)
		if (p->found[i].state == CUBLAS_STATUS_SUCCESS)
			p->found[p->count++] = p->found[i];
}

static enum gn_status find(struct gn_blas_plan *p, struct gn_err *err)
{
	struct gn_blas *b = p->blas;
	cublasLtMatmulPreference_t preference = NULL;
	enum gn_status status = blas_check(b, b->api.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", p,
				      err);

	if (!status)
		status = prefer(p, preference, err);
	if (!status)
		status = blas_check(b, b->api.cublasLtMatmulAlgoGetHeuristic(b->handle, p->product, p->a, p->b, p->d, p->d, preference,
									GN_BLAS_CANDIDATES_MAX, p->found, &p->count),
			       "cublasLtMatmulAlgoGetHeuristic", p, err);
	keep_successful(p);
	if (!status && !p->count)
		status = blas_check(b, CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", p, err);
	if (preference)
		(void)b->api.cublasLtMatmulPreferenceDestroy(preference);
	return status;
}

/* from: what differs between plans. */
static enum gn_status create(struct gn_blas *b, const struct gn_blas_plan *from, struct gn_blas_plan **out, struct gn_err *err)
{
	struct gn_blas_plan *p = calloc(1, sizeof *p);
	struct product q;
	enum gn_status status;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a matrix product");
	*p = *from;
	p->blas = b;
	q = product_of(p);
	status = gn_cuda_enter(b->stream->device, err);
	if (!status)
		status = describe_product(p, &q, err);
	if (!status)
		status = describe_matrices(p, &q, err);
	if (!status)
		status = find(p, err);
	if (status)
		gn_blas_plan_destroy(p);
	else
		*out = p;
	return status;
}

enum gn_status gn_blas_plan_create(struct gn_blas *b, const struct gn_blas_linear *linear, enum gn_blas_pass pass,
				   struct gn_blas_plan **out, struct gn_err *err)
{
	const struct gn_blas_plan from = {.linear = *linear, .pass = pass};

	return create(b, &from, out, err);
}

enum gn_status gn_blas_batch_create(struct gn_blas *b, const struct gn_blas_batch *batch, struct gn_blas_plan **out, struct gn_err *err)
{
	const struct gn_blas_plan from = {.linear.type = batch->type, .batch = *batch, .pass = GN_BLAS_BATCH};

	return create(b, &from, out, err);
}

void gn_blas_plan_destroy(struct gn_blas_plan *p)
{
	if (!p)
		return;
	if (p->product)
		(void)p->blas->api.cublasLtMatmulDescDestroy(p->product);
	if (p->a)
		(void)p->blas->api.cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		(void)p->blas->api.cublasLtMatrixLayoutDestroy(p->b);
	if (p->d)
		(void)p->blas->api.cublasLtMatrixLayoutDestroy(p->d);
	free(p);
}

size_t gn_blas_plan_workspace_bytes(const struct gn_blas_plan *p)
{
	size_t most = 0;

	for (int i = 0; i < p->count; i++)
		most = p->found[i].workspaceSize > most ? p->found[i].workspaceSize : most;
	return most;
}
