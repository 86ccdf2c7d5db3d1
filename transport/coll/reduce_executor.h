/* Interface of a reduce executor: scratch memory, reductions and copies in device memory, as collectives need them. It does not
 * depend on CUDA. Messages are sent from and received into that memory by UCX (gn_ucx_takes_gpu_memory).
 *
 * Work is queued and runs in order. Only destroy blocks. Thread safety: one thread at a time; happened from any.
 */
#ifndef GN_TRANSPORT_COLL_REDUCE_EXECUTOR_H
#define GN_TRANSPORT_COLL_REDUCE_EXECUTOR_H

#include "src/base/status.h"
#include "transport/schedule/types.h"

struct gn_reduce_executor;

struct gn_reduce_executor_ops {
	/* Scratch memory of a collective, aligned to 64 bytes. */
	enum gn_status (*alloc)(struct gn_reduce_executor *m, size_t bytes, void **out, struct gn_err *err);
	void (*free)(struct gn_reduce_executor *m, void *memory);
	/* GN_ERR_UNSUPPORTED: reduce does not support the type or reduction. */
	enum gn_status (*check)(const struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction,
				struct gn_err *err);
	/* to[i] = to[i] op from[i] */
	enum gn_status (*reduce)(struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, void *to,
				 const void *from, size_t count, struct gn_err *err);
	enum gn_status (*copy)(struct gn_reduce_executor *m, void *to, const void *from, size_t bytes, struct gn_err *err);
	/* mark: sets *mark to a position behind all queued work. reached: *yes if all work before the mark is complete. Marks are
	 * reached in order. */
	enum gn_status (*mark)(struct gn_reduce_executor *m, uint64_t *mark, struct gn_err *err);
	enum gn_status (*reached)(struct gn_reduce_executor *m, uint64_t mark, int *yes, struct gn_err *err);
	/* Whether a device event (`after` of gn_coll_backend_start) has occurred. */
	enum gn_status (*happened)(struct gn_reduce_executor *m, void *event, int *yes, struct gn_err *err);
	/* Blocks until all queued work is complete. */
	void (*destroy)(struct gn_reduce_executor *m);
};

/* First member of the implementations. */
struct gn_reduce_executor {
	const struct gn_reduce_executor_ops *ops;
};

/* NULL is fine. */
static inline void gn_reduce_executor_destroy(struct gn_reduce_executor *m)
{
	if (m)
		m->ops->destroy(m);
}

#endif
