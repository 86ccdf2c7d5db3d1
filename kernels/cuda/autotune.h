/* Selects the fastest of several candidates for the same result by measuring them on the GPU. Private to kernels/cuda.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_AUTOTUNE_H
#define GN_KERNELS_CUDA_AUTOTUNE_H

#include "src/device/cuda.h"

/* Candidates are numbered from 0. */
struct gn_cuda_candidates {
	int count;
	enum gn_status (*run)(void *context, int candidate, struct gn_err *err); /* enqueues on the stream */
	void *context;
	float ms; /* set: of one run of the candidate that was selected */
};

/* Runs every candidate, and those near the fastest 2 to 20 times in a CUDA graph, so that the host's overhead is not timed
 * (separately where a graph cannot be captured). Blocks until the stream is idle. *out: the fastest, of equals the first. A
 * candidate that fails is skipped unless all fail. */
enum gn_status gn_cuda_autotune(struct gn_cuda_stream *s, struct gn_cuda_candidates *candidates, int *out, struct gn_err *err);

#endif
