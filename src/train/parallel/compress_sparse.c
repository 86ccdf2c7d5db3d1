/* topk and dgc: every rank sends its k largest elements of a bucket, as pairs of index and value, through an allgather, and adds those of
 * all in rank order. Where all together could be as many as half of what a dense sum sends, the selected ones travel in an allreduce. */
#include "src/train/parallel/compress_internal.h"

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP_EPOCHS = 4 };
/* Bits of a pass of the selection, from the highest: 31 bits without the sign. */
enum { PASSES = 3, BINS = 1 << 11 };
static const int pass_shift[PASSES + 1] = {20, 10, 0};
static const int pass_bits[PASSES] = {11, 10, 10};

struct sparse_state {
	size_t k;
	int dense;			/* an allreduce of data */
	struct gn_sparse_entry *entries; /* k of each rank; dense: of this rank alone */
};

/* --- selection --- */

static uint32_t bits_of(float x)
{
	return gn_bits_of_f32(x) & 0x7fffffffu;
}

/* By the digits of the bits, the highest first: each pass counts the elements that have the digits found so far. */
uint32_t gn_select_kth(const float *x, size_t count, size_t k, size_t *above)
{
	uint32_t found = 0;

	*above = 0;
	for (int pass = 0; pass < PASSES; pass++) {
		int shift = pass_shift[pass], known = shift + pass_bits[pass];
		uint32_t mask = (1u << pass_bits[pass]) - 1, digit = mask;
		size_t bins[BINS] = {0};

		for (size_t i = 0; i < count; i++) {
			uint32_t bits = bits_of(x[i]);

			if (bits >> known == found)
				bins[bits >> shift & mask]++;
		}
		while (*above + bins[digit] < k)
			*above += bins[digit--];
		found = found << pass_bits[pass] | digit;
	}
	return found;
}

void gn_sparse_take(float *x, float *too, size_t count, size_t k, struct gn_sparse_entry *out)
{
	size_t above, taken = 0, equal;
	uint32_t kth;

	if (!k)
		return;
	kth = gn_select_kth(x, count, k, &above);
	equal = k - above;
	for (size_t i = 0; i < count && taken < k; i++) {
		uint32_t bits = bits_of(x[i]);

		if (bits < kth || (bits == kth && !equal))
			continue;
		equal -= bits == kth;
		out[taken++] = (struct gn_sparse_entry){(uint32_t)i, x[i]};
		x[i] = 0;
		if (too)
			too[i] = 0;
	}
}

/* --- sums --- */

GN_VECTOR static void add(float *restrict to, const float *restrict x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += x[i];
}

GN_VECTOR static void add_momentum(float *restrict velocity, float *restrict momentum, const float *restrict x, size_t count, float decay,
				   float scale)
{
	for (size_t i = 0; i < count; i++) {
		momentum[i] = decay * momentum[i] + scale * x[i];
		velocity[i] += momentum[i];
	}
}

/* The gradient of this rank has at most a norm of clip / sqrt(ranks), of the mean over its batches. All of it is complete. */
static float find_clip_scale(const struct gn_compressor *c, const float *flat)
{
	const struct gn_compress_options *o = &c->options;
	double limit = o->clip / sqrt(gn_comm_size(o->comm)) * o->batches, sum = 0;
	size_t count = gn_model_param_elements(o->model);

	for (size_t i = 0; i < count; i++)
		sum += (double)flat[i] * flat[i];
	return sqrt(sum) > limit ? (float)(limit / sqrt(sum)) : 1;
}

static void accumulate(struct gn_codec_bucket *b)
{
	struct gn_compressor *c = b->c;
	float *residual = c->residual + b->offset;

	if (!c->momentum) {
		add(residual, b->data, b->count);
		return;
	}
	if (!c->started)
		c->clip_scale = c->options.clip > 0 ? find_clip_scale(c, b->data - b->offset) : 1;
	add_momentum(residual, c->momentum + b->offset, b->data, b->count, (float)c->options.momentum, c->clip_scale);
}

/* --- the codec --- */

/* The share that is sent in this epoch. */
static double fraction_of(const struct gn_compressor *c)
{
	const struct gn_compress_spec *s = &c->options.spec;

	return s->method == GN_COMPRESS_DGC && c->epoch < WARM_UP_EPOCHS ? fmax(s->fraction, pow(0.25, (double)c->epoch + 1)) : s->fraction;
}

int gn_compressor_is_warming_up(const struct gn_compressor *c)
{
	return fraction_of(c) > c->options.spec.fraction;
}

static size_t count_sent(const struct gn_codec_bucket *b)
{
	double k = ceil(fraction_of(b->c) * (double)b->count);

	return k < (double)b->count ? (size_t)k : b->count;
}

static enum gn_status sparse_prepare(struct gn_codec_bucket *b, struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(b->c->options.comm), k = count_sent(b), bytes = k * sizeof(struct gn_sparse_entry);
	struct sparse_state *s = calloc(1, sizeof *s);

	b->state = s;
	if (b->count > UINT32_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "a bucket of %zu gradients is too large for --compress: lower --bucket", b->count);
	if (s) {
		s->k = k;
		s->dense = k * ranks >= b->count;
		s->entries = gn_alloc_aligned((s->dense ? 1 : ranks) * bytes + 1);
	}
	if (!s || !s->entries)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu gradients of %zu ranks", k, ranks);
	b->sent_bytes = s->dense ? gn_compress_dense_bytes(b->count * sizeof(float), (int)ranks) : (double)((ranks - 1) * bytes);
	if (s->dense)
		return gn_codec_coll(b, 0, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = b->data, .count = b->count,
								 .type = GN_F32}, err);
	return gn_codec_coll(b, 0, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLGATHER, .out = s->entries, .count = bytes,
							 .type = GN_BYTES}, err);
}

static int sparse_is_stale(const struct gn_codec_bucket *b)
{
	const struct sparse_state *s = b->state;

	return s->k != count_sent(b);
}

static void sparse_encode(struct gn_codec_bucket *b)
{
	struct sparse_state *s = b->state;
	struct gn_compressor *c = b->c;
	struct gn_sparse_entry *mine = s->entries + (s->dense ? 0 : (size_t)gn_comm_rank(c->options.comm) * s->k);
	int is_finite = gn_codec_is_finite(b->data, b->count);

	if (is_finite)
		accumulate(b);
	for (size_t i = 0; !is_finite && i < s->k; i++)
		mine[i] = (struct gn_sparse_entry){0, NAN};
	if (is_finite)
		gn_sparse_take(c->residual + b->offset, c->momentum ? c->momentum + b->offset : NULL, b->count, s->k, mine);
	if (!s->dense)
		return;
	memset(b->data, 0, b->count * sizeof(float));
	for (size_t i = 0; i < s->k; i++)
		b->data[mine[i].index] = mine[i].value;
}

static void sparse_decode(struct gn_codec_bucket *b)
{
	struct sparse_state *s = b->state;
	size_t all = s->k * (size_t)gn_comm_size(b->c->options.comm);

	if (s->dense)
		return;
	memset(b->data, 0, b->count * sizeof(float));
	for (size_t i = 0; i < all; i++)
		if (s->entries[i].index < b->count)
			b->data[s->entries[i].index] += s->entries[i].value;
}

static void sparse_release(struct gn_codec_bucket *b)
{
	struct sparse_state *s = b->state;

	if (s)
		free(s->entries);
	free(s);
}

const struct gn_codec gn_codec_sparse = {.rounds = 1, .prepare = sparse_prepare, .is_stale = sparse_is_stale, .encode = sparse_encode,
					 .decode = sparse_decode, .release = sparse_release};
