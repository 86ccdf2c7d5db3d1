/* Gradients in host memory, with local steps: an allreduce of the communicator in the steps that are not local; in those that are, only of
 * the tail, when the last bucket starts, and the rank's own gradients stand for the sum, times the number of ranks. */
#include "src/train/parallel/sharing.h"

#include "src/base/vector.h"

struct averaged_bucket {
	struct gn_shared_bucket base;
	struct gn_local_steps *local;
	int ranks;
	struct gn_coll *all; /* with what follows them */
	struct gn_coll *tail; /* of the array; NULL: another bucket starts last */
	struct gn_coll *running;
};

static struct averaged_bucket *of(struct gn_shared_bucket *b)
{
	return (struct averaged_bucket *)b;
}

static int averaged_fits(const struct gn_sharing_options *o)
{
	return o->local && o->memory == GN_MEMORY_HOST;
}

static void averaged_free(struct gn_shared_bucket *b)
{
	gn_coll_free(of(b)->all);
	gn_coll_free(of(b)->tail);
}

static enum gn_status averaged_prepare(const struct gn_sharing_options *o, struct gn_shared_bucket *shared, struct gn_err *err)
{
	float *tail = o->flat + gn_model_param_elements(o->model);
	struct averaged_bucket *b = of(shared);
	enum gn_status status = gn_coll_allreduce(o->comm, shared->data, shared->count, GN_F32, NULL, o->algo, &b->all, err);

	b->local = o->local;
	b->ranks = gn_comm_size(o->comm);
	if (!status && !shared->begin)
		status = gn_coll_allreduce(o->comm, tail, o->tail_elements, GN_F32, NULL, o->algo, &b->tail, err);
	return status;
}

/* Returns 0; NaN where one of them is not finite. */
GN_VECTOR static float scale(float *x, size_t count, float by)
{
	float lanes[16] = {0}, sum = 0;
	size_t i = 0;

	for (; i + 16 <= count; i += 16)
		for (size_t l = 0; l < 16; l++) {
			lanes[l] += x[i + l] * 0;
			x[i + l] *= by;
		}
	for (; i < count; i++) {
		sum += x[i] * 0;
		x[i] *= by;
	}
	for (size_t l = 0; l < 16; l++)
		sum += lanes[l];
	return sum;
}

/* Events of the host are done. Buckets start in one order, the one at the array's beginning last. */
static enum gn_status averaged_start(struct gn_shared_bucket *shared, const struct gn_event *after, struct gn_err *err)
{
	struct averaged_bucket *b = of(shared);

	(void)after;
	b->running = b->all;
	if (b->local->is_active) {
		*b->local->flag += scale(shared->data, shared->gradients, (float)b->ranks);
		b->running = b->tail;
	}
	return b->running ? gn_coll_start(b->running, NULL, err) : GN_OK;
}

static enum gn_status averaged_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	*done = 1;
	return of(b)->running ? gn_coll_test(of(b)->running, done, err) : GN_OK;
}

static enum gn_status averaged_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	return of(b)->running ? gn_coll_wait(of(b)->running, err) : GN_OK;
}

const struct gn_sharing gn_share_averaged = {"averaged", averaged_fits, sizeof(struct averaged_bucket), averaged_prepare, averaged_start,
					     averaged_test, averaged_wait, averaged_free, NULL, NULL};
