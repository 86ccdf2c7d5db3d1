/* How an error of the CUDA runtime becomes one of ours, for the files of transport/ that are built with CUDA. No state. */
#ifndef GN_TRANSPORT_NCCL_GPU_CALL_H
#define GN_TRANSPORT_NCCL_GPU_CALL_H

#include "src/base/status.h"

#include <cuda_runtime_api.h>

/* GN_OK for cudaSuccess. */
static inline enum gn_status gn_gpu_call(cudaError_t code, const char *call, int ordinal, struct gn_err *err)
{
	enum gn_status status = code == cudaErrorMemoryAllocation ? GN_ERR_NO_MEMORY
				: code == cudaErrorInvalidDevice  ? GN_ERR_USAGE
				: code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ? GN_ERR_UNSUPPORTED
												  : GN_ERR_FAILED;

	if (code == cudaSuccess)
		return GN_OK;
	/* what is not sticky would be reported once more by the next look at the last error */
	(void)cudaGetLastError();
	return gn_err_set(err, status, "cuda:%d: %s: %s (%s)", ordinal, call, cudaGetErrorString(code), cudaGetErrorName(code));
}

#endif
