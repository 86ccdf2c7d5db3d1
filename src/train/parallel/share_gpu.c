/* Gradients in a GPU's memory: an allreduce of a backend, started after the event behind which they are complete. */
#include "src/train/parallel/sharing.h"

#include <stdlib.h>

struct gpu_bucket {
	struct gn_shared_bucket base;
	struct gn_coll_backend_op *op;
};

static struct gpu_bucket *of(struct gn_shared_bucket *b)
{
	return (struct gpu_bucket *)b;
}

static int gpu_fits(const struct gn_sharing_options *o)
{
	return o->backend != NULL;
}

static enum gn_status gpu_prepare(const struct gn_sharing_options *o, float *data, size_t count, struct gn_shared_bucket **out,
				  struct gn_err *err)
{
	struct gpu_bucket *b = malloc(sizeof *b);
	enum gn_status status;

	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bucket");
	b->base.by = &gn_share_gpu;
	status = gn_coll_backend_prepare(o->backend, data, count, GN_F32, GN_SUM, &b->op, err);
	if (status)
		free(b);
	else
		*out = &b->base;
	return status;
}

static enum gn_status gpu_start(struct gn_shared_bucket *b, const struct gn_event *after, struct gn_err *err)
{
	return gn_coll_backend_start(of(b)->op, after ? gn_event_native(after) : NULL, err);
}

static enum gn_status gpu_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	return gn_coll_backend_test(of(b)->op, done, err);
}

static enum gn_status gpu_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	return gn_coll_backend_wait(of(b)->op, err);
}

static void gpu_free(struct gn_shared_bucket *b)
{
	gn_coll_backend_free(of(b)->op);
	free(b);
}

static const struct gn_coll *gpu_coll(const struct gn_shared_bucket *b)
{
	(void)b;
	return NULL;
}

const struct gn_sharing gn_share_gpu = {"allreduce on GPUs", gpu_fits, gpu_prepare, gpu_start, gpu_test, gpu_wait, gpu_free, gpu_coll};
