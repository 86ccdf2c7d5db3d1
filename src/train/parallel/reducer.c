#include "src/train/parallel/reducer.h"

#include "src/base/clock.h"

#include <sched.h>
#include <stdlib.h>

struct bucket {
	struct gn_shared_bucket *shared;
	struct gn_reducer_bucket seen;
	int first, end;	   /* parameters first .. end-1 */
	int missing;	   /* of them, not complete yet */
	int done;
};

struct gn_reducer {
	struct gn_sharing_options options;
	const struct gn_sharing *by;
	struct gn_reducer_config config;
	struct bucket *buckets; /* in the order in which they start */
	size_t count, started, finished;
	size_t gathering;	/* so many buckets' parameters, from the first on, are still under way */
	int *bucket_of;		/* parameter -> bucket */
	struct gn_event *event;	/* after it all gradients so far are complete; NULL: they are */
	uint64_t taken_ns;	/* by ready() */
	uint64_t computed_ns;
	enum gn_status status;	/* of what ready() did */
	struct gn_err err;
};

/* Cuts [0, params) from the end into buckets of at least bucket_bytes. Returns how many. All arrays may be NULL; begins: in
 * elements. */
static size_t cut(const struct gn_model *model, size_t bucket_bytes, struct bucket *buckets, int *bucket_of, size_t *begins)
{
	size_t count = 0, bytes = 0;
	int end = gn_model_param_count(model);

	for (int i = end - 1; i >= 0; i--) {
		bytes += gn_model_param(model, i)->count * sizeof(float);
		if (bucket_of)
			bucket_of[i] = (int)count;
		if (bytes < bucket_bytes && i > 0)
			continue;
		if (buckets)
			buckets[count] = (struct bucket){.first = i, .end = end};
		if (begins)
			begins[count] = i ? gn_model_param(model, i)->offset : 0;
		count++;
		end = i;
		bytes = 0;
	}
	return count;
}

size_t gn_reducer_count(const struct gn_model *model, size_t bucket_bytes)
{
	return cut(model, bucket_bytes, NULL, NULL, NULL);
}

void gn_reducer_begins(const struct gn_model *model, size_t bucket_bytes, size_t *begins)
{
	cut(model, bucket_bytes, NULL, NULL, begins);
}

static enum gn_status prepare(struct gn_reducer *x, size_t begin, size_t end, struct gn_shared_bucket **out, struct gn_err *err)
{
	size_t params = gn_model_param_elements(x->options.model);
	struct gn_shared_bucket *b;

	if (!x->by->bucket_bytes)
		return GN_OK;
	*out = b = calloc(1, x->by->bucket_bytes);
	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bucket");
	*b = (struct gn_shared_bucket){x->options.flat + begin, end - begin, begin, (end > params ? params : end) - begin};
	return x->by->prepare(&x->options, b, err);
}

static enum gn_status prepare_all(struct gn_reducer *x, struct gn_err *err)
{
	const struct gn_sharing_options *o = &x->options;
	size_t end = gn_model_param_elements(o->model) + o->tail_elements;
	enum gn_status status = GN_OK;

	for (size_t b = 0; b < x->count && !status; b++) {
		int first = x->buckets[b].first;
		size_t begin = first ? gn_model_param(o->model, first)->offset : 0;

		x->buckets[b].seen.bytes = (end - begin) * sizeof(float);
		status = prepare(x, begin, end, &x->buckets[b].shared, err);
		end = begin;
	}
	return status;
}

enum gn_status gn_reducer_create(const struct gn_sharing_options *options, const struct gn_reducer_config *config,
				 struct gn_reducer **out, struct gn_err *err)
{
	size_t params = (size_t)gn_model_param_count(options->model);
	struct gn_reducer *x = calloc(1, sizeof *x);
	enum gn_status status;

	if (x) {
		x->buckets = calloc(params + 1, sizeof *x->buckets);
		x->bucket_of = calloc(params + 1, sizeof *x->bucket_of);
	}
	if (!x || !x->buckets || !x->bucket_of) {
		gn_reducer_destroy(x);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the gradient reducer");
	}
	x->options = *options;
	x->by = gn_sharing_choose(options);
	x->config = *config;
	x->count = cut(options->model, config->bucket_bytes, x->buckets, x->bucket_of, NULL);
	status = prepare_all(x, err);
	if (status)
		gn_reducer_destroy(x);
	else
		*out = x;
	return status;
}

void gn_reducer_destroy(struct gn_reducer *x)
{
	if (!x)
		return;
	for (size_t b = 0; x->buckets && b < x->count; b++)
		if (x->buckets[b].shared) {
			x->by->free(x->buckets[b].shared);
			free(x->buckets[b].shared);
		}
	free(x->buckets);
	free(x->bucket_of);
	free(x);
}

size_t gn_reducer_buckets(const struct gn_reducer *x)
{
	return x->count;
}

const struct gn_reducer_config *gn_reducer_config(const struct gn_reducer *x)
{
	return &x->config;
}

void gn_reducer_bucket(const struct gn_reducer *x, size_t index, struct gn_reducer_bucket *out)
{
	*out = x->buckets[index].seen;
}

const struct gn_coll *gn_reducer_coll(const struct gn_reducer *x, size_t index)
{
	return x->by->coll ? x->by->coll(x->buckets[index].shared) : NULL;
}

