#include "src/device/array.h"

#include <string.h>

enum gn_status gn_array_wrap(struct gn_device *d, float *device, size_t count, struct gn_array *a, struct gn_err *err)
{
	void *host = device;
	enum gn_status status = gn_device_is_queued(d) ? gn_pinned_alloc(d, count * sizeof(float), &host, err) : GN_OK;

	*a = (struct gn_array){0};
	if (status)
		return status;
	if (host != device)
		memset(host, 0, count * sizeof(float));
	a->device = device;
	a->host = host;
	a->count = count;
	a->pinned = gn_device_is_queued(d) ? d : NULL;
	return GN_OK;
}

enum gn_status gn_array_create(struct gn_device *d, size_t count, struct gn_array *a, struct gn_err *err)
{
	struct gn_buffer buffer;
	enum gn_status status = gn_buffer_alloc(d, count * sizeof(float), &buffer, err);

	*a = (struct gn_array){0};
	if (status)
		return status;
	status = gn_array_wrap(d, buffer.address, count, a, err);
	if (status)
		gn_buffer_free(&buffer);
	else
		a->buffer = buffer;
	return status;
}

void gn_array_release(struct gn_array *a)
{
	if (a->pinned)
		gn_pinned_free(a->pinned, a->host);
	gn_buffer_free(&a->buffer);
	*a = (struct gn_array){0};
}

enum gn_status gn_array_send(const struct gn_array *a, struct gn_stream *s, struct gn_err *err)
{
	return a->device == a->host ? GN_OK : gn_stream_copy(s, a->device, a->host, a->count * sizeof(float), err);
}

enum gn_status gn_array_fetch(const struct gn_array *a, struct gn_stream *s, struct gn_err *err)
{
	return a->device == a->host ? GN_OK : gn_stream_copy(s, a->host, a->device, a->count * sizeof(float), err);
}
