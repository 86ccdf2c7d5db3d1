/* Memory layout and state shared by the files of shm.h: shm.c (create, allocations, wakeups, flags), shm_allreduce.c, shm_bounce.c
 * (slices through bounce buffers; reductions of several buffers).
 *
 * All local ranks of a group map one control segment, in which each has a part (struct gn_shm_control). Counters in it only rise.
 * Wakeups are those of the world's: a rank may wait for operations of several groups at once.
 */
#ifndef GN_TRANSPORT_SHM_SHM_INTERNAL_H
#define GN_TRANSPORT_SHM_SHM_INTERNAL_H

#include "src/base/alloc.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_members.h"

#include <pthread.h>
#include <stdatomic.h>

/* A segment: shared memory in which each rank of a group that is on this node has a part, and which all of them map.
 *
 * Each rank creates an anonymous file (memfd) and maps its own and, through /proc/PID/fd, those of the other ranks. The files have
 * no names, so that nothing survives a crash, and only processes of the same user that may trace each other can open them. Where
 * the system does not allow that (different PID namespaces, hardened kernels) creation is GN_ERR_UNSUPPORTED on all ranks of the
 * group. */

struct gn_segment;

/* Collective over the members; blocks. The lengths are the same on all ranks of a node. The memory is zeroed. The first
 * committed_bytes (at least 1) of each part are committed here: they never raise SIGBUS, and without memory for them the call is
 * GN_ERR_NO_MEMORY. A failure of one rank fails the call
 * on all. The rest up to len_bytes takes no memory until its owner commits it, and nobody may access it before. With more
 * than eight ranks on a node pages of other ranks are mapped on first access, so that pages never accessed are not resident. */
enum gn_status gn_segment_create(const struct gn_shm_members *members, size_t len_bytes, size_t committed_bytes,
				 struct gn_segment **out, struct gn_err *err);
/* Local: commits [offset, offset + len_bytes) of this rank's own part; memory that is committed is left as it is. Other ranks may
 * access it once this rank has told them. A system call. GN_ERR_NO_MEMORY as above. */
enum gn_status gn_segment_commit(struct gn_segment *s, size_t offset, size_t len_bytes, struct gn_err *err);
/* Local: unmaps all parts; other ranks keep their mappings. NULL is fine. */
void gn_segment_destroy(struct gn_segment *s);

/* The part of local rank `index`, in the order of the group; the part of a rank of the world, NULL if it has none. */
void *gn_segment_part(const struct gn_segment *s, int index);
void *gn_segment_part_of(const struct gn_segment *s, int world_rank);
/* Differs from that of any other segment of this host that exists; the same on all ranks that map it. Not 0. */
uint64_t gn_segment_id(const struct gn_segment *s);
size_t gn_segment_len(const struct gn_segment *s);
/* The distance between adjacent parts in bytes: whole pages, from len_bytes to less than 64 pages more. If such a distance exists,
 * no two of any eight adjacent parts conflict in the L1 cache of AMD processors, except in one of 4096 places. */
size_t gn_segment_stride(size_t len_bytes, int parts);

/* Allreduces of a group that may exist at once; each has a slot. */
#define GN_SHM_SLOTS 512
/* Groups of a rank that may exist at once: each keeps a file open, and pages of its memory. */
#define GN_SHM_GROUPS_MAX 64
/* The largest buffers that go through eager slots (one synchronisation, each rank reduces everything): of shared buffers, without
 * and with oversubscription; of buffers from elsewhere, where there are no bounce buffers and where there are. The copy into the
 * slot has to be cheaper than a second synchronisation, which is cheap when each rank has a processor and expensive when ranks
 * share processors. Buffers from elsewhere are copied in any case, and without bounce buffers the alternative is messages. Measured
 * by `gannet bench allreduce [--foreign]` with 2 and 4 ranks: 4 ranks on 2 processors take 2.8 us for 4 KiB with eager slots and
 * 4.2 without, 3.2 and 4.4 for 8 KiB, 4.7 and 4.4 for 16 KiB. */
