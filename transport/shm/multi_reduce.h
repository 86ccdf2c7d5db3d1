/* Reduction of several buffers into all of them, in one pass over memory. */
#ifndef GN_TRANSPORT_SHM_MULTI_REDUCE_H
#define GN_TRANSPORT_SHM_MULTI_REDUCE_H

#include "transport/schedule/types.h"

/* For elements [0, count) from offset_bytes on: result = in[0] op in[1] op ... in that order, written to every out. in and
 * out are the same parts, or none of them overlap. The sum of floats has loops of its own; other reductions go block by block
 * through the cache. */
void gn_multi_reduce(char *const *in, char *const *out, int ranks, size_t offset_bytes, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce);

/* out[i] = parts[0][i] op parts[1][i] op ..., in that order; out is none of the parts. */
void gn_multi_combine(char *out, char *const *parts, int ranks, size_t count, size_t element_bytes, gn_reduce_fn reduce);
/* The same, written to both; a may be one of the parts, b none. b is what other processors have read last: it is written by whole
 * copies. */
void gn_multi_combine_both(char *a, char *b, char *const *parts, int ranks, size_t count, size_t element_bytes,
			    gn_reduce_fn reduce);

#endif
