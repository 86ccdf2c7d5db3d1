/* Messages between the ranks of a group on one node without copies: the sender sets a flag that a range of its buffer may be read; the
 * receiver reads it (or reduces from it) in place and sets a flag that it has.
 *
 * One object belongs to one persistent operation on one buffer of gn_shm_alloc(), at the same offset on all ranks of the node. A
 * message has a number between its two ranks, below a bound that is the same on all ranks of the node. Objects are created, started
 * and freed in the same order on all ranks of the node. No call blocks.
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_SHM_SHM_FLAGS_H
#define GN_TRANSPORT_SHM_SHM_FLAGS_H

#include "transport/shm/shm.h"

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
