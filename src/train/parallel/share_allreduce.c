/* Gradients summed by an allreduce of the communicator, in the host's memory or the device's, started after the event behind which they
 * are complete. */
#include "src/train/parallel/sharing.h"

struct allreduce_bucket {
	struct gn_shared_bucket base;
	struct gn_coll *coll;
	enum gn_memory memory;
};

static struct allreduce_bucket *of(struct gn_shared_bucket *b)
{
	return (struct allreduce_bucket *)b;
}

static int allreduce_fits(const struct gn_sharing_options *o)
{
	(void)o;
	return 1;
}

static enum gn_status allreduce_prepare(const struct gn_sharing_options *o, struct gn_shared_bucket *b, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = b->data, .count = b->count, .type = GN_F32,
				    .memory = o->memory, .algorithm = o->memory == GN_MEMORY_HOST ? o->algo : NULL};

	of(b)->memory = o->memory;
	return gn_coll_prepare(o->comm, &args, &of(b)->coll, err);
}

static enum gn_status allreduce_start(struct gn_shared_bucket *b, const struct gn_event *after, struct gn_err *err)
{
	return gn_coll_start(of(b)->coll, after, err);
}

static enum gn_status allreduce_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	return gn_coll_test(of(b)->coll, done, err);
}

static enum gn_status allreduce_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	return gn_coll_wait(of(b)->coll, err);
}

static void allreduce_free(struct gn_shared_bucket *b)
{
	gn_coll_free(of(b)->coll);
}

static const struct gn_coll *allreduce_coll(const struct gn_shared_bucket *b)
{
	const struct allreduce_bucket *bucket = (const struct allreduce_bucket *)b;

	return bucket->memory == GN_MEMORY_HOST ? bucket->coll : NULL;
}

const struct gn_sharing gn_share_allreduce = {"allreduce", allreduce_fits, sizeof(struct allreduce_bucket), allreduce_prepare, allreduce_start,
					      allreduce_test, allreduce_wait, allreduce_free, allreduce_coll, NULL};