#define GN_EAGER_SHARED_BYTES 512
#define GN_EAGER_OVERSUBSCRIBED_BYTES 8192
#define GN_EAGER_NO_BOUNCE_BYTES 2048
#define GN_EAGER_BYTES 16384
/* The size of a slice, and the bounce buffers that a rank uses in turn. Writing to a buffer that another processor still has in its
 * L2 cache is slow, so all buffers of one rank together are larger than L2, and those of all ranks smaller than L3. With 2 buffers
 * 256 KiB took 30 us instead of 15; with slices of 128 KiB 54 us instead of 17. */
#define GN_BOUNCE_BYTES (256u << 10)
#define GN_BOUNCE_BUFFERS 8
/* Slices that a rank fills before it has read the results of the first. */
#define GN_BOUNCE_AHEAD 2
/* Bounce buffers exist for up to so many ranks. */
#define GN_BOUNCE_RANKS 4
/* From this size on each rank reduces a share and the others read its results (one more synchronisation); below, each rank reduces
 * everything. */
#define GN_BOUNCE_SHARES_BYTES (32u << 10)
/* Message flags of each rank. */
#define GN_SHM_FLAGS_MAX 65536u

/* Values up to this size are in the eager slot itself: with its counter and check they fill one cache line, the only one that a
 * small operation reads. */
#define GN_EAGER_SLOT_BYTES (GN_ALIGN_BYTES - 2 * sizeof(uint64_t))

/* What a rank has started, and its values. arrived = n: all other fields are those of the n-th run. */
struct gn_eager_slot {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t arrived;
	uint64_t check; /* hash of count, element size, offset and path: the same on all ranks */
	char values[GN_EAGER_SLOT_BYTES];
	uint64_t offset, count, element_bytes; /* for the message when checks differ */
	uint64_t in_allocation, in_offset;     /* where the other ranks find the input: gn_segment_id(), 0: in the output buffer */
};

/* One rank's part of one allreduce's slot, on cache lines of its own. The two eager slots alternate, because a rank may start run n
 * + 1 while another still reads run n. That also holds from one operation to the next that uses the slot: a run of the next
 * operation completes only when all ranks have freed the previous one. */
struct gn_shm_side {
	struct gn_eager_slot eager[2];
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t finished;
};

/* Values too long for an eager slot. The padding keeps buffers from being multiples of 4 KiB apart, which map to the same set of an
 * L1 cache. */
struct gn_eager_buffer {
	_Alignas(GN_ALIGN_BYTES) char values[GN_EAGER_BYTES + GN_ALIGN_BYTES];
};

/* A rank's bounce buffers, used in turn: first its input, as far as others reduce it, then the results of its share. The counters
 * number slices over all operations. */
struct gn_bounce {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t filled;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t reduced;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t read;
	_Alignas(GN_ALIGN_BYTES) char bytes[GN_BOUNCE_BUFFERS][GN_BOUNCE_BYTES];
};
enum gn_bounce_step { GN_BOUNCE_FILLED, GN_BOUNCE_REDUCED, GN_BOUNCE_READ };

/* A futex by which other ranks wake this one. */
struct gn_shm_wakeup {
	_Alignas(GN_ALIGN_BYTES) atomic_uint waiters; /* in the first rank's part: how many ranks wait; rarely written */
	_Alignas(GN_ALIGN_BYTES) atomic_uint state;   /* the futex; incremented by each wakeup */
	atomic_uint waiting;			      /* this rank waits */
};

/* Each rank's part of the control segment. wakeup, side and, of the world with at most GN_BOUNCE_RANKS ranks, bounce are committed
 * at creation; the rest when an operation first needs it. Other ranks read flags only below flags_committed, and an eager buffer or
 * bounce only after the operation's eager slot has arrived, which implies that it is committed. */
struct gn_shm_control {
	struct gn_shm_wakeup wakeup;
	_Alignas(GN_ALIGN_BYTES) atomic_uint flags_committed;
	struct gn_shm_side side[GN_SHM_SLOTS];
	struct gn_bounce bounce;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t flags[GN_SHM_FLAGS_MAX];
	struct gn_eager_buffer eager_buffers[GN_SHM_SLOTS][2];
};

