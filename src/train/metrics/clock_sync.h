/* How far the monotonic clocks of other hosts are from rank 0's.
 *
 * Rank 0 sends a word to the first rank of each other node and gets back what its clock said: the true offset differs from
 * the one that follows from the middle of the way by half the way at most (Cristian, "Probabilistic clock synchronization",
 * 1989). The shortest of some ways counts. Ranks of a node share its clock; those of rank 0's node are at 0 exactly.
 */
#ifndef GN_TRAIN_METRICS_CLOCK_SYNC_H
#define GN_TRAIN_METRICS_CLOCK_SYNC_H

#include "transport/coll/comm.h"

struct gn_clock_offset {
	uint64_t at_ns;	       /* of this rank's clock, when it was compared */
	int64_t ahead_ns;      /* of rank 0's clock */
	int64_t uncertain_ns;  /* at most so far off */
};

/* Collective. Each rank gets its own. */
enum gn_status gn_clock_sync_compare(struct gn_comm *comm, struct gn_clock_offset *out, struct gn_err *err);

#endif
