#include "src/device/cuda_native.h"

#include <stdlib.h>

struct gn_cuda_arena {
	const struct gn_cuda_device *device;
	char *base;
	size_t capacity, used;
};

static enum gn_status too_little(const struct gn_cuda_device *d, size_t wanted, struct gn_err *err)
{
	size_t unused, total;
	enum gn_status status = gn_cuda_device_memory(d, &unused, &total, err);

	if (status)
		return status;
	return gn_err_set(err, GN_ERR_NO_MEMORY,
			  "cuda:%d: cudaMalloc: %zu MiB wanted, %zu of %zu MiB are free; use a smaller "
			  "batch, or free the GPU of other processes (nvidia-smi)",
			  d->info.ordinal, wanted >> 20, unused >> 20, total >> 20);
}

enum gn_status gn_cuda_arena_create(const struct gn_cuda_device *d, size_t capacity_bytes, struct gn_cuda_arena **out,
				    struct gn_err *err)
{
	struct gn_cuda_stream *zeroing = NULL;
	struct gn_cuda_arena *a;
	enum gn_status status = gn_cuda_enter(d, err);
	void *base = NULL;
	cudaError_t code;

	if (status)
		return status;
	if (!(a = calloc(1, sizeof *a)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: no memory for an arena", d->info.ordinal);
	code = cudaMalloc(&base, capacity_bytes ? capacity_bytes : 1);
	status = gn_cuda_check(code, "cudaMalloc", d->info.ordinal, err);
	if (status == GN_ERR_NO_MEMORY)
		status = too_little(d, capacity_bytes, err);
	if (status)
		goto fail;
	*a = (struct gn_cuda_arena){d, base, capacity_bytes, 0};
	/* a stream of its own: no thread may wait for a device while another one records a stream of it */
	status = gn_cuda_stream_create(d, &zeroing, err);
	if (!status)
		status = gn_cuda_fill(zeroing, base, 0, capacity_bytes, err);
	if (!status)
		status = gn_cuda_stream_wait(zeroing, err);
	gn_cuda_stream_destroy(zeroing);
	if (status)
		goto fail;
	*out = a;
	return GN_OK;
fail:
	if (base)
		(void)gn_cuda_check(cudaFree(base), "cudaFree", -1, NULL);
	free(a);
	return status;
}

void gn_cuda_arena_destroy(struct gn_cuda_arena *a)
{
	if (!a)
		return;
	if (!gn_cuda_enter(a->device, NULL))
		(void)gn_cuda_check(cudaFree(a->base), "cudaFree", -1, NULL);
	free(a);
}

void *gn_cuda_arena_take(struct gn_cuda_arena *a, size_t bytes)
{
	size_t rounded = (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
	char *piece = a->base + a->used;

	if (rounded < bytes || rounded > a->capacity - a->used)
		return NULL;
	a->used += rounded;
	return piece;
}

void gn_cuda_arena_empty(struct gn_cuda_arena *a)
{
	a->used = 0;
}
