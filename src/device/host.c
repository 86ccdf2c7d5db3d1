/* The host as a device: everything has happened when a call returns, and nothing costs more than doing it. */
#include "src/device/device_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void host_close(struct gn_device *d)
{
	free(d);
}

static enum gn_status host_memory(const struct gn_device *d, size_t *free_bytes, size_t *total_bytes, struct gn_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)d;
	(void)err;
	*free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
	*total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page;
	return GN_OK;
}

static enum gn_status host_stream_create(struct gn_device *d, struct gn_stream **out, struct gn_err *err)
{
	struct gn_stream *s = calloc(1, sizeof *s);

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a stream");
	s->device = d;
	*out = s;
	return GN_OK;
}

static void host_stream_destroy(struct gn_stream *s)
{
	free(s);
}

static enum gn_status host_stream_copy(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	(void)s;
	(void)err;
	if (bytes && to != from)
		memcpy(to, from, bytes);
	return GN_OK;
}

struct host_event {
	struct gn_event base;
	uint64_t recorded_ns;
};

static enum gn_status host_event_create(struct gn_device *d, int timed, struct gn_event **out, struct gn_err *err)
{
	struct host_event *e = calloc(1, sizeof *e);

	(void)timed;
	if (!e)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an event");
	e->base.device = d;
	*out = &e->base;
	return GN_OK;
}

static void host_event_destroy(struct gn_event *e)
{
	free(e);
}

static enum gn_status host_event_record(struct gn_event *e, struct gn_stream *s, struct gn_err *err)
{
	(void)s;
	(void)err;
	((struct host_event *)e)->recorded_ns = gn_clock_ns();
	return GN_OK;
}

static enum gn_status host_event_between(const struct gn_event *from, const struct gn_event *to, double *out_ms, struct gn_err *err)
{
	const struct host_event *a = (const struct host_event *)from, *b = (const struct host_event *)to;

	(void)err;
	*out_ms = ((double)b->recorded_ns - (double)a->recorded_ns) * 1e-6;
	return GN_OK;
}

/* Pages come when they are first touched, by the threads that work there. */
static enum gn_status host_buffer_alloc(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err)
{
	(void)d;
	b->address = gn_pages_map(bytes ? bytes : 1);
	if (!b->address)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no %.1f MB of memory", (double)bytes / 1e6);
	return GN_OK;
}

static void host_buffer_free(struct gn_buffer *b)
{
	gn_pages_unmap(b->address, b->bytes ? b->bytes : 1);
}

static enum gn_status host_pinned_alloc(struct gn_device *d, size_t bytes, void **out, struct gn_err *err)
{
	(void)d;
	*out = gn_alloc_aligned(bytes ? bytes : 1);
	return *out ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no %zu bytes of memory", bytes);
}

static void host_pinned_free(struct gn_device *d, void *pinned)
{
	(void)d;
	free(pinned);
}

struct gn_device *gn_device_open_host(void)
{
	static const struct gn_device_kind host = {
		.close = host_close, .memory = host_memory, .stream_create = host_stream_create, .stream_destroy = host_stream_destroy,
		.stream_copy = host_stream_copy, .event_create = host_event_create, .event_destroy = host_event_destroy,
		.event_record = host_event_record, .event_between = host_event_between, .buffer_alloc = host_buffer_alloc,
		.buffer_free = host_buffer_free, .pinned_alloc = host_pinned_alloc, .pinned_free = host_pinned_free,
	};
	struct gn_device *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->kind = &host;
	memcpy(d->name, "host", sizeof "host");
	return d;
}
