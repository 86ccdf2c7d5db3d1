/* CUDA's own handles, for what calls the CUDA runtime itself (src/device and kernels/cuda), and how its errors become ours.
 *
 * Thread safety: as cuda.h.
 */
#ifndef GN_DEVICE_CUDA_NATIVE_H
#define GN_DEVICE_CUDA_NATIVE_H

#include "src/device/cuda.h"
#include "src/device/device_internal.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gn_cuda_device {
	struct gn_device base;
	struct gn_cuda_info info;
};

/* cuda_kind.c */
extern const struct gn_device_kind gn_cuda_device_kind;

struct gn_cuda_stream {
	struct gn_stream base;
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
