/* One rank: a bucket is shared when it is complete. */
#include "src/train/parallel/sharing.h"

#include <stdlib.h>

static int local_fits(const struct gn_sharing_options *o)
{
	return gn_comm_size(o->comm) == 1;
}

static enum gn_status local_prepare(const struct gn_sharing_options *o, float *data, size_t count, struct gn_shared_bucket **out,
				    struct gn_err *err)
{
	struct gn_shared_bucket *b = malloc(sizeof *b);

	(void)o;
	(void)data;
	(void)count;
	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bucket");
	b->by = &gn_share_local;
	*out = b;
	return GN_OK;
}

static enum gn_status local_start(struct gn_shared_bucket *b, const struct gn_event *after, struct gn_err *err)
{
	(void)b;
	(void)after;
	(void)err;
	return GN_OK;
}

static enum gn_status local_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	(void)b;
	(void)err;
	*done = 1;
	return GN_OK;
}

static enum gn_status local_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	(void)b;
	(void)err;
	return GN_OK;
}

static void local_free(struct gn_shared_bucket *b)
{
	free(b);
}

static const struct gn_coll *local_coll(const struct gn_shared_bucket *b)
{
	(void)b;
	return NULL;
}

const struct gn_sharing gn_share_local = {"local", local_fits, local_prepare, local_start, local_test, local_wait, local_free, local_coll,
					  NULL};
