/* Gradients in host memory, compressed: the rounds of a codec, and an exact allreduce of what follows the parameters.
 *
 * Collectives start in the same order on all ranks: first rounds as buckets start, second rounds, which belong to a group of their own,
 * in the same order as those, whichever first round ends first. */
#include "src/train/parallel/compress_internal.h"
#include "src/train/parallel/sharing.h"

struct compressed_bucket {
	struct gn_shared_bucket base;
	struct gn_codec_bucket b;
	struct gn_coll *exact; /* NULL: the bucket has no tail */
	double exact_bytes;
	unsigned order;	       /* among the buckets of the step */
	int round, is_started; /* the round that is next or under way */
	int is_exact_done;
};

static struct compressed_bucket *of(struct gn_shared_bucket *b)
{
	return (struct compressed_bucket *)b;
}

static int compressed_fits(const struct gn_sharing_options *o)
{
	return o->compressor != NULL;
}

static void free_codec(struct gn_codec_bucket *b)
{
	b->c->sent_bytes -= b->sent_bytes;
	b->sent_bytes = 0;
	for (int i = 0; i < 2; i++) {
		gn_coll_free(b->rounds[i]);
		b->rounds[i] = NULL;
	}
	b->c->codec->release(b);
	b->state = NULL;
}

static enum gn_status prepare_codec(struct gn_codec_bucket *b, struct gn_err *err)
{
	enum gn_status status = b->c->codec->prepare(b, err);

	if (status)
		b->sent_bytes = 0;
	b->c->sent_bytes += b->sent_bytes;
	return status;
}

static void compressed_free(struct gn_shared_bucket *shared)
{
	struct compressed_bucket *x = of(shared);

	gn_coll_free(x->exact);
	x->b.c->sent_bytes -= x->exact_bytes;
	free_codec(&x->b);
}

static enum gn_status compressed_prepare(const struct gn_sharing_options *o, struct gn_shared_bucket *shared, struct gn_err *err)
{
	size_t tail = shared->count - shared->gradients;
	struct compressed_bucket *x = of(shared);
	enum gn_status status;

	x->b = (struct gn_codec_bucket){.c = o->compressor, .data = shared->data, .count = shared->gradients, .offset = shared->begin};
	status = prepare_codec(&x->b, err);
	if (!status && tail)
		status = gn_coll_allreduce(o->comm, shared->data + shared->gradients, tail, GN_F32, NULL, o->algo, &x->exact, err);
	if (status)
		return status;
	x->exact_bytes = gn_compress_dense_bytes(tail * sizeof(float), gn_comm_size(o->comm));
	x->b.c->sent_bytes += x->exact_bytes;
	return GN_OK;
}

/* Events of the host are done. */
static enum gn_status compressed_start(struct gn_shared_bucket *shared, const struct gn_event *after, struct gn_err *err)
{
	struct compressed_bucket *x = of(shared);
	const struct gn_codec *codec = x->b.c->codec;
	enum gn_status status = GN_OK;

	(void)after;
	if (codec->is_stale && codec->is_stale(&x->b)) {
		free_codec(&x->b);
		status = prepare_codec(&x->b, err);
	}
	if (status)
		return status;
	codec->encode(&x->b);
	x->order = x->b.c->started++;
	x->round = 0;
	x->is_started = 1;
	x->is_exact_done = !x->exact;
	status = gn_coll_start(x->b.rounds[0], NULL, err);
	return status || !x->exact ? status : gn_coll_start(x->exact, NULL, err);
}

static enum gn_status finish(struct gn_coll *coll, int blocks, int *done, struct gn_err *err)
{
	enum gn_status status;

	if (!blocks)
		return gn_coll_test(coll, done, err);
	status = gn_coll_wait(coll, err);
	*done = !status;
	return status;
}

/* Goes on with the rounds as far as it can. */
static enum gn_status advance(struct compressed_bucket *x, int blocks, int *done, struct gn_err *err)
{
	struct gn_compressor *c = x->b.c;
	enum gn_status status = x->is_exact_done ? GN_OK : finish(x->exact, blocks, &x->is_exact_done, err);

	while (!status && x->round < c->codec->rounds) {
		int ended = 0;

		if (x->round && !x->is_started) {
			if (c->second_turn != x->order)
				break;
			c->codec->combine(&x->b);
			c->second_turn++;
			x->is_started = 1;
			status = gn_coll_start(x->b.rounds[1], NULL, err);
		}
		if (!status)
			status = finish(x->b.rounds[x->round], blocks, &ended, err);
		if (status || !ended)
			break;
		x->is_started = 0;
		if (++x->round == c->codec->rounds)
			c->codec->decode(&x->b);
	}
	*done = !status && x->is_exact_done && x->round == c->codec->rounds;
	return status;
}

static enum gn_status compressed_test(struct gn_shared_bucket *b, int *done, struct gn_err *err)
{
	return advance(of(b), 0, done, err);
}

/* Those before it are done, so its second round is next. */
static enum gn_status compressed_wait(struct gn_shared_bucket *b, struct gn_err *err)
{
	int done;

	return advance(of(b), 1, &done, err);
}

const struct gn_sharing gn_share_compressed = {"compressed", compressed_fits, sizeof(struct compressed_bucket), compressed_prepare, compressed_start,
					       compressed_test, compressed_wait, compressed_free, NULL, NULL};
