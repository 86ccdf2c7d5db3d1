/* How work gets to a GPU that is emulated (emulate_runtime.h): for kernels (emulate.h) and, in C, for what stands in place of
 * libraries. It runs behind what the stream was given before, or becomes part of the graph that is recorded from it.
 *
 * Thread safety: as kernels/cuda/device.h.
 */
#ifndef GN_TESTS_GPU_EMULATE_QUEUE_H
#define GN_TESTS_GPU_EMULATE_QUEUE_H

#include "kernels/cuda/device.h"

#ifdef __cplusplus
#include <functional>

enum gn_status gn_emulate_queue(const struct gn_cuda_stream *s, const std::function<void()> &work, const char *name,
				struct gn_err *err);

extern "C" {
#endif

/* run(args) with a copy of bytes of args. */
enum gn_status gn_emulate_call(const struct gn_cuda_stream *s, void (*run)(const void *args), const void *args, size_t bytes,
			       const char *name, struct gn_err *err);

/* Whether a kernel of s may be given this: words of it that are addresses have to be those of its GPU's memory, or of pinned memory.
 * Else GN_ERR_FAILED. Tables of addresses in the GPU's memory are not looked into. */
enum gn_status gn_emulate_look(const struct gn_cuda_stream *s, const void *given, size_t bytes, const char *name,
			       struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
