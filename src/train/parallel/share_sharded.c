/* Gradients in host memory with a sharded optimizer: a reduce-scatter, after which each rank has the sums of its own part, and when the
 * parts of parameters are updated, an allgather of them. What follows the parameters in the array, and what is left over of them, is
 * summed by an allreduce; in batches before a step's last only what is left over. */
#include "src/train/parallel/shard.h"
#include "src/train/parallel/sharing.h"

struct sharded_bucket {
	struct gn_shared_bucket base;
	struct gn_coll *scatter;  /* NULL, as the next: an empty range */
	struct gn_coll *gather;
	struct gn_coll *tail;	  /* NULL: the bucket has none */
	struct gn_coll *rest;	  /* of the tail what is of parameters; NULL: nothing is */
	struct gn_coll *running;  /* one of the two, or NULL */
	const int *is_partial;	  /* as in the options */
	int is_scattered, is_summed; /* what was started is done */
};

static struct sharded_bucket *of(struct gn_shared_bucket *b)
{
	return (struct sharded_bucket *)b;
}

static int sharded_fits(const struct gn_sharing_options *o)
{
	return o->shard_params && o->memory == GN_MEMORY_HOST;
}

static void sharded_free(struct gn_shared_bucket *b)
{
	gn_coll_free(of(b)->scatter);
	gn_coll_free(of(b)->gather);
	gn_coll_free(of(b)->tail);
	gn_coll_free(of(b)->rest);
}

static enum gn_status sharded_prepare(const struct gn_sharing_options *o, struct gn_shared_bucket *shared, struct gn_err *err)
{
	size_t params = gn_model_param_elements(o->model), end = shared->begin + shared->count;
	size_t rest = gn_shard_rest(params, gn_comm_size(o->comm));
	const struct gn_shard_range r = gn_shard_range(params, gn_comm_size(o->comm), shared->begin, end);
	struct gn_coll_args scatter = {.what = GN_COLLECTIVE_REDUCE_SCATTER, .out = o->flat + r.begin, .count = r.each, .type = GN_F32,
				       .algorithm = o->algo};
	struct gn_coll_args gather = {.what = GN_COLLECTIVE_ALLGATHER, .out = o->shard_params + r.begin, .count = r.each, .type = GN_F32,
				      .algorithm = o->algo};
	struct sharded_bucket *b = of(shared);
	enum gn_status status = GN_OK;

	b->is_partial = o->is_partial;
	if (r.each)
		status = gn_coll_prepare(o->comm, &scatter, &b->scatter, err);
	if (!status && r.each)
		status = gn_coll_prepare(o->comm, &gather, &b->gather, err);
	if (!status && end > params)
		status = gn_coll_allreduce(o->comm, o->flat + rest, end - rest, GN_F32, NULL, o->algo, &b->tail, err);
	if (!status && end > params && params > rest)
		status = gn_coll_allreduce(o->comm, o->flat + rest, params - rest, GN_F32, NULL, o->algo, &b->rest, err);
	return status;
}

/* Events of the host are done. */
static enum gn_status sharded_start(struct gn_shared_bucket *shared, const struct gn_event *after, struct gn_err *err)
{
	struct sharded_bucket *b = of(shared);
	enum gn_status status = GN_OK;

	(void)after;
	b->is_scattered = !b->scatter;
	b->running = b->is_partial && *b->is_partial ? b->rest : b->tail;
	b->is_summed = !b->running;
	if (b->scatter)
		status = gn_coll_start(b->scatter, NULL, err);
	return status || !b->running ? status : gn_coll_start(b->running, NULL, err);
}

static enum gn_status sharded_test(struct gn_shared_bucket *shared, int *done, struct gn_err *err)
{
	struct sharded_bucket *b = of(shared);
	enum gn_status status = b->is_scattered ? GN_OK : gn_coll_test(b->scatter, &b->is_scattered, err);

	if (!status && !b->is_summed)
		status = gn_coll_test(b->running, &b->is_summed, err);
	*done = b->is_scattered && b->is_summed;
	return status;
}

static enum gn_status sharded_wait(struct gn_shared_bucket *shared, struct gn_err *err)
{
	struct sharded_bucket *b = of(shared);
	enum gn_status status = b->is_scattered ? GN_OK : gn_coll_wait(b->scatter, err);

	return status || b->is_summed ? status : gn_coll_wait(b->running, err);
}

static struct gn_coll *sharded_gather(const struct gn_shared_bucket *b)
{
	return ((const struct sharded_bucket *)b)->gather;
}

const struct gn_sharing gn_share_sharded = {"sharded", sharded_fits, sizeof(struct sharded_bucket), sharded_prepare, sharded_start, sharded_test,
					    sharded_wait, sharded_free, NULL, sharded_gather};
