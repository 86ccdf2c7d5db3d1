/* A GPU as a device: device.h by the calls of cuda.h. */
#include "src/device/cuda_native.h"

#include <stdlib.h>

struct cuda_event {
	struct gn_event base;
	cudaEvent_t native;
};

static cudaEvent_t native_of(const struct gn_event *e)
{
	return ((const struct cuda_event *)e)->native;
}

static enum gn_status check(const struct gn_device *d, cudaError_t code, const char *call, struct gn_err *err)
{
	return gn_cuda_check(code, call, d->ordinal, err);
}

static enum gn_status enter(const struct gn_device *d, struct gn_err *err)
{
	return gn_cuda_enter((const struct gn_cuda_device *)d, err);
}

static void cuda_close(struct gn_device *d)
{
	gn_cuda_device_destroy(gn_cuda_device_of(d));
}

static enum gn_status cuda_memory(const struct gn_device *d, size_t *free_bytes, size_t *total_bytes, struct gn_err *err)
{
	return gn_cuda_device_memory((const struct gn_cuda_device *)d, free_bytes, total_bytes, err);
}

static enum gn_status cuda_stream_create(struct gn_device *d, struct gn_stream **out, struct gn_err *err)
{
	struct gn_cuda_stream *s;
	enum gn_status status = gn_cuda_stream_create(gn_cuda_device_of(d), &s, err);

	if (!status)
		*out = &s->base;
	return status;
}

static void cuda_stream_destroy(struct gn_stream *s)
{
	gn_cuda_stream_destroy(gn_cuda_stream_of(s));
}

static enum gn_status cuda_stream_wait(struct gn_stream *s, struct gn_err *err)
{
	return gn_cuda_stream_wait(gn_cuda_stream_of(s), err);
}

static enum gn_status cuda_stream_after(struct gn_stream *s, const struct gn_event *event, struct gn_err *err)
{
	enum gn_status status = enter(s->device, err);

	return status ? status : check(s->device, cudaStreamWaitEvent(gn_cuda_stream_of(s)->native, native_of(event), 0), "cudaStreamWaitEvent", err);
}

static enum gn_status cuda_stream_copy(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	return gn_cuda_copy(gn_cuda_stream_of(s), to, from, bytes, err);
}

static enum gn_status cuda_event_create(struct gn_device *d, int timed, struct gn_event **out, struct gn_err *err)
{
	struct cuda_event *e;
	enum gn_status status = enter(d, err);

