#include "tests/transport/memory_host.h"

#include <stdlib.h>
#include <string.h>

enum { QUEUE = 4096 };

struct work {
	gn_reduce_fn reduce; /* NULL: a copy */
	void *to;
	const void *from;
	size_t count; /* of a copy bytes */
};

struct memory_host {
	struct gn_reduce_executor base;
	struct memory_host_options options;
	struct work queue[QUEUE];
	uint64_t queued, done;
	uint64_t random;
};

static struct memory_host *of(struct gn_reduce_executor *m)
{
	return (struct memory_host *)m;
}

static enum gn_status take(struct gn_reduce_executor *m, size_t bytes, void **out, struct gn_err *err)
{
	(void)m;
	*out = malloc(bytes + 1);
	if (!*out)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	memset(*out, 0xee, bytes);
	return GN_OK;
}

static void give(struct gn_reduce_executor *m, void *memory)
{
	(void)m;
	free(memory);
}

static enum gn_status check(const struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, struct gn_err *err)
{
	(void)m;
	return gn_reduce_of(type, reduction) ? GN_OK : gn_err_set(err, GN_ERR_UNSUPPORTED, "there is no such reduction");
}

static enum gn_status do_next(struct memory_host *h, struct gn_err *err)
{
	struct work *w = &h->queue[h->done++ % QUEUE];

	if (h->done == (uint64_t)h->options.fail_at)
		return gn_err_set(err, GN_ERR_FAILED, "work number %llu failed on purpose", (unsigned long long)h->done);
	if (w->reduce)
		w->reduce(w->to, w->from, w->count);
	else
		memcpy(w->to, w->from, w->count);
	return GN_OK;
}

static enum gn_status queue(struct gn_reduce_executor *m, struct work work, struct gn_err *err)
{
	struct memory_host *h = of(m);
	enum gn_status status = h->queued - h->done == QUEUE ? do_next(h, err) : GN_OK;

	h->queue[h->queued++ % QUEUE] = work;
	return status;
}

static enum gn_status reduce(struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, void *to,
			     const void *from, size_t count, struct gn_err *err)
{
	return queue(m, (struct work){gn_reduce_of(type, reduction), to, from, count}, err);
}

static enum gn_status copy(struct gn_reduce_executor *m, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	return queue(m, (struct work){NULL, to, from, bytes}, err);
}

static enum gn_status mark(struct gn_reduce_executor *m, uint64_t *out, struct gn_err *err)
{
	(void)err;
	*out = of(m)->queued;
	return GN_OK;
}

static enum gn_status reached(struct gn_reduce_executor *m, uint64_t mark_of, int *yes, struct gn_err *err)
{
	struct memory_host *h = of(m);
	enum gn_status status = GN_OK;

	h->random = h->random * 6364136223846793005u + 1442695040888963407u;
	if (h->done < mark_of && h->random >> 62 == 0)
		status = do_next(h, err);
	*yes = h->done >= mark_of;
	return status;
}

static enum gn_status happened(struct gn_reduce_executor *m, void *event, int *yes, struct gn_err *err)
{
	struct memory_host_event *e = event;

	(void)m;
	(void)err;
	*yes = e->looks-- <= 0;
	return GN_OK;
}

static void destroy(struct gn_reduce_executor *m)
{
	free(m);
}

uint64_t memory_host_works(const struct gn_reduce_executor *m)
{
	return ((const struct memory_host *)m)->done;
}

enum gn_status memory_host_create(const struct memory_host_options *options, struct gn_reduce_executor **out, struct gn_err *err)
{
	static const struct gn_reduce_executor_ops ops = {take, give, check, reduce, copy, mark, reached, happened, destroy};
	struct memory_host *h = calloc(1, sizeof *h);

	if (!h)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	h->base.ops = &ops;
	h->options = *options;
	h->random = options->seed;
	*out = &h->base;
	return GN_OK;
}
