/* What the files behind node.h and lane.h share. */
#ifndef GN_TRANSPORT_SHM_SHM_INTERNAL_H
#define GN_TRANSPORT_SHM_SHM_INTERNAL_H

#include "src/base/arena.h"
#include "transport/shm/shm.h"
#include "transport/shm/segment.h"

#include <stdatomic.h>

/* Allreduces that may exist at once; a slot each. */
#define GN_SHM_SLOTS 512
/* Up to here one meeting, after which each rank reads all letters and adds them up, beats two meetings and shares. Buffers that
 * the neighbours reach need no letter: copying has to be cheaper than a second meeting, which is cheap where each rank has a
 * processor, and dearer where ranks take turns. Buffers from elsewhere have to be copied in any case; where there is no stage
 * for them, messages are what letters compete with. Measured by `gannet bench allreduce [--foreign]` with 2 and 4 ranks: 4 ranks on
 * 2 processors take 2.8 us for 4 KiB by letter and 4.2 without, 3.2 and 4.4 for 8 KiB, 4.7 and 4.4 for 16 KiB. */
#define GN_MAIL_SHARED_BYTES 512
#define GN_MAIL_CROWDED_BYTES 8192
#define GN_MAIL_NO_STAGE_BYTES 2048
#define GN_MAIL_BYTES 16384
/* What passes through the stage at once, and the places that pieces use in turn. A place that a neighbour has just read is in
 * its second-level cache, and writing there is slow; it has to have left when its turn comes again, so all places of a rank are
 * more than that cache, and those of all less than the third. With 2 places 256 KiB took 30 us instead of 15, in pieces of
 * 128 KiB 54 instead of 17. */
#define GN_STAGE_BYTES (256u << 10)
#define GN_STAGE_PLACES 8
/* Pieces that a rank stages before it has read the results of the first. */
#define GN_STAGE_AHEAD 2
/* Ranks up to which there is a stage. */
#define GN_STAGE_RANKS 4
/* From here on each rank reduces a share and the others read its results, a meeting more; below, each reduces all of it. */
#define GN_STAGE_SHARES_BYTES (32u << 10)
/* Words of lanes, of each rank. */
#define GN_SHM_FLAGS_WORDS 65536u

/* Values up to here travel in the letter itself: counter, check and they share one cache line, which is all that is read of a small
 * operation. */
#define GN_EAGER_SLOT_BYTES (GN_ALIGN_BYTES - 2 * sizeof(uint64_t))

/* A rank's letter to its neighbours: what it started, and its values. The counter only rises: n means "for the n-th run".
 * Everything else is of that run, and valid once the counter says so. */
struct gn_eager_slot {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t arrived;
	uint64_t check; /* of count, element size and place: the same on all ranks */
	char values[GN_EAGER_SLOT_BYTES];
	uint64_t offset, count, element_bytes; /* to explain a check that differs */
	uint64_t in_allocation, in_offset;     /* where the neighbours find the input; 0: in the output's place */
};

/* One rank's side of one allreduce's slot, on cache lines of its own. Two letters, used in turn: who runs n + 1 while a
 * neighbour still reads n must not overwrite it. That holds over all operations that a slot serves, because a run of the next
 * one is complete only when all ranks have freed the one before. */
struct gn_shm_side {
	struct gn_eager_slot letter[2];
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t finished;
};

/* What is too long for a slot's letters. Operations' values of one size shall not lie a multiple of 4 KiB apart, which is the
 * same place in a first-level cache. */
struct gn_enclosure {
	_Alignas(GN_ALIGN_BYTES) char values[GN_MAIL_BYTES + GN_ALIGN_BYTES];
};

/* Where buffers that the neighbours cannot reach pass through, in places used in turn: others' shares of the input, and the
 * results of this rank's own. The counters number pieces over all operations and only rise. */
struct gn_stage {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t staged;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t reduced;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t read;
	_Alignas(GN_ALIGN_BYTES) char bytes[GN_STAGE_PLACES][GN_STAGE_BYTES];
};
enum gn_stage_step { GN_STAGE_STAGED, GN_STAGE_REDUCED, GN_STAGE_READ };

/* A rank that sleeps is woken by its bell: a futex that is counted up. How many listen is counted in the first rank's part,
 * which is one word for all to look at, and as good as never written. */
struct gn_shm_bell {
	_Alignas(GN_ALIGN_BYTES) atomic_uint listeners;
	_Alignas(GN_ALIGN_BYTES) atomic_uint state;
	atomic_uint listens;
};

/* What each rank's part of the control segment holds. Bell, sides and (with GN_STAGE_RANKS at most) the stage are committed from
 * the start, words and enclosures when an operation first needs them. Neighbours touch an enclosure after its letter has arrived,
 * which says that it is there; words, which they look at before, when words_ready says so. */
struct gn_shm_control {
	struct gn_shm_bell bell;
	_Alignas(GN_ALIGN_BYTES) atomic_uint words_ready; /* only rises */
	struct gn_shm_side side[GN_SHM_SLOTS];
	struct gn_stage stage;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t words[GN_SHM_FLAGS_WORDS];
	struct gn_enclosure enclosure[GN_SHM_SLOTS][2];
};

struct gn_shm_allocation {
	struct gn_segment *segment;
	uint64_t number; /* from 1 on, the same on all ranks */
	struct gn_shm_allocation *next;
};

struct gn_shm {
	struct gn_world *world;
	struct gn_segment *control; /* of each rank: struct gn_shm_control */
	struct gn_shm_allocation *allocations;
	struct gn_shm_flags *lanes; /* by their place among the words */
	uint64_t lane_runs, stage_pieces, allocations_made;
	int local_rank, local_size;
	int crowded;
	uint32_t *words_ready; /* of each local rank, as last seen */
	unsigned char used[GN_SHM_SLOTS];
	uint16_t enclosed[GN_SHM_SLOTS]; /* bytes of each of a slot's own enclosures that are committed */
};

/* One operation's way through the stage. in, out: this rank's; the same in place. Pieces are numbered over all operations, in
 * the order in which they were started; each counter is the first that has not been so far. */
struct gn_stage_run {
	const char *in;
	char *out;
	size_t bytes, element_bytes;
	gn_reduce_fn reduce;
	int by_shares;
	uint64_t first, end, staged, reduced, read;
	int late; /* the local rank last found behind; -1: none */
};
/* Takes the next pieces' numbers: in the same order on all ranks. */
void gn_stage_begin(struct gn_shm *n, struct gn_stage_run *r);
/* All must have arrived with the same size. Does what can be done without waiting; returns whether all is done. */
int gn_stage_advance(struct gn_shm *n, struct gn_stage_run *r);

/* What holds [memory, memory + len), and where in it; NULL when nothing does. */
const struct gn_shm_allocation *gn_shm_find(const struct gn_shm *n, const void *memory, size_t len, uint64_t *offset);
static inline struct gn_shm_control *gn_shm_control_of(const struct gn_shm *n, int local)
{
	return gn_segment_part(n->control, local);
}

/* After every word that neighbours may wait for: to one of them, or (-1) to all. */
static inline void gn_shm_tell(struct gn_shm *n, int local)
{
	if (atomic_load_explicit(&gn_shm_control_of(n, 0)->bell.listeners, memory_order_relaxed))
		gn_shm_ring(n, local);
}

#endif