struct gn_shm_allocation {
	struct gn_segment *segment;
	const struct gn_shm *owner;
	struct gn_shm_allocation *next;
};

struct gn_shm {
	struct gn_shm *root; /* of the world; of the world's, itself */
	struct gn_shm_members members;
	struct gn_segment *control;
	int *ranks;			       /* of the world, for each local rank */
	struct gn_shm_wakeup **wakeups;	       /* of each local rank */
	atomic_uint *waiters;		       /* how many ranks of this node wait */
	pthread_mutex_t lock;		       /* root: of allocations, because operations may advance in another thread */
	struct gn_shm_allocation *allocations; /* root: of all groups */
	int groups;			       /* root: how many exist */
	struct gn_shm_flags *flags; /* by ascending index of their first flag */
	uint64_t flag_runs, bounce_slices;
	int local_rank, local_size;
	int oversubscribed;
	int bounce_committed; /* this rank's bounce buffers are */
	uint32_t *flags_committed; /* of each local rank, as last read */
	unsigned char used[GN_SHM_SLOTS];
	uint16_t eager_committed[GN_SHM_SLOTS]; /* bytes committed in each of this rank's two eager buffers of the slot */
};

/* How slices go through bounce buffers: each rank reduces all of a slice, or a share of it whose result the others read; the halves of the
 * latter, for which a slice is of one block. */
enum gn_bounce_way { GN_BOUNCE_WHOLE, GN_BOUNCE_SHARES, GN_BOUNCE_SCATTER, GN_BOUNCE_GATHER };

/* A run of one operation through bounce buffers. in, out: this rank's buffers, equal in place. bytes: of the buffer, or of a block. Slices
 * are numbered over all operations in the order of their starts; filled, reduced and read are the first slices for which that is still to
 * be done. */
struct gn_bounce_op {
	const char *in;
	char *out;
	size_t bytes, element_bytes, slice_bytes;
	gn_reduce_fn reduce;
	enum gn_bounce_way way;
	uint64_t first, end, filled, reduced, read;
	int waiting_for; /* the local rank last found behind; -1: none */
};
/* Commits this rank's bounce buffers, at the first operation that needs them. */
enum gn_status gn_bounce_commit(struct gn_shm *n, struct gn_err *err);
/* Assigns the run's slice numbers: in the same order on all ranks. */
void gn_bounce_begin(struct gn_shm *n, struct gn_bounce_op *r);
/* All ranks must have arrived with the same size. Makes progress without blocking; returns whether the run is complete. */
int gn_bounce_advance(struct gn_shm *n, struct gn_bounce_op *r);

/* The allocation of that gn_segment_id(); NULL: none. */
const struct gn_shm_allocation *gn_shm_find_id(const struct gn_shm *n, uint64_t id);
/* The allocation that holds [memory, memory + len) and that all local ranks have mapped, and the offset in it; NULL: none. */
const struct gn_shm_allocation *gn_shm_find(const struct gn_shm *n, const void *memory, size_t len, uint64_t *offset);
static inline struct gn_shm_control *gn_shm_control_of(const struct gn_shm *n, int local)
{
	return gn_segment_part(n->control, local);
}

/* After each write that other ranks may wait for: wakes one of them, or (-1) all, if they wait. */
static inline void gn_shm_notify(struct gn_shm *n, int local)
{
	if (atomic_load_explicit(n->waiters, memory_order_relaxed))
		gn_shm_wake(n, local);
}

/* A reduction of several buffers in one pass over memory, in the order of the arrays. Pure. Elements [0, count) from offset_bytes on:
 * each out[i] = in[0] op in[1] op ... The buffers of in and out are the same, or do not overlap. Sums of floats have loops of their own;
 * other reductions work block by block in the cache. */
void gn_multi_reduce(char *const *in, char *const *out, int ranks, size_t offset_bytes, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce);

#endif
