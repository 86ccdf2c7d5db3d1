#include "src/device/cuda_native.h"

enum gn_status gn_cuda_pinned_alloc(const struct gn_cuda_device *d, size_t bytes, void **out, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(d, err);
	void *pinned = NULL;

	if (status)
		return status;
	status = gn_cuda_check(cudaHostAlloc(&pinned, bytes ? bytes : 1, cudaHostAllocPortable), "cudaHostAlloc",
			       d->info.ordinal, err);
	if (status)
		return gn_err_prefix(err, "%zu bytes of pinned memory", bytes), status;
	*out = pinned;
	return GN_OK;
}

void gn_cuda_pinned_free(const struct gn_cuda_device *d, void *pinned)
{
	if (pinned && !gn_cuda_enter(d, NULL))
		(void)gn_cuda_check(cudaFreeHost(pinned), "cudaFreeHost", -1, NULL);
}
