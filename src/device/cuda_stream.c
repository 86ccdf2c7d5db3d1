#include "src/device/cuda_native.h"

#include <stdlib.h>

struct gn_cuda_event {
	struct gn_event base;
	const struct gn_cuda_device *device;
	cudaEvent_t native;
};

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

enum gn_status gn_cuda_stream_after(struct gn_cuda_stream *s, const struct gn_cuda_event *event, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status)
		return status;
	return gn_cuda_check(cudaStreamWaitEvent(s->native, event->native, 0), "cudaStreamWaitEvent",
			     s->device->info.ordinal, err);
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

enum gn_status gn_cuda_event_create(const struct gn_cuda_device *d, int timed, struct gn_cuda_event **out,
				    struct gn_err *err)
{
	struct gn_cuda_event *e;
	enum gn_status status = gn_cuda_enter(d, err);

	if (status)
		return status;
	if (!(e = calloc(1, sizeof *e)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: no memory for an event", d->info.ordinal);
	e->base.device = (struct gn_device *)d;
	e->device = d;
	status = gn_cuda_check(cudaEventCreateWithFlags(&e->native, timed ? cudaEventDefault : cudaEventDisableTiming),
			       "cudaEventCreateWithFlags", d->info.ordinal, err);
	if (status)
		free(e);
	else
		*out = e;
	return status;
}

void gn_cuda_event_destroy(struct gn_cuda_event *e)
{
	if (!e)
		return;
	if (!gn_cuda_enter(e->device, NULL))
		(void)gn_cuda_check(cudaEventDestroy(e->native), "cudaEventDestroy", -1, NULL);
	free(e);
}

enum gn_status gn_cuda_event_record(struct gn_cuda_event *e, struct gn_cuda_stream *s, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(e->device, err);

	if (status)
		return status;
	return gn_cuda_check(cudaEventRecord(e->native, s->native), "cudaEventRecord", e->device->info.ordinal, err);
}

void *gn_cuda_event_native(const struct gn_cuda_event *e)
{
	return e->native;
}

enum gn_status gn_cuda_event_wait(struct gn_cuda_event *e, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(e->device, err);

	if (status)
		return status;
	return gn_cuda_check(cudaEventSynchronize(e->native), "cudaEventSynchronize", e->device->info.ordinal, err);
}

enum gn_status gn_cuda_event_done(const struct gn_cuda_event *e, int *out, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(e->device, err);
	cudaError_t code;

	if (status)
		return status;
	code = cudaEventQuery(e->native);
	if (code != cudaErrorNotReady && (status = gn_cuda_check(code, "cudaEventQuery", e->device->info.ordinal, err)))
		return status;
	if (code == cudaErrorNotReady)
		(void)cudaGetLastError();
	*out = code == cudaSuccess;
	return GN_OK;
}

enum gn_status gn_cuda_event_between(const struct gn_cuda_event *from, const struct gn_cuda_event *to, float *out_ms,
				     struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(from->device, err);
	float ms = 0;

	if (status || (status = gn_cuda_check(cudaEventElapsedTime(&ms, from->native, to->native),
					      "cudaEventElapsedTime", from->device->info.ordinal, err)))
		return status;
	*out_ms = ms;
	return GN_OK;
}
