/* Shared memory of the ranks of a group that are on one node: buffers that all of them map, and allreduce directly in each other's
 * buffers. "Local" ranks are those ranks, in the order of the group.
 *
 * gn_shm_alloc() gives each rank its part of one segment. An allreduce on such buffers has two synchronisations: when all ranks
 * have arrived, each reduces its share of the elements from all buffers and writes the result to all buffers; then all are done.
 * Each rank reads and writes (p + 1) / p times the buffer, the minimum.
 *
 * Small buffers need one synchronisation: each rank copies its values into an eager slot, and each rank reduces all of them.
 *
 * Buffers from elsewhere pass through a bounce buffer in slices: each rank copies in what is not of its share, reduces its share
 * from its own buffer and the others' bounce buffers, writes the result to its buffer and its bounce buffer, and copies the others'
 * results from there: (p - 1) / p times the buffer copied in and out. Below 32 KiB each rank copies in everything and reduces
 * everything, which saves one synchronisation.
 *
 * Reduce-scatter and allgather of buffers from elsewhere are halves of that: each rank copies in what others need, and reads their bounce
 * buffers.
 *
 * Values are reduced in the order of local ranks: the result has the same bits on all ranks and in all runs.
 *
 * Memory for larger eager slots, message flags and bounce buffers is committed when an operation needs it. GN_ERR_NO_MEMORY is not
 * agreed on: a rank that gets it has to abort the world (gn_world_abort).
 *
 * Thread safety: one thread. Operations are created, started and freed in the same order on all ranks of the node. Each rank
 * publishes the signature of what it starts, so that ranks that disagree on size, type or place get GN_ERR_MISMATCH instead of
 * corrupt data.
 */
#ifndef GN_TRANSPORT_SHM_SHM_H
#define GN_TRANSPORT_SHM_SHM_H

#include "transport/schedule/types.h"
#include "transport/shm/shm_members.h"

#include <time.h>

struct gn_shm;
struct gn_shm_op;

/* Collective over the world; blocks. oversubscribed, the same on all ranks of the node: they outnumber their processors.
 * GN_ERR_UNSUPPORTED, on all ranks: memory cannot be shared. */
enum gn_status gn_shm_create(struct gn_world *world, int oversubscribed, struct gn_shm **out, struct gn_err *err);
/* Collective over the members; blocks. root: of gn_shm_create(), and outlives the new one. The members are copied, their ranks and
 * argument borrowed. The new one has control memory of its own, so that operations of different groups need no common order; a wait
 * for either is woken by both, and both use each other's allocations. GN_ERR_UNSUPPORTED or GN_ERR_NO_MEMORY, each rank with its
 * own code: some member cannot have it, nobody does. */
enum gn_status gn_shm_create_group(struct gn_shm *root, const struct gn_shm_members *members, struct gn_shm **out,
				   struct gn_err *err);
/* Local. Whether this rank may be in one more group: there is a limit, because each takes memory and an open file. */
int gn_shm_has_room(const struct gn_shm *root);
/* Local. NULL is fine. */
void gn_shm_destroy(struct gn_shm *n);

/* Collective over the members, in the same order and with the same size on all ranks; blocks. Zeroed, page-aligned memory that
 * lives until gn_shm_free or gn_shm_destroy. */
enum gn_status gn_shm_alloc(struct gn_shm *n, size_t len_bytes, void **out, struct gn_err *err);
/* Local. Memory of any group of the same root. NULL is fine. */
void gn_shm_free(struct gn_shm *n, void *memory);
/* Local. Whether [memory, memory + len_bytes) is within one allocation of gn_shm_alloc() that all local ranks have mapped. */
int gn_shm_owns(const struct gn_shm *n, const void *memory, size_t len_bytes);

/* Local. Creates a persistent allreduce of count elements over the local ranks. in: NULL for in place, else any buffer of
 * this rank, which is read. out_buffer: fastest if allocated by gn_shm_alloc(), at the same offset on all ranks.
 * GN_ERR_UNSUPPORTED: it is not, and the node has too many ranks for bounce buffers; or there are too many operations. */
enum gn_status gn_shm_allreduce(struct gn_shm *n, const void *in, void *out_buffer, size_t count, size_t element_bytes,
				gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err);
/* Local. The same through bounce buffers, of blocks of count elements, one of each local rank in their order. Reduce-scatter: in has blocks,
 * out is one, of the reduction; allgather: out has blocks, in is one, or NULL if this rank's is in its place in out. in and out do not
 * overlap. reduce: of reduce-scatter. GN_ERR_UNSUPPORTED: the node has too many ranks for bounce buffers; too many operations. */
