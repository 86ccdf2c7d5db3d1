/* Stands for src/device/cuda_arena.c where the GPU is emulated: every piece by itself, so that who leaves one is seen by the page behind it
 * or by AddressSanitizer. It is as full as one block would be. Thread safety: as device.h. */
#include "src/device/cuda_native.h"

#include <stdlib.h>

#define PIECES_MAX 4096

struct gn_cuda_arena {
	const struct gn_cuda_device *device;
	struct gn_cuda_stream *zeroing;
	size_t capacity, used;
	void *pieces[PIECES_MAX];
	int count;
};

enum gn_status gn_cuda_arena_create(const struct gn_cuda_device *d, size_t capacity_bytes, struct gn_cuda_arena **out,
				    struct gn_err *err)
{
	struct gn_cuda_arena *a = calloc(1, sizeof *a);
	enum gn_status status;

	if (!a)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an arena");
	a->device = d;
	a->capacity = capacity_bytes;
	status = gn_cuda_stream_create(d, &a->zeroing, err);
	if (status)
		free(a);
	else
		*out = a;
	return status;
}

void *gn_cuda_arena_take(struct gn_cuda_arena *a, size_t bytes)
{
	size_t whole = (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
	void **piece = &a->pieces[a->count];

	bytes = bytes ? bytes : 1;
	if (whole > a->capacity - a->used || a->count == PIECES_MAX || gn_cuda_enter(a->device, NULL) ||
	    cudaMalloc(piece, bytes) != cudaSuccess)
		return NULL;
	a->used += whole;
	a->count++;
	return gn_cuda_fill(a->zeroing, *piece, 0, bytes, NULL) || gn_cuda_stream_wait(a->zeroing, NULL) ? NULL : *piece;
}

void gn_cuda_arena_empty(struct gn_cuda_arena *a)
{
	if (gn_cuda_enter(a->device, NULL))
		return;
	while (a->count > 0)
		(void)cudaFree(a->pieces[--a->count]);
	a->used = 0;
}

void gn_cuda_arena_destroy(struct gn_cuda_arena *a)
{
	if (!a)
		return;
	gn_cuda_arena_empty(a);
	gn_cuda_stream_destroy(a->zeroing);
	free(a);
}
