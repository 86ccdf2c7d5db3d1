/* Enqueues work on an emulated GPU (tests/gpu/emulate_runtime.h): for kernels (emulate.h) and, in C, for replacements of libraries.
 * The work runs after earlier work of the stream, or becomes part of the graph being captured.
 *
 * Thread safety: as src/device/cuda.h.
 */
#ifndef GN_TESTS_GPU_EMULATE_QUEUE_H
#define GN_TESTS_GPU_EMULATE_QUEUE_H

#include "src/device/cuda.h"

#ifdef __cplusplus
#include <functional>

enum gn_status gn_emulate_queue(const struct gn_cuda_stream *s, const std::function<void()> &work, const char *name,
				struct gn_err *err);

extern "C" {
#endif

/* Enqueues run(args) with a copy of the bytes at args. */
enum gn_status gn_emulate_call(const struct gn_cuda_stream *s, void (*run)(const void *args), const void *args, size_t bytes,
			       const char *name, struct gn_err *err);

/* GN_ERR_FAILED if a word of the argument that looks like an address is neither in the memory of the stream's GPU nor pinned.
 * Tables of addresses in the GPU's memory are not checked. */
enum gn_status gn_emulate_look(const struct gn_cuda_stream *s, const void *given, size_t bytes, const char *name,
			       struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