enum gn_shm_blocks { GN_SHM_REDUCE_SCATTER, GN_SHM_ALLGATHER };
enum gn_status gn_shm_blocks(struct gn_shm *n, enum gn_shm_blocks what, const void *in, void *out_buffer, size_t count,
			     size_t element_bytes, gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err);
/* Local. Whether one more of these operations may exist, the same on all ranks. */
int gn_shm_has_slot(const struct gn_shm *n);
/* Adds to the operation's signature, so that ranks that start different operations get GN_ERR_MISMATCH. Before the first start. */
void gn_shm_sign(struct gn_shm_op *op, uint64_t signature);
/* Local; not while the operation runs. NULL is fine. */
void gn_shm_op_free(struct gn_shm_op *op);
/* The largest buffer from elsewhere that fits an eager slot. */
size_t gn_shm_eager_bytes(const struct gn_shm *n);

/* Does not block. */
void gn_shm_start(struct gn_shm_op *op);
/* Makes progress without blocking; *done: the result is complete. GN_ERR_MISMATCH names the rank that started another operation. */
enum gn_status gn_shm_test(struct gn_shm_op *op, int *done, struct gn_err *err);
/* The world's rank that a started operation waits for; -1: none. */
void gn_shm_waits_for(const struct gn_shm_op *op, int *rank);
/* Whether buffers from elsewhere have bounce buffers, which are faster than messages. */
int gn_shm_has_bounce_buffers(const struct gn_shm *n);

/* --- blocking until another rank of this node writes to shared memory of any group; n: of gn_shm_create() --- */

/* Announces that this rank is about to block, so that other ranks wake it after each write meant for it. Returns the wakeup state
 * for gn_shm_wakeup_wait(); look at the awaited memory once more before that. Nests. */
uint32_t gn_shm_wakeup_begin(struct gn_shm *n);
void gn_shm_wakeup_end(struct gn_shm *n);
/* Blocks until the wakeup state differs from `state`, for `limit` at most. Writers do not fence between their write and the look at
 * who waits, so that a wakeup may be missed, very rarely: keep the limit short. */
void gn_shm_wakeup_wait(struct gn_shm *n, uint32_t state, const struct timespec *limit);
/* Wakes local rank `local` if it waits, or (-1) all that do; and this rank's own other threads. */
void gn_shm_wake(struct gn_shm *n, int local);
void gn_shm_wake_self(struct gn_shm *n);

/* Messages between the ranks of a group on one node without copies: the sender sets a flag that a range of its buffer may be read; the
 * receiver reads it (or reduces from it) in place and sets a flag that it has.
 *
 * One object belongs to one persistent operation on one buffer of gn_shm_alloc(), at the same offset on all ranks of the node. A
 * message has a number between its two ranks, below a bound that is the same on all ranks of the node. Objects are created, started
 * and freed in the same order on all ranks of the node. No call blocks. */

struct gn_shm_flags;

/* Local. GN_ERR_UNSUPPORTED, on all ranks of the node: no room for so many messages. GN_ERR_USAGE: the buffer is not from
 * gn_shm_alloc(). */
enum gn_status gn_shm_flags_create(struct gn_shm *n, const void *buffer, size_t len_bytes, uint32_t messages,
			      struct gn_shm_flags **out, struct gn_err *err);
/* Ranks that run operations of different signatures never read from each other. Before the first run. */
void gn_shm_flags_sign(struct gn_shm_flags *l, uint64_t signature);
/* No run may be in progress. NULL is fine. */
void gn_shm_flags_destroy(struct gn_shm_flags *l);

/* The peer number of a rank of the world, for the functions below; -1: it is on another node, not in the group, or this rank. */
int gn_shm_flags_peer(const struct gn_shm_flags *l, int rank);
/* Begins a run. */
void gn_shm_flags_start(struct gn_shm_flags *l);
/* Sender: sets "may be read"; whether the receiver has read it. */
void gn_shm_flags_set_ready(struct gn_shm_flags *l, int to, uint32_t message);
int gn_shm_flags_is_done(const struct gn_shm_flags *l, int to, uint32_t message);
/* Receiver: whether it may be read; the sender's buffer at an offset; sets "has been read". */
int gn_shm_flags_is_ready(const struct gn_shm_flags *l, int from, uint32_t message);
const void *gn_shm_flags_data(const struct gn_shm_flags *l, int from, size_t offset_bytes);
void gn_shm_flags_set_done(struct gn_shm_flags *l, int from, uint32_t message);

#endif
