/* What a kind of device implements. Only src/device.
 *
 * Thread safety: as device.h.
 */
#ifndef GN_DEVICE_DEVICE_INTERNAL_H
#define GN_DEVICE_DEVICE_INTERNAL_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/device/device.h"

struct gn_graph;

/* The calls of device.h with the same names. */
struct gn_device_kind {
	int queued; /* 0: all has happened when a call returns; what waits, native events and pinning may be NULL */
	void (*close)(struct gn_device *d);
	enum gn_status (*memory)(const struct gn_device *d, size_t *free_bytes, size_t *total_bytes, struct gn_err *err);
	enum gn_status (*stream_create)(struct gn_device *d, struct gn_stream **out, struct gn_err *err);
	void (*stream_destroy)(struct gn_stream *s);
	enum gn_status (*stream_wait)(struct gn_stream *s, struct gn_err *err);
	enum gn_status (*stream_after)(struct gn_stream *s, const struct gn_event *event, struct gn_err *err);
	enum gn_status (*stream_copy)(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err);
	enum gn_status (*event_create)(struct gn_device *d, int timed, struct gn_event **out, struct gn_err *err);
	void (*event_destroy)(struct gn_event *e);
	enum gn_status (*event_record)(struct gn_event *e, struct gn_stream *s, struct gn_err *err);
	enum gn_status (*event_wait)(struct gn_event *e, struct gn_err *err);
	enum gn_status (*event_done)(const struct gn_event *e, int *out, struct gn_err *err);
	enum gn_status (*event_between)(const struct gn_event *from, const struct gn_event *to, double *out_ms, struct gn_err *err);
	void *(*event_native)(const struct gn_event *e);
	/* Sets address and block. */
	enum gn_status (*buffer_alloc)(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err);
	void (*buffer_free)(struct gn_buffer *b);
	enum gn_status (*pinned_alloc)(struct gn_device *d, size_t bytes, void **out, struct gn_err *err);
	void (*pinned_free)(struct gn_device *d, void *pinned);
	enum gn_status (*pin)(struct gn_device *d, void *memory, size_t bytes, struct gn_err *err);
	void (*unpin)(struct gn_device *d, void *memory);
	/* NULL: it records nothing. Between begin and end, work of s does not run but becomes a graph. After each begin there is an end; out
	 * NULL drops the work. */
	enum gn_status (*record_begin)(struct gn_stream *s, struct gn_err *err);
	enum gn_status (*record_end)(struct gn_stream *s, struct gn_graph **out, size_t *nodes, struct gn_err *err);
	enum gn_status (*graph_launch)(struct gn_graph *g, struct gn_stream *s, struct gn_err *err);
	void (*graph_destroy)(struct gn_graph *g);
};

/* The first member of each kind's own. */
struct gn_device {
	const struct gn_device_kind *kind;
	char name[16], model[256], address[32];
	int ordinal;
};
struct gn_stream {
	struct gn_device *device;
};
struct gn_event {
	struct gn_device *device;
};

/* cuda_kind.c; without CUDA open.c, GN_ERR_UNSUPPORTED. */
enum gn_status gn_device_open_cuda(int ordinal, struct gn_device **out, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
