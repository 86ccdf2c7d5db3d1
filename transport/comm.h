/* A group of ranks that can do collectives over UCX.
 *
 * Created over all of a world. Every collective must be called by all ranks in the same order with the same sizes. A call
 * that waits also watches the world: it returns GN_ERR_PEER_LOST on every surviving rank rather than wait for a dead peer.
 * After a failure the communicator can only be destroyed.
 *
 * Thread safety: one thread at a time.
 */
#ifndef GN_TRANSPORT_COMM_H
#define GN_TRANSPORT_COMM_H

#include "src/base/log.h"
#include "src/base/strbuf.h"
#include "transport/world.h"

#include <stddef.h>
#include <stdint.h>

struct gn_comm;
struct gn_coll;

enum gn_dtype { GN_F32, GN_F64, GN_I32, GN_I64, GN_BYTES };
/* acc[i] = acc[i] op in[i] for count elements; op associative and commutative up to rounding. */
typedef void (*gn_reduce_fn)(void *acc, const void *in, size_t count);
/* Built-in reductions for small agreement work; NULL when there is none for the type. */
gn_reduce_fn gn_reduce_sum(enum gn_dtype type);
gn_reduce_fn gn_reduce_max(enum gn_dtype type);
gn_reduce_fn gn_reduce_min(enum gn_dtype type);
size_t gn_dtype_bytes(enum gn_dtype type);

/* SHARED: straight in the memory that the ranks of one node share; see gn_comm_alloc. */
enum gn_algo { GN_ALGO_AUTO, GN_ALGO_RING, GN_ALGO_RECURSIVE_DOUBLING, GN_ALGO_SHARED,
	       GN_ALGO_HALVING_DOUBLING, GN_ALGO_DOUBLE_TREE };

struct gn_comm_options {
	const char *transport; /* "auto", "tcp", "shm", "rc", "ud": what may carry data; becomes UCX_TLS unless set */
};

/* Collective. Connects all pairs that the schedules need and logs one line: nodes, ranks, devices and transports in use with
 * link rate, and what was left unused. */
enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err);
void gn_comm_destroy(struct gn_comm *c);
int gn_comm_rank(const struct gn_comm *c);
int gn_comm_size(const struct gn_comm *c);
struct gn_world *gn_comm_world(const struct gn_comm *c);
/* Payload bytes that this rank has sent since creation, to ranks of its own node and to others. */
void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node);
/* Appends what carries data to a rank, "posix/memory cma/memory" or "tcp/eth0"; nothing when there is no connection. */
void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out);

/* Collective, with the same size and in the same order on all ranks. Zeroed memory, page-aligned, for buffers of collectives:
 * where the system allows it, ranks of one node reach each other's directly, which makes an allreduce on it several times
 * faster. Elsewhere it is memory like any other. Freed by gn_comm_free, before the communicator. */
enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err);
/* Local; no collective on the memory may be in flight or be kept. NULL is fine. */
void gn_comm_free(struct gn_comm *c, void *memory);

/* Blocking collectives over the executor. */
enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err);
enum gn_status gn_comm_broadcast(struct gn_comm *c, void *buffer, size_t len_bytes, int root, struct gn_err *err);
/* In place, sum of count elements unless another reduction is given (NULL: sum of type). */
enum gn_status gn_comm_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 struct gn_err *err);

/* A persistent in-place allreduce on one buffer (kept by the caller until gn_coll_free): start, then test or wait, as often
 * as wanted; several may be in flight, started in the same order everywhere. The result is bit-identical on all ranks and
 * from run to run for the same world size and algorithm. */
enum gn_status gn_coll_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 enum gn_algo algo, struct gn_coll **out, struct gn_err *err);
/* The same out of place: in is read, out (not overlapping it) receives the result. */
enum gn_status gn_coll_allreduce_from(struct gn_comm *c, const void *in, void *out_buffer, size_t count,
				      enum gn_dtype type, gn_reduce_fn reduce, enum gn_algo algo, struct gn_coll **out,
				      struct gn_err *err);
/* What GN_ALGO_AUTO means for this buffer. */
enum gn_algo gn_comm_choose(const struct gn_comm *c, const void *buffer, size_t len_bytes);
/* "ring", "recursive-doubling", "shared", "halving-doubling", "double-tree", "auto". */
const char *gn_algo_name(enum gn_algo algo);
enum gn_status gn_coll_start(struct gn_coll *coll, struct gn_err *err);
/* Makes progress; *done says whether this operation is complete. Does not block. */
enum gn_status gn_coll_test(struct gn_coll *coll, int *done, struct gn_err *err);
enum gn_status gn_coll_wait(struct gn_coll *coll, struct gn_err *err);
void gn_coll_free(struct gn_coll *coll);

#endif
