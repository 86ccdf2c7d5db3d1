#include "src/device/device_internal.h"

void gn_device_close(struct gn_device *d)
{
	if (d)
		d->kind->close(d);
}

const char *gn_device_name(const struct gn_device *d)
{
	return d->name;
}

const char *gn_device_model(const struct gn_device *d)
{
	return d->model;
}

const char *gn_device_address(const struct gn_device *d)
{
	return d->address;
}

int gn_device_ordinal(const struct gn_device *d)
{
	return d->ordinal;
}

int gn_device_is_queued(const struct gn_device *d)
{
	return d->kind->queued;
}

enum gn_status gn_device_memory(const struct gn_device *d, size_t *free_bytes, size_t *total_bytes, struct gn_err *err)
{
	return d->kind->memory(d, free_bytes, total_bytes, err);
}

enum gn_status gn_stream_create(struct gn_device *d, struct gn_stream **out, struct gn_err *err)
{
	return d->kind->stream_create(d, out, err);
}

void gn_stream_destroy(struct gn_stream *s)
{
	if (s)
		s->device->kind->stream_destroy(s);
}

struct gn_device *gn_stream_device(const struct gn_stream *s)
{
	return s->device;
}

enum gn_status gn_stream_wait(struct gn_stream *s, struct gn_err *err)
{
	return s->device->kind->queued ? s->device->kind->stream_wait(s, err) : GN_OK;
}

enum gn_status gn_stream_after(struct gn_stream *s, const struct gn_event *event, struct gn_err *err)
{
	return s->device->kind->queued ? s->device->kind->stream_after(s, event, err) : GN_OK;
}

enum gn_status gn_stream_copy(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	return s->device->kind->stream_copy(s, to, from, bytes, err);
}

enum gn_status gn_event_create(struct gn_device *d, struct gn_event **out, struct gn_err *err)
{
	return d->kind->event_create(d, 0, out, err);
}

enum gn_status gn_event_create_timed(struct gn_device *d, struct gn_event **out, struct gn_err *err)
{
	return d->kind->event_create(d, 1, out, err);
}

enum gn_status gn_event_between(const struct gn_event *from, const struct gn_event *to, double *out_ms, struct gn_err *err)
{
	return from->device->kind->event_between(from, to, out_ms, err);
}

void gn_event_destroy(struct gn_event *e)
{
	if (e)
		e->device->kind->event_destroy(e);
}

enum gn_status gn_event_record(struct gn_event *e, struct gn_stream *s, struct gn_err *err)
{
	return e->device->kind->event_record(e, s, err);
}

enum gn_status gn_event_wait(struct gn_event *e, struct gn_err *err)
{
	return e->device->kind->queued ? e->device->kind->event_wait(e, err) : GN_OK;
}

enum gn_status gn_event_done(const struct gn_event *e, int *out, struct gn_err *err)
{
	*out = 1;
	return e->device->kind->queued ? e->device->kind->event_done(e, out, err) : GN_OK;
}

void *gn_event_native(const struct gn_event *e)
{
	return e->device->kind->queued ? e->device->kind->event_native(e) : NULL;
}

enum gn_status gn_buffer_alloc(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err)
{
	struct gn_buffer made = {d, NULL, bytes, NULL};
	enum gn_status status = d->kind->buffer_alloc(d, bytes, &made, err);

	*b = status ? (struct gn_buffer){NULL, NULL, 0, NULL} : made;
	return status;
}

void gn_buffer_free(struct gn_buffer *b)
{
	if (b->device)
		b->device->kind->buffer_free(b);
	*b = (struct gn_buffer){NULL, NULL, 0, NULL};
}

enum gn_status gn_pinned_alloc(struct gn_device *d, size_t bytes, void **out, struct gn_err *err)
{
	return d->kind->pinned_alloc(d, bytes, out, err);
}

void gn_pinned_free(struct gn_device *d, void *pinned)
{
	if (pinned)
		d->kind->pinned_free(d, pinned);
}

enum gn_status gn_device_pin(struct gn_device *d, void *memory, size_t bytes, struct gn_err *err)
{
	return d->kind->queued ? d->kind->pin(d, memory, bytes, err) : GN_OK;
}

void gn_device_unpin(struct gn_device *d, void *memory)
{
	if (d->kind->queued)
		d->kind->unpin(d, memory);
}