uint64_t gn_reducer_taken_ns(const struct gn_reducer *x)
{
	return x->taken_ns;
}

int gn_reducer_ends_bucket(const struct gn_reducer *x, int param)
{
	return x->config.overlap && x->buckets[x->bucket_of[param]].first == param;
}

uint64_t gn_reducer_computed_ns(const struct gn_reducer *x)
{
	return x->computed_ns;
}

void gn_reducer_begin(struct gn_reducer *x)
{
	for (size_t b = 0; b < x->count; b++) {
		x->buckets[b].missing = x->buckets[b].end - x->buckets[b].first;
		x->buckets[b].done = 0;
	}
	x->started = 0;
	x->finished = 0;
	x->event = NULL;
	x->taken_ns = 0;
	x->status = GN_OK;
}

static void start(struct gn_reducer *x, struct bucket *b)
{
	b->seen.start_ns = gn_clock_ns();
	if (b->missing > 0) {
		b->seen.ready_ns = b->seen.start_ns;
		b->seen.taken_ns = x->taken_ns;
	}
	if (b->shared)
		x->status = x->by->start(b->shared, x->event, &x->err);
}

static void set_done(struct bucket *b)
{
	if (b->done)
		b->seen.done_ns = gn_clock_ns();
}

/* Starts, in order, every bucket that is complete (or just every bucket); then makes progress on those that have started. */
static void advance(struct gn_reducer *x, int all)
{
	while (!x->status && x->started < x->count && (all || x->buckets[x->started].missing <= 0))
		start(x, &x->buckets[x->started++]);
	for (size_t b = x->finished; b < x->started && !x->status; b++) {
		if (!x->buckets[b].done) {
			x->buckets[b].done = 1;
			if (x->buckets[b].shared)
				x->status = x->by->test(x->buckets[b].shared, &x->buckets[b].done, &x->err);
			set_done(&x->buckets[b]);
		}
		if (b == x->finished && x->buckets[b].done)
			x->finished++;
	}
}

void gn_reducer_ready(struct gn_reducer *x, int param, struct gn_event *event)
{
	struct bucket *b = &x->buckets[x->bucket_of[param]];
	uint64_t began = gn_clock_ns();

	x->event = event;
	if (--b->missing == 0) {
		b->seen.ready_ns = began;
		b->seen.taken_ns = x->taken_ns;
	}
	if (x->config.overlap) {
		advance(x, 0);
		x->taken_ns += gn_clock_ns() - began;
	}
}

void gn_reducer_poll(struct gn_reducer *x)
{
	advance(x, 1);
}

/* Blocks until the gradients are complete, and makes progress on their sums meanwhile. */
static void wait_for_gradients(struct gn_reducer *x)
{
	const struct gn_world *world = gn_comm_world(x->options.comm);
	int done = 0;
	enum gn_status status = gn_event_done(x->event, &done, &x->err);

	while (!status && !done && !gn_world_check(world, NULL)) {
		advance(x, 1);
		sched_yield();
		status = gn_event_done(x->event, &done, &x->err);
	}
	if (!status && !done && !x->status)
		status = gn_world_check(world, &x->err);
	x->status = status ? status : x->status;
}

enum gn_status gn_reducer_wait(struct gn_reducer *x, struct gn_err *err)
{
	advance(x, 1);
	if (x->event && gn_comm_size(x->options.comm) > 1)
		wait_for_gradients(x);
	x->computed_ns = gn_clock_ns();
	for (size_t i = 0; i < x->count && !x->status; i++) {
		struct bucket *b = &x->buckets[i];

		if (b->done)
			continue;
		if (b->shared)
			x->status = x->by->wait(b->shared, &x->err);
		b->done = 1;
		set_done(b);
	}
	if (x->status && err)
		*err = x->err;
	return x->status;
}

static struct gn_coll *gather_of(const struct gn_reducer *x, size_t bucket)
{
	return x->by->gather(x->buckets[bucket].shared);
}

enum gn_status gn_reducer_gather(struct gn_reducer *x, struct gn_err *err)
{
	enum gn_status status = gn_reducer_need_all(x, err);

	if (status || !x->by->gather)
		return status;
	for (size_t b = x->count; b-- > 0 && !status;)
		if (gather_of(x, b))
			status = gn_coll_start(gather_of(x, b), NULL, err);
	if (!status)
		x->gathering = x->count;
	return status;
}

/* Blocks until only the first `left` buckets' parameters are under way. */
static enum gn_status wait_gathered(struct gn_reducer *x, size_t left, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (; x->gathering > left && !status; x->gathering--)
		if (gather_of(x, x->gathering - 1))
			status = gn_coll_wait(gather_of(x, x->gathering - 1), err);
	return status;
}

/* A bucket's borders are moved up: the first elements of a parameter may come with the bucket behind it, which is gathered before. */
enum gn_status gn_reducer_need(struct gn_reducer *x, int param, struct gn_err *err)
{
	enum gn_status status = wait_gathered(x, (size_t)x->bucket_of[param], err);
	int done = 1;

	while (x->gathering && done && !status) {
		if (gather_of(x, x->gathering - 1))
			status = gn_coll_test(gather_of(x, x->gathering - 1), &done, err);
		x->gathering -= done && !status;
	}
	return status;
}

enum gn_status gn_reducer_need_all(struct gn_reducer *x, struct gn_err *err)
{
	return wait_gathered(x, 0, err);
}
