/* Floats on a device, and a copy of them in the host's memory; on the host both are the same.
 *
 * Thread safety: as src/device/device.h.
 */
#ifndef GN_DEVICE_ARRAY_H
#define GN_DEVICE_ARRAY_H

#include "src/device/device.h"

/* Zeroed: unused. */
struct gn_array {
	float *device, *host;
	size_t count;
	struct gn_buffer buffer; /* internal: memory of the device */
	struct gn_device *pinned; /* internal: whose pinned memory host is; NULL: it is not */
};

/* count zeros. On failure *a is unused. */
enum gn_status gn_array_create(struct gn_device *d, size_t count, struct gn_array *a, struct gn_err *err);
/* The same for memory of the device that is the caller's, and outlives it; a host's copy of its own begins as zeros. */
enum gn_status gn_array_wrap(struct gn_device *d, float *device, size_t count, struct gn_array *a, struct gn_err *err);
/* Nothing queued may use it any more. An unused one is fine. */
void gn_array_release(struct gn_array *a);
/* Queue the copy to the device, and to the host. */
enum gn_status gn_array_send(const struct gn_array *a, struct gn_stream *s, struct gn_err *err);
enum gn_status gn_array_fetch(const struct gn_array *a, struct gn_stream *s, struct gn_err *err);

#endif
