/* Allreduce among the ranks of one node, straight in each other's memory: no copies through a transport.
 *
 * Buffers come from gn_shm_alloc(), which gives every rank of the node a part of one segment. An allreduce on such a buffer
 * has two meetings: all have arrived; then each rank reduces its share of the elements from everyone's buffer and writes the
 * result into everyone's buffer; all are done. Small buffers take one meeting: each rank copies its values into a
 * letter, and each adds up all of them by itself. Bytes moved by rank: (p + 1) / p times the buffer read and written once,
 * which is the least there can be. Buffers from elsewhere pass through a stage, piece by piece: each rank puts in what is not
 * of its share, reduces its share of its own buffer and the others' pieces, leaves the result in its buffer and the stage, and
 * takes the others' results from there: (p - 1) / p times the buffer copied in and out. Up to 32 KiB each rank puts in all and
 * reduces all, which takes one meeting less.
 *
 * The order of summation is that of local ranks: the same bits on all ranks and in all runs.
 *
 * Room for letters of more than some bytes, and for lanes' words, is committed when the first operation that needs it is made:
 * GN_ERR_NO_MEMORY where there is none, at that rank alone, which is to give up (gn_world_give_up).
 *
 * Thread safety: one thread. Operations are made, started and freed in the same order on all ranks of the node; every rank
 * publishes what it starts, so that ranks which disagree on size, type or place find out (GN_ERR_MISMATCH) instead of corrupting
 * memory.
 */
#ifndef GN_TRANSPORT_SHM_SHM_H
#define GN_TRANSPORT_SHM_SHM_H

#include "transport/bootstrap/world.h"
#include "transport/schedule/types.h"

#include <time.h>

struct gn_shm;
struct gn_shm_op;

/* Collective. crowded, alike on all ranks of the node: they outnumber their processors. GN_ERR_UNSUPPORTED, alike on all ranks,
 * where memory cannot be shared. */
enum gn_status gn_shm_create(struct gn_world *world, int crowded, struct gn_shm **out, struct gn_err *err);
void gn_shm_destroy(struct gn_shm *n);

/* Collective, in the same order and with the same size on all ranks. Zeroed, aligned to a page; lives until
 * gn_shm_free or gn_shm_destroy. */
enum gn_status gn_shm_alloc(struct gn_shm *n, size_t len_bytes, void **out, struct gn_err *err);
/* Local. NULL is fine. */
void gn_shm_free(struct gn_shm *n, void *memory);
/* Whether [memory, memory + len) lies in one allocation of this node. */
int gn_shm_owns(const struct gn_shm *n, const void *memory, size_t len_bytes);

/* A persistent allreduce of count elements over the ranks of this node. in: NULL for in place, else a buffer of this rank's
 * own (anywhere) that is read. out: best in an allocation of this node, at the same place on all ranks; elsewhere it takes
 * longer, and GN_ERR_UNSUPPORTED says that there is no stage for so many ranks. */
enum gn_status gn_shm_allreduce(struct gn_shm *n, const void *in, void *out_buffer, size_t count, size_t element_bytes,
				 gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err);
/* Ranks whose operations have different signatures find out, as those that give different sizes. Before the first start. */
void gn_shm_sign(struct gn_shm_op *op, uint64_t signature);
void gn_shm_op_free(struct gn_shm_op *op);
/* Up to here buffers from anywhere need neither an allocation nor a stage. */
size_t gn_shm_mail_bytes(const struct gn_shm *n);

void gn_shm_start(struct gn_shm_op *op);
/* Makes what progress can be made without waiting; *done says whether the result is there. GN_ERR_MISMATCH names the rank
 * that started another operation. */
enum gn_status gn_shm_test(struct gn_shm_op *op, int *done, struct gn_err *err);
/* The rank that a started operation waits for; -1: none. */
void gn_shm_waits_for(const struct gn_shm_op *op, int *rank);
/* Whether buffers that are not of gn_shm_alloc() are better off here, too, than with messages. */
int gn_shm_stages(const struct gn_shm *n);
/* --- sleeping until a neighbour has done something --- */

/* From here on neighbours ring this rank's bell after each word that they write for it. Returns the bell's present state, to
 * await a change of; before that, one more look at the words. Nests. */
uint32_t gn_shm_listen(struct gn_shm *n);
void gn_shm_listen_no_more(struct gn_shm *n);
/* Sleeps until the bell's state is another, for limit at most. Neighbours do not make sure (with a fence) that they see who
 * listens: once in a very long while one may miss it, so limit should not be long. */
void gn_shm_await_bell(struct gn_shm *n, uint32_t state, const struct timespec *limit);
/* Wakes a neighbour if it listens, or (-1) all who do; and this rank's own other threads. */
void gn_shm_ring(struct gn_shm *n, int local);
void gn_shm_ring_own(struct gn_shm *n);

#endif
