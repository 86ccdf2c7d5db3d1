/* Messages between ranks of one node without moving them: the sender says that a part of its buffer may be read, the receiver
 * reads it there (or reduces from it) and says so.
 *
 * One lane belongs to one operation on one buffer of gn_shm_alloc(), at the same place on all ranks of the node. A message
 * is known by its number between the two ranks, below a bound that all ranks of the node give alike. Made, started and freed in the
 * same order on all ranks of the node.
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_SHM_SHM_FLAGS_H
#define GN_TRANSPORT_SHM_SHM_FLAGS_H

#include "transport/shm/shm.h"

struct gn_shm_flags;

/* GN_ERR_UNSUPPORTED, alike on all ranks of the node, when there is no room for so many messages. GN_ERR_USAGE when the buffer
 * is not of gn_shm_alloc(). */
enum gn_status gn_shm_flags_create(struct gn_shm *n, const void *buffer, size_t len_bytes, uint32_t messages,
			      struct gn_shm_flags **out, struct gn_err *err);
/* Ranks that run operations of different signatures on a lane never read from each other. Before the first run. */
void gn_shm_flags_sign(struct gn_shm_flags *l, uint64_t signature);
/* No run may be under way. NULL is fine. */
void gn_shm_flags_destroy(struct gn_shm_flags *l);

/* The number to give for a rank of the world below; -1 when it is on another node, or this one. */
int gn_shm_flags_of(const struct gn_shm_flags *l, int rank);
/* Begins a run. */
void gn_shm_flags_start(struct gn_shm_flags *l);
/* The sender: the part of the message may be read from now on; and: it has been. */
void gn_shm_flags_offer(struct gn_shm_flags *l, int to, uint32_t message);
int gn_shm_flags_taken(const struct gn_shm_flags *l, int to, uint32_t message);
/* The receiver: whether it may be read, where from, and: it has been. */
int gn_shm_flags_offered(const struct gn_shm_flags *l, int from, uint32_t message);
const void *gn_shm_flags_peek(const struct gn_shm_flags *l, int from, size_t offset_bytes);
void gn_shm_flags_take(struct gn_shm_flags *l, int from, uint32_t message);

#endif
