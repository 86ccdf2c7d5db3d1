/* What kernels/cuda shares inside: the objects of device.h, and how an error of CUDA becomes one of ours.
 *
 * Thread safety: as device.h.
 */
#ifndef GN_KERNELS_CUDA_DEVICE_INTERNAL_H
#define GN_KERNELS_CUDA_DEVICE_INTERNAL_H

#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_cuda_device {
	struct gn_cuda_info info;
};

struct gn_cuda_stream {
	const struct gn_cuda_device *device;
	cudaStream_t native;
};

/* GN_OK for cudaSuccess, else the status that fits, with the call, the device (below 0: none yet) and CUDA's text in
 * err. */
enum gn_status gn_cuda_check(cudaError_t code, const char *call, int ordinal, struct gn_err *err);
/* Every function on a device begins with it: the current device belongs to the thread. */
enum gn_status gn_cuda_enter(const struct gn_cuda_device *d, struct gn_err *err);
/* GN_OK when this build has code for the calling thread's current device. */
enum gn_status gn_cuda_kernels_probe(int ordinal, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
