/* The fastest of several ways to do the same, by the GPU's clock. Only kernels/cuda.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_AUTOTUNE_H
#define GN_KERNELS_CUDA_AUTOTUNE_H

#include "kernels/cuda/device.h"

/* Each by its number, from 0. */
struct gn_cuda_candidates {
	int count;
	enum gn_status (*run)(void *context, int candidate, struct gn_err *err); /* queues on the stream */
	void *context;
};

/* Runs every candidate, those that are near the quickest 2 to 20 times in a graph, so that the host's part of a call is not timed (one after
 * the other where a graph cannot be recorded), waits, and says which is fastest, of equals the first; one that cannot run is passed
 * over, as long as another can. */
enum gn_status gn_cuda_autotune(struct gn_cuda_stream *s, const struct gn_cuda_candidates *candidates, int *out, struct gn_err *err);

#endif
