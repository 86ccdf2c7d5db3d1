#include "tests/transport/late_device.h"

#include "src/base/clock.h"
#include "src/device/device_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE = 4096 };

/* The program queues and waits while a progress thread asks for events. Held inside the calls of device.h. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct late_device {
	struct gn_device base;
	struct late_device_options options;
	uint64_t random, works;
};

struct late_stream;

/* Done when the work before `position` of its stream is. */
struct late_event {
	struct gn_event base;
	struct late_stream *stream; /* NULL: never recorded */
	uint64_t position;
};

struct work {
	gn_reduce_fn reduce; /* NULL: a copy */
	void *to;
	const void *from;
	size_t count; /* of a copy bytes */
	struct late_stream *after; /* waits for that: no other work */
	uint64_t position;
	uint64_t pause_ns;
};

struct late_stream {
	struct gn_stream base;
	struct work queue[QUEUE];
	uint64_t queued, done, began_ns; /* began_ns: of the pause of the next piece; 0: none */
};

static struct late_device *device_of(struct gn_device *d)
{
	return (struct late_device *)d;
}

static uint64_t next_random(struct late_device *d)
{
	d->random = d->random * 6364136223846793005u + 1442695040888963407u;
	return d->random >> 33;
}

static enum gn_status do_work(struct late_device *d, const struct work *w, struct gn_err *err)
{
	if (++d->works == (uint64_t)d->options.fail_at)
		return gn_err_set(err, GN_ERR_FAILED, "work number %llu failed on purpose", (unsigned long long)d->works);
	if (d->options.slow)
		d->options.slow();
	if (w->reduce)
		w->reduce(w->to, w->from, w->count);
	else
		memcpy(w->to, w->from, w->count);
	return GN_OK;
}

/* A step of the stream: at most one piece of work. */
static enum gn_status advance(struct late_stream *s, struct gn_err *err)
{
	struct late_device *d = device_of(s->base.device);
	struct work *w = &s->queue[s->done % QUEUE];

	if (s->done == s->queued)
		return GN_OK;
	if (w->after && w->after->done < w->position)
		return advance(w->after, err);
	if (w->after) {
		s->done++;
		return GN_OK;
	}
	if (!s->began_ns)
		s->began_ns = gn_clock_ns();
	if (gn_clock_ns() - s->began_ns < w->pause_ns)
		return GN_OK;
	s->began_ns = 0;
	s->done++;
	return do_work(d, w, err);
}

static enum gn_status finish(struct late_stream *s, uint64_t position, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	while (s->done < position && !status)
		status = advance(s, err);
	return status;
}

static enum gn_status queue(struct gn_stream *base, struct work work, struct gn_err *err)
{
	struct late_stream *s = (struct late_stream *)base;
	struct late_device *d = device_of(base->device);
	int most = d->options.pause_max_us;
	enum gn_status status;

	pthread_mutex_lock(&lock);
	status = s->queued - s->done == QUEUE ? finish(s, s->done + 1, err) : GN_OK;
	work.pause_ns = 1000u * (most ? next_random(d) % (uint64_t)most : 0);
	s->queue[s->queued++ % QUEUE] = work;
	pthread_mutex_unlock(&lock);
	return status;
}

enum gn_status late_device_reduce(struct gn_stream *s, enum gn_dtype type, enum gn_reduction reduction, void *to, const void *from,
				  size_t count, struct gn_err *err)
{
	if (!gn_reduce_of(type, reduction))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "there is no such reduction");
	return count ? queue(s, (struct work){.reduce = gn_reduce_of(type, reduction), .to = to, .from = from, .count = count}, err) : GN_OK;
}

/* --- the calls of device.h --- */

static void late_close(struct gn_device *d)
{
	free(d);
}

static enum gn_status stream_create(struct gn_device *d, struct gn_stream **out, struct gn_err *err)
{
	struct late_stream *s = calloc(1, sizeof *s);

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	s->base.device = d;
	*out = &s->base;
	return GN_OK;
}

static enum gn_status stream_wait(struct gn_stream *base, struct gn_err *err)
{
	struct late_stream *s = (struct late_stream *)base;
	enum gn_status status;

