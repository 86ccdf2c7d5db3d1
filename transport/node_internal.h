/* What the files behind node.h and lane.h share. */
#ifndef GN_TRANSPORT_NODE_INTERNAL_H
#define GN_TRANSPORT_NODE_INTERNAL_H

#include "src/base/arena.h"
#include "transport/node.h"
#include "transport/segment.h"

#include <stdatomic.h>

/* Allreduces that may exist at once; a slot each. */
#define GN_NODE_SLOTS 512
/* Up to here one meeting and p reads beat two meetings and shares: measured with bench/node. */
#define GN_MAIL_BYTES 2048
/* The same for buffers that the neighbours reach, when a meeting costs less than copying does: a processor for each rank. */
#define GN_MAIL_SHARED_BYTES 256
/* What passes through the stage at once, and the ranks up to which there is one: everyone reads everyone's. */
#define GN_STAGE_BYTES (128u << 10)
#define GN_STAGE_RANKS 4
/* Two ranks gain by it at every size; up to here more of them do, too, against a ring of messages (measured on two processors:
 * 4 ranks, 64 KiB 88 against 89 us, 256 KiB 286 against 165). */
#define GN_STAGE_MANY_BYTES (64u << 10)
/* Words of lanes, of each rank. */
#define GN_LANE_WORDS 65536u

/* A rank's letter to its neighbours: what it started, and its values. The counter only rises: n means "for the n-th run".
 * Counter, check and small values share one cache line, which is all that travels for a small operation. */
struct gn_letter {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t arrived;
	uint64_t check; /* of count, element size and place: the same on all ranks, valid once arrived says so */
	char values[GN_MAIL_BYTES];
};

/* One rank's side of one allreduce's slot, on cache lines of its own. Two letters, used in turn: who runs n + 1 while a
 * neighbour still reads n must not overwrite it. */
struct gn_node_side {
	struct gn_letter letter[2];
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t finished;
	uint64_t offset, count, element_bytes; /* to explain a check that differs */
	uint64_t in_allocation, in_offset;     /* where the neighbours find the input; 0: in the output's place */
};

/* Where buffers that the neighbours cannot reach pass through, in two places used in turn. The counters number pieces over
 * all operations and only rise. */
struct gn_stage {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t staged;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t read;
	_Alignas(GN_ALIGN_BYTES) char bytes[2][GN_STAGE_BYTES];
};

/* A rank that sleeps is woken by its bell: a futex that is counted up. How many listen is counted in the first rank's part,
 * which is one word for all to look at, and as good as never written. */
struct gn_node_bell {
	_Alignas(GN_ALIGN_BYTES) atomic_uint listeners;
	_Alignas(GN_ALIGN_BYTES) atomic_uint state;
	atomic_uint listens;
};

/* What each rank's part of the control segment holds. */
struct gn_node_control {
	struct gn_node_bell bell;
	struct gn_node_side side[GN_NODE_SLOTS];
	struct gn_stage stage;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t words[GN_LANE_WORDS];
};

struct gn_node_allocation {
	struct gn_segment *segment;
	uint64_t number; /* from 1 on, the same on all ranks */
	struct gn_node_allocation *next;
};

struct gn_node {
	struct gn_world *world;
	struct gn_segment *control; /* of each rank: struct gn_node_control */
	struct gn_node_allocation *allocations;
	struct gn_lane *lanes; /* by their place among the words */
	uint64_t lane_runs, stage_pieces, allocations_made;
	int local_rank, local_size;
	int crowded;
	unsigned next_slot;
	unsigned char used[GN_NODE_SLOTS];
};

/* What holds [memory, memory + len), and where in it; NULL when nothing does. */
const struct gn_node_allocation *gn_node_find(const struct gn_node *n, const void *memory, size_t len, uint64_t *offset);
static inline struct gn_node_control *gn_node_control_of(const struct gn_node *n, int local)
{
	return gn_segment_part(n->control, local);
}

/* After every word that neighbours may wait for: to one of them, or (-1) to all. */
static inline void gn_node_tell(struct gn_node *n, int local)
{
	if (atomic_load_explicit(&gn_node_control_of(n, 0)->bell.listeners, memory_order_relaxed))
		gn_node_ring(n, local);
}

#endif
