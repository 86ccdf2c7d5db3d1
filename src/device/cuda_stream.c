#include "src/device/cuda_native.h"

#include <stdlib.h>

enum gn_status gn_cuda_stream_create(const struct gn_cuda_device *d, struct gn_cuda_stream **out, struct gn_err *err)
{
	struct gn_cuda_stream *s;
	enum gn_status status = gn_cuda_enter(d, err);

	if (status)
		return status;
	if (!(s = calloc(1, sizeof *s)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: no memory for a stream", d->info.ordinal);
	s->base.device = (struct gn_device *)d;
	s->device = d;
	status = gn_cuda_check(cudaStreamCreateWithFlags(&s->native, cudaStreamNonBlocking),
			       "cudaStreamCreateWithFlags", d->info.ordinal, err);
	if (status)
		free(s);
	else
		*out = s;
	return status;
}

/* Failures of releasing are not reported: the end of the process frees all. */
void gn_cuda_stream_destroy(struct gn_cuda_stream *s)
{
	if (!s)
		return;
	if (!gn_cuda_enter(s->device, NULL)) {
		(void)gn_cuda_check(cudaStreamSynchronize(s->native), "cudaStreamSynchronize", -1, NULL);
		(void)gn_cuda_check(cudaStreamDestroy(s->native), "cudaStreamDestroy", -1, NULL);
	}
	free(s);
}

const struct gn_cuda_device *gn_cuda_stream_device(const struct gn_cuda_stream *s)
{
	return s->device;
}

enum gn_status gn_cuda_stream_wait(struct gn_cuda_stream *s, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status)
		return status;
	return gn_cuda_check(cudaStreamSynchronize(s->native), "cudaStreamSynchronize", s->device->info.ordinal, err);
}

enum gn_status gn_cuda_copy(struct gn_cuda_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status || bytes == 0)
		return status;
	return gn_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->native), "cudaMemcpyAsync",
			     s->device->info.ordinal, err);
}

enum gn_status gn_cuda_fill(struct gn_cuda_stream *s, void *to, int byte, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status || bytes == 0)
		return status;
	return gn_cuda_check(cudaMemsetAsync(to, byte, bytes, s->native), "cudaMemsetAsync", s->device->info.ordinal,
			     err);
}
