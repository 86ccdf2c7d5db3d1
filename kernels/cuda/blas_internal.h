/* The entry points of cuBLASLt, loaded at run time, and its errors. Private to kernels/cuda/blas*.c. */
#ifndef GN_KERNELS_CUDA_BLAS_INTERNAL_H
#define GN_KERNELS_CUDA_BLAS_INTERNAL_H

#include "kernels/cuda/blas.h"
#include "src/device/cuda_native.h"

#include <cublasLt.h>

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

/* GN_OK for success; else sets err with the call, cuBLASLt's name of the error, the shape and the device. p NULL: without a
 * shape. */
enum gn_status gn_blas_check(const struct gn_blas *b, cublasStatus_t code, const char *call, const struct gn_blas_plan *p,
			     struct gn_err *err);

#endif
