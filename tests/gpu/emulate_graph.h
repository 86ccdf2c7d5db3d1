/* Recording of what is emulated: while a stream is recorded, its work is kept and not done, until the graph is launched. For
 * emulate.cc and, in C, for what stands in place of libraries.
 *
 * What a GPU refuses within a recording (waiting for the stream) fails here, too. cuda:1 records nothing. Thread safety: one thread.
 */
#ifndef GN_TESTS_GPU_EMULATE_GRAPH_H
#define GN_TESTS_GPU_EMULATE_GRAPH_H

#include "kernels/cuda/device.h"

#ifdef __cplusplus
#include <functional>

int gn_emulate_records(const struct gn_cuda_stream *s);
void gn_emulate_keep(const std::function<enum gn_status(struct gn_err *)> &work);

extern "C" {
#endif

/* Whether work was kept: run(args) is called at each launch, with a copy of bytes of args. 0: nothing is recorded, do it. */
int gn_emulate_keep_call(enum gn_status (*run)(const void *args, struct gn_err *err), const void *args, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
