/* Converts errors of the CUDA runtime, for the files of transport/ that are built with CUDA. Thread safety: any thread. */
#ifndef GN_TRANSPORT_NCCL_GPU_CALL_H
#define GN_TRANSPORT_NCCL_GPU_CALL_H

#include "src/base/status.h"

#include <cuda_runtime_api.h>

/* The status of a call that returned code; GN_OK for cudaSuccess. The text names the device and the call. */
static inline enum gn_status gn_gpu_call(cudaError_t code, const char *call, int ordinal, struct gn_err *err)
{
	enum gn_status status = code == cudaErrorMemoryAllocation ? GN_ERR_NO_MEMORY
				: code == cudaErrorInvalidDevice  ? GN_ERR_USAGE
				: code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ? GN_ERR_UNSUPPORTED
												  : GN_ERR_FAILED;

	if (code == cudaSuccess)
		return GN_OK;
	/* reset an error that is not sticky: the next cudaGetLastError() would report it again */
	(void)cudaGetLastError();
	return gn_err_set(err, status, "cuda:%d: %s: %s (%s)", ordinal, call, cudaGetErrorString(code), cudaGetErrorName(code));
}

#endif
