/* Offsets of other hosts' monotonic clocks to rank 0's.
 *
 * Rank 0 exchanges messages with the first rank of each other node, which replies with its time. The offset computed from the
 * middle of the round trip is wrong by at most half the round trip (Cristian, "Probabilistic clock synchronization", 1989); the
 * shortest of several is used. Ranks of a node share its clock; those of rank 0's node have offset 0.
 */
#ifndef GN_TRAIN_METRICS_CLOCK_SYNC_H
#define GN_TRAIN_METRICS_CLOCK_SYNC_H

#include "transport/coll/comm.h"

struct gn_clock_offset {
	uint64_t at_ns;	       /* time of the comparison by this rank's clock */
	int64_t ahead_ns;      /* offset to rank 0's clock */
	int64_t uncertain_ns;  /* upper bound of the error */
};

/* Collective. Each rank receives its own offset. */
enum gn_status gn_clock_sync_compare(struct gn_comm *comm, struct gn_clock_offset *out, struct gn_err *err);

#endif
