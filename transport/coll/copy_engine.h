/* How bytes get from a device's memory to the host's and back: what staging (staged.h) needs of it, and nothing of CUDA.
 *
 * Copies down (to the host) run in the order in which they were begun, and so do copies up; the two may run side by side.
 * Each belongs to a slot, of which there is never more than one under way. No call waits for a copy.
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
	/* Host memory that copies will touch, made fast for them; GN_ERR_UNSUPPORTED: they work without. */
	enum gn_status (*pin)(struct gn_copy_engine *c, void *host, size_t bytes, struct gn_err *err);
	void (*unpin)(struct gn_copy_engine *c, void *host);
	/* after: what has to have happened on the device before (CUDA: a cudaEvent_t); NULL: nothing. */
	enum gn_status (*down)(struct gn_copy_engine *c, int slot, void *host, const void *device, size_t bytes, void *after,
			       struct gn_err *err);
	enum gn_status (*up)(struct gn_copy_engine *c, int slot, void *device, const void *host, size_t bytes,
			     struct gn_err *err);
	/* Whether the slot's last copy is over. An error means that it, or the device, has failed. */
	enum gn_status (*poll)(struct gn_copy_engine *c, int slot, int *done, struct gn_err *err);
	/* No copy is under way. */
	void (*destroy)(struct gn_copy_engine *c);
};

/* The first member of each implementation. */
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
