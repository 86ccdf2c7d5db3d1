/* Gradients in host memory for parameter servers: each bucket is pushed when it is complete, every server's part to it. What follows the
 * parameters in the array is summed by an allreduce over the workers that take steps together; it starts with the bucket at the array's
 * beginning, which starts last. A gradient that is not finite makes its first number NaN. */
#include "src/train/parallel/server_client.h"
#include "src/train/parallel/sharing.h"

#include "src/base/vector.h"

struct served_bucket {
	struct gn_shared_bucket base;
	struct gn_server_client *servers;
	struct gn_server_pushes *pushes;
	float *flag;
	struct gn_coll *tail; /* NULL: of one worker, and of other buckets */
	int is_summed;
	struct gn_err err;    /* of the sum */
};

static struct served_bucket *of(struct gn_shared_bucket *b)
{
	return (struct served_bucket *)b;
}

static int served_fits(const struct gn_sharing_options *o)
{
	return o->servers != NULL;
}

static void served_free(struct gn_shared_bucket *b)
{
	gn_coll_free(of(b)->tail);
	gn_server_pushes_free(of(b)->pushes);
}

static enum gn_status served_prepare(const struct gn_sharing_options *o, struct gn_shared_bucket *shared, struct gn_err *err)
{
	size_t params = gn_model_param_elements(o->model);
	struct served_bucket *b = of(shared);
	enum gn_status status;

	b->servers = o->servers;
	b->flag = o->served_flag;
	status = gn_server_pushes_create(o->servers, shared->data, params, shared->begin, shared->gradients, &b->pushes, err);
	if (!status && !shared->begin && gn_comm_size(o->comm) > 1)
		status = gn_coll_allreduce(o->comm, o->flat + params, o->tail_elements, GN_F32, NULL, o->algo, &b->tail, err);
	return status;
}

/* 0; NaN where one of them is not finite. */
GN_VECTOR static float flag_of(const float *x, size_t count)
{
	float lanes[16] = {0}, sum = 0;
	size_t i = 0;

	for (; i + 16 <= count; i += 16)
		for (size_t l = 0; l < 16; l++)
			lanes[l] += x[i + l] * 0;
	for (; i < count; i++)
		sum += x[i] * 0;
	for (size_t l = 0; l < 16; l++)
		sum += lanes[l];
	return sum;
}

/* Events of the host are done. */
static enum gn_status served_start(struct gn_shared_bucket *shared, const struct gn_event *after, struct gn_err *err)
{
	struct served_bucket *b = of(shared);
	enum gn_status status = gn_server_pushes_start(b->pushes, err);

	(void)after;
	*b->flag += flag_of(shared->data, shared->gradients);
	b->is_summed = !b->tail;
	return status || !b->tail ? status : gn_coll_start(b->tail, NULL, err);
}

static enum gn_status served_test(struct gn_shared_bucket *shared, int *done, struct gn_err *err)
{
	struct served_bucket *b = of(shared);
	enum gn_status status = gn_server_pushes_test(b->pushes, done, err);

	if (!status && !b->is_summed)
		status = gn_coll_test(b->tail, &b->is_summed, err);
	*done &= b->is_summed;
	return status;
}

static int is_done(void *context)
{
	int done = 0;
	struct served_bucket *b = context;

	return served_test(&b->base, &done, &b->err) || done;
}

static enum gn_status served_wait(struct gn_shared_bucket *shared, struct gn_err *err)
{
	struct served_bucket *b = of(shared);
	enum gn_status status;

	b->err.status = GN_OK;
	status = gn_server_client_wait(b->servers, is_done, b, err);
	if (!status && b->err.status)
		*err = b->err;
	return status ? status : b->err.status;
}

const struct gn_sharing gn_share_served = {"served", served_fits, sizeof(struct served_bucket), served_prepare, served_start, served_test,
					   served_wait, served_free, NULL, NULL};
