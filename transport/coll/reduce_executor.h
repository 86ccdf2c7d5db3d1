/* Memory that is not the host's, as far as collectives on it need it: room for what arrives, adding that up, copying, and knowing when
 * it is done; and nothing of CUDA. Messages go straight from and to it, which is UCX's part (gn_ucx_takes_gpu_memory).
 *
 * Work is queued, and done in the order in which it was. No call waits for it. Thread safety: one thread at a time; happened from
 * any, at any time.
 */
#ifndef GN_TRANSPORT_COLL_REDUCE_EXECUTOR_H
#define GN_TRANSPORT_COLL_REDUCE_EXECUTOR_H

#include "src/base/status.h"
#include "transport/schedule/types.h"

struct gn_reduce_executor;

struct gn_reduce_executor_ops {
	/* For 64-byte aligned scratch of a collective. */
	enum gn_status (*alloc)(struct gn_reduce_executor *m, size_t bytes, void **out, struct gn_err *err);
	void (*free)(struct gn_reduce_executor *m, void *memory);
	/* GN_ERR_UNSUPPORTED: reduce cannot do it. */
	enum gn_status (*check)(const struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction,
				struct gn_err *err);
	/* to[i] = to[i] op from[i] */
	enum gn_status (*reduce)(struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, void *to,
				 const void *from, size_t count, struct gn_err *err);
	enum gn_status (*copy)(struct gn_reduce_executor *m, void *to, const void *from, size_t bytes, struct gn_err *err);
	/* *mark stands behind all that is queued; *yes: all before it is done. Marks are reached in order. */
	enum gn_status (*mark)(struct gn_reduce_executor *m, uint64_t *mark, struct gn_err *err);
	enum gn_status (*reached)(struct gn_reduce_executor *m, uint64_t mark, int *yes, struct gn_err *err);
	/* event: as a carrier's start takes it. */
	enum gn_status (*happened)(struct gn_reduce_executor *m, void *event, int *yes, struct gn_err *err);
	/* Waits for what is queued. */
	void (*destroy)(struct gn_reduce_executor *m);
};

/* The first member of each implementation. */
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
