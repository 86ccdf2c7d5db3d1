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

enum gn_status gn_cuda_pin(const struct gn_cuda_device *d, void *memory, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(d, err);

	if (!status)
		status = gn_cuda_check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister", d->info.ordinal, err);
	return status ? GN_ERR_UNSUPPORTED : GN_OK;
}

void gn_cuda_unpin(const struct gn_cuda_device *d, void *memory)
{
	if (!gn_cuda_enter(d, NULL))
		(void)gn_cuda_check(cudaHostUnregister(memory), "cudaHostUnregister", d->info.ordinal, NULL);
}