	pthread_mutex_lock(&lock);
	status = finish(s, s->queued, err);
	pthread_mutex_unlock(&lock);
	return status;
}

static void stream_destroy(struct gn_stream *s)
{
	(void)stream_wait(s, NULL);
	free(s);
}

static enum gn_status stream_after(struct gn_stream *s, const struct gn_event *base, struct gn_err *err)
{
	const struct late_event *e = (const struct late_event *)base;

	return e->stream ? queue(s, (struct work){.after = e->stream, .position = e->position}, err) : GN_OK;
}

static enum gn_status stream_copy(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	return queue(s, (struct work){.to = to, .from = from, .count = bytes}, err);
}

static enum gn_status event_create(struct gn_device *d, int timed, struct gn_event **out, struct gn_err *err)
{
	struct late_event *e = calloc(1, sizeof *e);

	(void)timed;
	if (!e)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	e->base.device = d;
	*out = &e->base;
	return GN_OK;
}

static void event_destroy(struct gn_event *e)
{
	free(e);
}

static enum gn_status event_record(struct gn_event *base, struct gn_stream *s, struct gn_err *err)
{
	struct late_event *e = (struct late_event *)base;

	(void)err;
	pthread_mutex_lock(&lock);
	e->stream = (struct late_stream *)s;
	e->position = e->stream->queued;
	pthread_mutex_unlock(&lock);
	return GN_OK;
}

static enum gn_status event_done(const struct gn_event *base, int *out, struct gn_err *err)
{
	const struct late_event *e = (const struct late_event *)base;
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&lock);
	if (e->stream && e->stream->done < e->position && next_random(device_of(base->device)) % 4 == 0)
		status = advance(e->stream, err);
	*out = !e->stream || e->stream->done >= e->position;
	pthread_mutex_unlock(&lock);
	return status;
}

static enum gn_status buffer_alloc(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err)
{
	(void)d;
	b->address = aligned_alloc(GN_DEVICE_ALIGN_BYTES, (bytes / GN_DEVICE_ALIGN_BYTES + 1) * GN_DEVICE_ALIGN_BYTES);
	if (!b->address)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	memset(b->address, 0, bytes);
	return GN_OK;
}

static void buffer_free(struct gn_buffer *b)
{
	free(b->address);
}

static enum gn_status pinned_alloc(struct gn_device *d, size_t bytes, void **out, struct gn_err *err)
{
	(void)d;
	*out = malloc(bytes + 1);
	return *out ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
}

static void pinned_free(struct gn_device *d, void *pinned)
{
	(void)d;
	free(pinned);
}

static enum gn_status pin(struct gn_device *d, void *memory, size_t bytes, struct gn_err *err)
{
	(void)memory;
	(void)bytes;
	return device_of(d)->options.unpinned ? gn_err_set(err, GN_ERR_UNSUPPORTED, "not pinned") : GN_OK;
}

static void unpin(struct gn_device *d, void *memory)
{
	(void)d;
	(void)memory;
}

uint64_t late_device_works(const struct gn_device *d)
{
	return ((const struct late_device *)d)->works;
}

enum gn_status late_device_create(const struct late_device_options *options, struct gn_device **out, struct gn_err *err)
{
	static const struct gn_device_kind late = {
		.queued = 1, .close = late_close, .stream_create = stream_create, .stream_destroy = stream_destroy,
		.stream_wait = stream_wait, .stream_after = stream_after, .stream_copy = stream_copy, .event_create = event_create,
		.event_destroy = event_destroy, .event_record = event_record, .event_done = event_done, .buffer_alloc = buffer_alloc,
		.buffer_free = buffer_free, .pinned_alloc = pinned_alloc, .pinned_free = pinned_free, .pin = pin, .unpin = unpin,
	};
	struct late_device *d = calloc(1, sizeof *d);

	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	d->base.kind = &late;
	memcpy(d->base.name, "late", sizeof "late");
	d->options = *options;
	d->random = options->seed;
	*out = &d->base;
	return GN_OK;
}