	if (status)
		return status;
	if (!(e = calloc(1, sizeof *e)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for an event", d->name);
	e->base.device = d;
	status = check(d, cudaEventCreateWithFlags(&e->native, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags",
		       err);
	if (status)
		free(e);
	else
		*out = &e->base;
	return status;
}

static void cuda_event_destroy(struct gn_event *e)
{
	if (!enter(e->device, NULL))
		(void)check(e->device, cudaEventDestroy(native_of(e)), "cudaEventDestroy", NULL);
	free(e);
}

static enum gn_status cuda_event_record(struct gn_event *e, struct gn_stream *s, struct gn_err *err)
{
	enum gn_status status = enter(e->device, err);

	return status ? status : check(e->device, cudaEventRecord(native_of(e), gn_cuda_stream_of(s)->native), "cudaEventRecord", err);
}

static enum gn_status cuda_event_wait(struct gn_event *e, struct gn_err *err)
{
	enum gn_status status = enter(e->device, err);

	return status ? status : check(e->device, cudaEventSynchronize(native_of(e)), "cudaEventSynchronize", err);
}

static enum gn_status cuda_event_done(const struct gn_event *e, int *out, struct gn_err *err)
{
	enum gn_status status = enter(e->device, err);
	cudaError_t code;

	if (status)
		return status;
	code = cudaEventQuery(native_of(e));
	if (code != cudaErrorNotReady && (status = check(e->device, code, "cudaEventQuery", err)))
		return status;
	if (code == cudaErrorNotReady)
		(void)cudaGetLastError();
	*out = code == cudaSuccess;
	return GN_OK;
}

static enum gn_status cuda_event_between(const struct gn_event *from, const struct gn_event *to, double *out_ms, struct gn_err *err)
{
	enum gn_status status = enter(from->device, err);
	float ms = 0;

	if (!status)
		status = check(from->device, cudaEventElapsedTime(&ms, native_of(from), native_of(to)), "cudaEventElapsedTime", err);
	if (!status)
		*out_ms = (double)ms;
	return status;
}

static void *cuda_event_native(const struct gn_event *e)
{
	return native_of(e);
}

static enum gn_status cuda_buffer_alloc(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err)
{
	struct gn_cuda_arena *arena;
	size_t whole = (bytes + GN_CUDA_ALIGN_BYTES) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
	enum gn_status status = gn_cuda_arena_create(gn_cuda_device_of(d), whole, &arena, err);

	if (status)
		return status;
	b->address = gn_cuda_arena_take(arena, bytes);
	b->block = arena;
	if (b->address)
		return GN_OK;
	gn_cuda_arena_destroy(arena);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no %zu bytes of its memory", d->name, bytes);
}

static void cuda_buffer_free(struct gn_buffer *b)
{
	gn_cuda_arena_destroy((struct gn_cuda_arena *)b->block);
}

static enum gn_status cuda_pinned_alloc(struct gn_device *d, size_t bytes, void **out, struct gn_err *err)
{
	enum gn_status status = enter(d, err);
	void *pinned = NULL;

	if (status)
		return status;
	status = check(d, cudaHostAlloc(&pinned, bytes ? bytes : 1, cudaHostAllocPortable), "cudaHostAlloc", err);
	if (status)
		return gn_err_prefix(err, "%zu bytes of pinned memory", bytes), status;
	*out = pinned;
	return GN_OK;
}

static void cuda_pinned_free(struct gn_device *d, void *pinned)
{
	if (!enter(d, NULL))
		(void)check(d, cudaFreeHost(pinned), "cudaFreeHost", NULL);
}

static enum gn_status cuda_pin(struct gn_device *d, void *memory, size_t bytes, struct gn_err *err)
{
	enum gn_status status = enter(d, err);

	if (!status)
		status = check(d, cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister", err);
	return status ? GN_ERR_UNSUPPORTED : GN_OK;
}

static void cuda_unpin(struct gn_device *d, void *memory)
{
	if (!enter(d, NULL))
		(void)check(d, cudaHostUnregister(memory), "cudaHostUnregister", NULL);
}

static enum gn_status cuda_record_begin(struct gn_stream *s, struct gn_err *err)
{
	return gn_cuda_graph_begin(gn_cuda_stream_of(s), err);
}

static enum gn_status cuda_record_end(struct gn_stream *s, struct gn_graph **out, size_t *nodes, struct gn_err *err)
{
	struct gn_cuda_graph *g = NULL;
	enum gn_status status = gn_cuda_graph_end(gn_cuda_stream_of(s), out ? &g : NULL, nodes, err);

	if (!status && out)
		*out = (struct gn_graph *)g;
	return status;
}

static enum gn_status cuda_graph_launch(struct gn_graph *g, struct gn_stream *s, struct gn_err *err)
{
	return gn_cuda_graph_launch((struct gn_cuda_graph *)g, gn_cuda_stream_of(s), err);
}

static void cuda_graph_destroy(struct gn_graph *g)
{
	gn_cuda_graph_destroy((struct gn_cuda_graph *)g);
}

const struct gn_device_kind gn_cuda_device_kind = {
	.queued = 1, .close = cuda_close, .memory = cuda_memory, .stream_create = cuda_stream_create, .stream_destroy = cuda_stream_destroy,
	.stream_wait = cuda_stream_wait, .stream_after = cuda_stream_after, .stream_copy = cuda_stream_copy,
	.event_create = cuda_event_create, .event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record, .event_wait = cuda_event_wait, .event_done = cuda_event_done,
	.event_between = cuda_event_between, .event_native = cuda_event_native, .buffer_alloc = cuda_buffer_alloc, .buffer_free = cuda_buffer_free,
	.pinned_alloc = cuda_pinned_alloc, .pinned_free = cuda_pinned_free, .pin = cuda_pin, .unpin = cuda_unpin, .record_begin = cuda_record_begin,
	.record_end = cuda_record_end, .graph_launch = cuda_graph_launch, .graph_destroy = cuda_graph_destroy,
};

enum gn_status gn_device_open_cuda(int ordinal, struct gn_device **out, struct gn_err *err)
{
	struct gn_cuda_device *d;
	enum gn_status status = gn_cuda_device_create(ordinal, &d, err);

	if (!status)
		*out = &d->base;
	return status;
}
