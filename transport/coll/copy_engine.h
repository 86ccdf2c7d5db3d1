/* Interface of a copy engine between device and host memory, as staging needs it (staged.h). It does not depend on CUDA.
 *
 * Copies down (to the host) run in the order in which they were started, and so do copies up; the two directions may overlap. Each
 * copy belongs to a slot, which has at most one copy in flight. No call blocks.
 *
 * Thread safety: one thread at a time.
 */
#ifndef GN_TRANSPORT_COLL_COPY_ENGINE_H
#define GN_TRANSPORT_COLL_COPY_ENGINE_H

#include "src/base/status.h"

#include <stddef.h>

#define GN_COPY_ENGINE_SLOTS_MAX 64

struct gn_copy_engine;

struct gn_copy_engine_ops {
	/* Pins host memory for faster copies. GN_ERR_UNSUPPORTED: copies work without. */
	enum gn_status (*pin)(struct gn_copy_engine *c, void *host, size_t bytes, struct gn_err *err);
	void (*unpin)(struct gn_copy_engine *c, void *host);
	/* after: a device event (CUDA: cudaEvent_t) that the copy waits for; NULL: none. */
	enum gn_status (*down)(struct gn_copy_engine *c, int slot, void *host, const void *device, size_t bytes, void *after,
			       struct gn_err *err);
	enum gn_status (*up)(struct gn_copy_engine *c, int slot, void *device, const void *host, size_t bytes,
			     struct gn_err *err);
	/* Whether the slot's last copy is complete. An error: it, or the device, has failed. */
	enum gn_status (*poll)(struct gn_copy_engine *c, int slot, int *done, struct gn_err *err);
	/* With no copy in flight. */
	void (*destroy)(struct gn_copy_engine *c);
};

/* First member of the implementations. */
struct gn_copy_engine {
	const struct gn_copy_engine_ops *ops;
};

/* NULL is fine. */
static inline void gn_copy_engine_destroy(struct gn_copy_engine *c)
{
	if (c)
		c->ops->destroy(c);
}

#endif
