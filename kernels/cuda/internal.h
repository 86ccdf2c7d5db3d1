/* What kernels/cuda shares inside: the objects of device.h, and how an error of CUDA becomes one of ours.
 *
 * Thread safety: as device.h.
 */
#ifndef GN_KERNELS_CUDA_INTERNAL_H
#define GN_KERNELS_CUDA_INTERNAL_H

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
/* Several ways to do the same, each by its number. */
struct gn_cuda_ways {
	int count;
	enum gn_status (*run)(void *context, int way, struct gn_err *err); /* queues */
	void *context;
};

/* Runs every way a few times, waits, and says which is fastest; one that cannot run is passed over, as long as another can. */
enum gn_status gn_cuda_fastest(struct gn_cuda_stream *s, const struct gn_cuda_ways *ways, int *out, struct gn_err *err);
/* GN_OK when this build has code for the calling thread's current device. */
enum gn_status gn_cuda_kernels_probe(int ordinal, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
