/* Where a run computes: the host's processors or one GPU, behind one interface.
 *
 * Work is given to a stream and happens in order. On the host a call has happened when it returns, events are always done, and a copy
 * is a memcpy; on a GPU ("cuda:N") work is queued, and its errors come out of a later call on that device, at the latest of
 * gn_stream_wait. Code above is written once for both: it queues, records events, and waits where it needs a result.
 *
 * Lifetime: a device outlives its streams, events and buffers. Thread safety: a device may be used by many threads; a stream, an event
 * and a buffer belong to one thread at a time. No call is collective.
 */
#ifndef GN_DEVICE_DEVICE_H
#define GN_DEVICE_DEVICE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gn_device;
struct gn_stream;
struct gn_event;

/* "host"; "cuda:N", or "cuda" for its first. GN_ERR_NOT_FOUND and GN_ERR_UNSUPPORTED: there is none, or this build or its driver cannot
 * use it; GN_ERR_USAGE: another name, or a number beyond the last. */
enum gn_status gn_device_open(const char *name, struct gn_device **out, struct gn_err *err);
/* How many devices of a kind, "host" or "cuda", this process may use; errors as for gn_device_open. */
enum gn_status gn_device_count(const char *kind, int *out, struct gn_err *err);
/* Whether this build has code for that kind, whatever the machine has. */
int gn_device_is_built(const char *kind);
/* The host alone, which is always there. NULL: no memory. */
struct gn_device *gn_device_open_host(void);
void gn_device_close(struct gn_device *d);
/* "host" or "cuda:N". */
const char *gn_device_name(const struct gn_device *d);
/* What people read: "NVIDIA H100"; "" for the host. */
const char *gn_device_model(const struct gn_device *d);
/* On the PCI bus, as in /sys/bus/pci/devices: "0000:65:00.0"; "" for the host. */
const char *gn_device_address(const struct gn_device *d);
/* Which of its kind; 0 for the host. */
int gn_device_ordinal(const struct gn_device *d);
/* Whether work is queued: the host goes on while the device computes. */
int gn_device_is_queued(const struct gn_device *d);
/* As the system sees it now, other processes' use included. */
enum gn_status gn_device_memory(const struct gn_device *d, size_t *free_bytes, size_t *total_bytes, struct gn_err *err);

/* --- Streams --- */

/* Runs beside the other streams. */
enum gn_status gn_stream_create(struct gn_device *d, struct gn_stream **out, struct gn_err *err);
/* Waits for its work. NULL is fine. */
void gn_stream_destroy(struct gn_stream *s);
struct gn_device *gn_stream_device(const struct gn_stream *s);
/* Blocks until all its work is done. */
enum gn_status gn_stream_wait(struct gn_stream *s, struct gn_err *err);
/* Queues: later work of s runs after what `event` recorded last, of any stream of the device. */
enum gn_status gn_stream_after(struct gn_stream *s, const struct gn_event *event, struct gn_err *err);
/* Queues a copy. Either side may be memory of the device, pinned memory, or any other memory of the host; a call that writes the last
 * may block until the copy is done. Until it is done, nobody changes `from`, whatever memory it is. The two do not overlap. */
enum gn_status gn_stream_copy(struct gn_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err);

/* --- Events --- */

enum gn_status gn_event_create(struct gn_device *d, struct gn_event **out, struct gn_err *err);
/* One whose time counts, for gn_event_between; such events cost more. */
enum gn_status gn_event_create_timed(struct gn_device *d, struct gn_event **out, struct gn_err *err);
void gn_event_destroy(struct gn_event *e);
/* Queues: done when the earlier work of s is. */
enum gn_status gn_event_record(struct gn_event *e, struct gn_stream *s, struct gn_err *err);
/* Blocks until it is done. One that was never recorded is done. */
enum gn_status gn_event_wait(struct gn_event *e, struct gn_err *err);
/* Never blocks. */
enum gn_status gn_event_done(const struct gn_event *e, int *out, struct gn_err *err);
/* Milliseconds of the device's clock from one to the other, both timed, recorded, and done. */
enum gn_status gn_event_between(const struct gn_event *from, const struct gn_event *to, double *out_ms, struct gn_err *err);
/* For libraries that work on the device: CUDA's cudaEvent_t; NULL on the host, where it is done. */
void *gn_event_native(const struct gn_event *e);

/* --- Memory --- */

#define GN_DEVICE_ALIGN_BYTES 256

/* Memory of a device. Zeroed: unused. */
struct gn_buffer {
	struct gn_device *device;
	void *address; /* aligned to GN_DEVICE_ALIGN_BYTES */
	size_t bytes;
	void *block; /* internal */
};

/* Zeroed memory, blocking. On failure *b is unused. GN_ERR_NO_MEMORY says what was wanted and what is free. */
enum gn_status gn_buffer_alloc(struct gn_device *d, size_t bytes, struct gn_buffer *b, struct gn_err *err);
/* Nothing queued may use it any more. An unused one is fine; *b becomes unused. */
void gn_buffer_free(struct gn_buffer *b);
/* Host memory that the device copies from and to without blocking: pinned. To be given to gn_pinned_free. */
enum gn_status gn_pinned_alloc(struct gn_device *d, size_t bytes, void **out, struct gn_err *err);
void gn_pinned_free(struct gn_device *d, void *pinned);
/* Pins host memory that was allocated elsewhere, until gn_device_unpin. GN_ERR_UNSUPPORTED: copies from and to it work without, slower. */
enum gn_status gn_device_pin(struct gn_device *d, void *memory, size_t bytes, struct gn_err *err);
void gn_device_unpin(struct gn_device *d, void *memory);

/* --- Replayed work --- */

/* Work of a stream that is the same again and again. A device that can records it as a graph and launches that. */
struct gn_replay;

/* NULL: no memory. */
struct gn_replay *gn_replay_create(void);
void gn_replay_destroy(struct gn_replay *r);
/* Queues what function(context) queues on s. function only queues work on s, and the same as long as key stays the same: it may be
 * called, or what it queued under this key before may be launched as a graph. The first call runs it, for libraries load kernels then,
 * which no recording can hold; what cannot be recorded is called for good. Always the same stream. */
enum gn_status gn_replay_run(struct gn_replay *r, struct gn_stream *s, uint64_t key,
			     enum gn_status (*function)(void *context, struct gn_err *err), void *context, struct gn_err *err);
/* Kernels and copies of the graph; 0: there is none yet, or the device records nothing. */
size_t gn_replay_nodes(const struct gn_replay *r);
/* Why nothing is recorded, which a failed recording said; "" where nothing is known against it. */
const char *gn_replay_obstacle(const struct gn_replay *r);

#ifdef __cplusplus
}
#endif
#endif
