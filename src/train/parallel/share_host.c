/* Gradients in host memory: an allreduce of the communicator. */
#include "src/train/parallel/sharing.h"

#include <stdlib.h>

struct host_bucket {
	struct gn_shared_bucket base;
	struct gn_coll *coll;
};

static struct host_bucket *of(struct gn_shared_bucket *b)
{
	return (struct host_bucket *)b;
}

static int host_fits(const struct gn_sharing_options *o)
{
	return !o->backend;
}

static enum gn_status host_prepare(const struct gn_sharing_options *o, float *data, size_t count, struct gn_shared_bucket **out,
				   struct gn_err *err)
{
	struct host_bucket *b = malloc(sizeof *b);
	enum gn_status status;

	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bucket");
	b->base.by = &gn_share_host;
	status = gn_coll_allreduce(o->comm, data, count, GN_F32, NULL, o->algo, &b->coll, err);
	if (status)
		free(b);
	else
		*out = &b->base;
	return status;
}

/* Events of the host are done. */
static enum gn_status host_start(struct gn_shared_bucket *b, const struct gn_event *after, struct gn_err *err)
{
	(void)after;
	return gn_coll_start(of(b)->coll, err);
}

static enum gn_status host_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	return gn_coll_test(of(b)->coll, done, err);
}

static enum gn_status host_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	return gn_coll_wait(of(b)->coll, err);
}

static void host_free(struct gn_shared_bucket *b)
{
	gn_coll_free(of(b)->coll);
	free(b);
}

static const struct gn_coll *host_coll(const struct gn_shared_bucket *b)
{
	return ((const struct host_bucket *)b)->coll;
}

const struct gn_sharing gn_share_host = {"allreduce", host_fits, host_prepare, host_start, host_test, host_wait, host_free, host_coll};
