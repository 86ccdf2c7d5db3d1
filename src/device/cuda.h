/* CUDA's side of device.h, for kernels/cuda: device, streams, graphs, and arenas of device memory. Events and pinned memory are device.h's.
 *
 * A thin layer over the CUDA runtime, in which no call goes unchecked: every error names the call, the device and CUDA's own text.
 * Without a GPU, with a driver that is missing or too old, and without enough memory the text says what to do. "Queues" below means that
 * a function returns before its work is done, and that errors of the work itself come out of a later call on that device, at the latest
 * of gn_cuda_stream_wait.
 *
 * Thread safety: a device may be used by many threads; a stream and an arena belong to one thread at a time.
 */
#ifndef GN_DEVICE_CUDA_H
#define GN_DEVICE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/device/device.h"

#include <stddef.h>

/* Each is a gn_device or gn_stream of a device that gn_device_open gave for "cuda:N", or that gn_cuda_device_create made. */
struct gn_cuda_device;
struct gn_cuda_stream;
struct gn_cuda_arena;

struct gn_cuda_info {
	char name[256];
	char pci[32]; /* 0000:65:00.0, as in /sys/bus/pci/devices */
	int ordinal;
	int major, minor; /* compute capability */
	int multiprocessors;
	size_t l2_bytes;
	size_t memory_bytes;
	int driver, runtime; /* the newest CUDA that the driver knows, and ours: 13000 is 13.0 */
};

/* GPUs that this process may use. None, or no driver: GN_ERR_NOT_FOUND; a driver too old: GN_ERR_UNSUPPORTED. */
enum gn_status gn_cuda_device_count(int *out, struct gn_err *err);
/* GN_ERR_USAGE when there are not as many; GN_ERR_UNSUPPORTED when this build has no code for it (--with-cuda-arch). */
enum gn_status gn_cuda_device_create(int ordinal, struct gn_cuda_device **out, struct gn_err *err);
void gn_cuda_device_destroy(struct gn_cuda_device *d);
const struct gn_cuda_info *gn_cuda_device_info(const struct gn_cuda_device *d);
static inline struct gn_cuda_device *gn_cuda_device_of(struct gn_device *d)
{
	return (struct gn_cuda_device *)d;
}
static inline struct gn_cuda_stream *gn_cuda_stream_of(struct gn_stream *s)
{
	return (struct gn_cuda_stream *)s;
}
static inline struct gn_stream *gn_cuda_stream_base(struct gn_cuda_stream *s)
{
	return (struct gn_stream *)s;
}
/* As the driver sees it now, other processes' use included. */
enum gn_status gn_cuda_device_memory(const struct gn_cuda_device *d, size_t *free_bytes, size_t *total_bytes,
				     struct gn_err *err);

/* Runs beside the other streams; device is borrowed and outlives it. */
enum gn_status gn_cuda_stream_create(const struct gn_cuda_device *d, struct gn_cuda_stream **out, struct gn_err *err);
/* Waits for what was given to it. */
void gn_cuda_stream_destroy(struct gn_cuda_stream *s);
const struct gn_cuda_device *gn_cuda_stream_device(const struct gn_cuda_stream *s);
/* Blocks until all its work is done. */
enum gn_status gn_cuda_stream_wait(struct gn_cuda_stream *s, struct gn_err *err);
/* Queues a copy. Either side may be memory of the device, pinned memory, or any other memory of the host; with the last
 * the call may block until the copy is done. Until it is done, nobody changes `from`, whatever memory it is. */
enum gn_status gn_cuda_copy(struct gn_cuda_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err);
/* Queues: every byte of device memory becomes `byte`. */
enum gn_status gn_cuda_fill(struct gn_cuda_stream *s, void *to, int byte, size_t bytes, struct gn_err *err);

/* Work of a stream between begin and end does not run, but becomes a graph, which may be launched many times: one call for hundreds of
 * kernels. Until end, the thread may not wait for anything of the device. */
struct gn_cuda_graph;
enum gn_status gn_cuda_graph_begin(struct gn_cuda_stream *s, struct gn_err *err);
/* To be called after every begin; out NULL drops what was recorded. nodes: kernels and copies in it. */
enum gn_status gn_cuda_graph_end(struct gn_cuda_stream *s, struct gn_cuda_graph **out, size_t *nodes, struct gn_err *err);
void gn_cuda_graph_destroy(struct gn_cuda_graph *g);
/* Queues. */
enum gn_status gn_cuda_graph_launch(struct gn_cuda_graph *g, struct gn_cuda_stream *s, struct gn_err *err);

#define GN_CUDA_ALIGN_BYTES 256
static inline size_t gn_cuda_padded(size_t bytes)
{
	return (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
}
/* One block of device memory, zeroed, by cudaMalloc. GN_ERR_NO_MEMORY says what was wanted and what is free. */
enum gn_status gn_cuda_arena_create(const struct gn_cuda_device *d, size_t capacity_bytes, struct gn_cuda_arena **out,
				    struct gn_err *err);
void gn_cuda_arena_destroy(struct gn_cuda_arena *a);
/* A piece of it, aligned to GN_CUDA_ALIGN_BYTES and owned by it; NULL when it is full. */
void *gn_cuda_arena_take(struct gn_cuda_arena *a, size_t bytes);
/* Takes all pieces back at once; their memory keeps what was written. */
void gn_cuda_arena_empty(struct gn_cuda_arena *a);

#ifdef __cplusplus
}
#endif
#endif
