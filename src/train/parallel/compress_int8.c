/* int8: every rank owns a part of the bucket. An all-to-all brings it the quantised part of each rank; it adds them in f32, in rank
 * order, quantises the sum, and an allgather brings that to all. Rounding is stochastic, unbiased, and a function of seed, step, rank and
 * element alone. */
#include "src/train/parallel/compress_internal.h"

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/philox.h"
#include "src/base/vector.h"

#include <stdlib.h>
#include <string.h>

#define DRAWS (GN_INT8_BLOCK / 8) /* Philox blocks of four numbers, two elements each */
/* Below this a block counts as zero: 127 / max has to be finite. */
#define TINY 0x04000000u

struct int8_state {
	size_t part, part_bytes; /* numbers of a rank's part, of whole blocks, and their message */
	char *send, *receive, *all; /* of size messages each; all is for the sums */
	float *sum;		    /* [part]; and a copy of the last part with zeros after the bucket's end */
};

static size_t blocks_of(size_t count)
{
	return (count + GN_INT8_BLOCK - 1) / GN_INT8_BLOCK;
}

/* Scales first, then the integers, whole blocks of them. */
size_t gn_int8_bytes(size_t count)
{
	return blocks_of(count) * (sizeof(float) + GN_INT8_BLOCK);
}

/* x * inverse + 128 + u, rounded down: -127 .. 127 after 128 is taken off. */
GN_VECTOR static void quantise(const float *restrict x, const uint16_t *restrict draws, float inverse, int8_t *restrict out, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int32_t q = (int32_t)(x[i] * inverse + 128.0f + (float)draws[i] * 0x1p-16f) - 128;

		out[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
	}
}

GN_VECTOR static void scale_to(const int8_t *restrict q, float scale, float *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = (float)q[i] * scale;
}

GN_VECTOR static void scale_add(const int8_t *restrict q, float scale, float *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += (float)q[i] * scale;
}

static void draw(const uint32_t key[2], uint64_t step, uint32_t lane, size_t block, uint16_t draws[GN_INT8_BLOCK])
{
	for (size_t d = 0; d < DRAWS; d++) {
		uint32_t out[4], counter[4] = {(uint32_t)(block * DRAWS + d), (uint32_t)step,
					       (uint32_t)((block * DRAWS + d) >> 32) | (uint32_t)(step >> 32) << 8,
					       lane << 8 | GN_RNG_COMPRESS};

		gn_philox(counter, key, out);
		memcpy(draws + 8 * d, out, sizeof out);
	}
}

static void encode_block(const float *x, size_t count, const uint16_t *draws, float *scale, int8_t *q)
{
	uint32_t bits = gn_codec_max_bits(x, count);
	float max = gn_f32_of_bits(bits);

	memset(q, 0, GN_INT8_BLOCK);
	if (bits >= 0x7f800000u) {
		*scale = gn_f32_of_bits(0x7fc00000u);
	} else if (bits < TINY) {
		*scale = 0;
	} else {
		*scale = max / 127;
		quantise(x, draws, 127 / max, q, count);
	}
}

/* first: of x in the array, a multiple of the block, so that draws follow the element. */
void gn_int8_encode(const float *x, size_t count, const uint32_t key[2], uint64_t step, uint32_t lane, size_t first, void *out)
{
	float *scales = out;
	int8_t *q = (int8_t *)(scales + blocks_of(count));

#pragma omp parallel for schedule(static)
	for (size_t k = 0; k < blocks_of(count); k++) {
		size_t at = k * GN_INT8_BLOCK, here = count - at < GN_INT8_BLOCK ? count - at : GN_INT8_BLOCK;
		uint16_t draws[GN_INT8_BLOCK];

		draw(key, step, lane, first / GN_INT8_BLOCK + k, draws);
		encode_block(x + at, here, draws, &scales[k], q + at);
	}
}

void gn_int8_decode(const void *in, size_t count, int add, float *to)
{
	const float *scales = in;
	const int8_t *q = (const int8_t *)(scales + blocks_of(count));

#pragma omp parallel for schedule(static)
	for (size_t k = 0; k < blocks_of(count); k++) {
		size_t at = k * GN_INT8_BLOCK, here = count - at < GN_INT8_BLOCK ? count - at : GN_INT8_BLOCK;

		(add ? scale_add : scale_to)(q + at, scales[k], to + at, here);
	}
}

/* How many numbers of the bucket rank r's part has. */
static size_t part_count(const struct gn_codec_bucket *b, size_t part, int r)
{
	size_t begin = part * (size_t)r;

	return begin >= b->count ? 0 : b->count - begin < part ? b->count - begin : part;
}

static enum gn_status int8_prepare(struct gn_codec_bucket *b, struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(b->c->options.comm);
	struct int8_state *s = calloc(1, sizeof *s);
	enum gn_status status;

	b->state = s;
	if (s) {
		s->part = blocks_of((b->count + ranks - 1) / ranks) * GN_INT8_BLOCK;
		s->part_bytes = gn_int8_bytes(s->part);
		s->send = gn_alloc_aligned(ranks * s->part_bytes + 1);
		s->receive = gn_alloc_aligned(ranks * s->part_bytes + 1);
		s->all = gn_alloc_aligned(ranks * s->part_bytes + 1);
		s->sum = gn_alloc_aligned(s->part * sizeof(float) + 1);
	}
	if (!s || !s->send || !s->receive || !s->all || !s->sum)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu gradients of 8 bits", b->count);
	b->sent_bytes = 2 * (double)(ranks - 1) * (double)s->part_bytes;
	status = gn_codec_coll(b, 0, (struct gn_coll_args){.what = GN_COLLECTIVE_ALL_TO_ALL, .in = s->send, .out = s->receive,
							   .count = s->part_bytes, .type = GN_BYTES}, err);
	return status ? status : gn_codec_coll(b, 1, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLGATHER, .out = s->all,
									   .count = s->part_bytes, .type = GN_BYTES}, err);
}

static void key_of(const struct gn_codec_bucket *b, uint32_t key[2])
{
	key[0] = (uint32_t)b->c->options.seed;
	key[1] = (uint32_t)(b->c->options.seed >> 32);
}

/* Draws follow the place in the array, of whole blocks: the bucket's beginning is rounded up. Where padding reaches into the next bucket,
 * a few elements share their draws with its first. */
static size_t place_of(const struct gn_codec_bucket *b, size_t at)
{
	return blocks_of(b->offset) * GN_INT8_BLOCK + at;
}

static void int8_encode(struct gn_codec_bucket *b)
{
	struct int8_state *s = b->state;
	int rank = gn_comm_rank(b->c->options.comm), size = gn_comm_size(b->c->options.comm);
	uint32_t key[2];

	key_of(b, key);
	for (int r = 0; r < size; r++) {
		size_t at = s->part * (size_t)r, count = part_count(b, s->part, r);
		const float *x = count ? b->data + at : s->sum;

		memset(s->sum, 0, s->part * sizeof(float));
		if (count && count < s->part)
			x = memcpy(s->sum, x, count * sizeof(float));
		gn_int8_encode(x, s->part, key, b->c->step, (uint32_t)rank + 1, place_of(b, at), s->send + (size_t)r * s->part_bytes);
	}
}

static void int8_combine(struct gn_codec_bucket *b)
{
	struct int8_state *s = b->state;
	int rank = gn_comm_rank(b->c->options.comm), size = gn_comm_size(b->c->options.comm);
	uint32_t key[2];

	key_of(b, key);
	for (int r = 0; r < size; r++)
		gn_int8_decode(s->receive + (size_t)r * s->part_bytes, s->part, r > 0, s->sum);
	gn_int8_encode(s->sum, s->part, key, b->c->step, 0, place_of(b, s->part * (size_t)rank), s->all + (size_t)rank * s->part_bytes);
}

static void int8_decode(struct gn_codec_bucket *b)
{
	struct int8_state *s = b->state;

	for (int r = 0; r < gn_comm_size(b->c->options.comm); r++) {
		size_t count = part_count(b, s->part, r);
		const char *message = s->all + (size_t)r * s->part_bytes;

		/* the scales of a message are those of a whole part */
		if (count == s->part) {
			gn_int8_decode(message, count, 0, b->data + s->part * (size_t)r);
		} else if (count) {
			gn_int8_decode(message, s->part, 0, s->sum);
			memcpy(b->data + s->part * (size_t)r, s->sum, count * sizeof(float));
		}
	}
}

static void int8_release(struct gn_codec_bucket *b)
{
	struct int8_state *s = b->state;

	if (s) {
		free(s->send);
		free(s->receive);
		free(s->all);
		free(s->sum);
	}
	free(s);
}

const struct gn_codec gn_codec_int8 = {.rounds = 2, .prepare = int8_prepare, .encode = int8_encode, .combine = int8_combine,
				       .decode = int8_decode, .release = int8_release};

/* bf16 and fp16: an allreduce of 16-bit numbers. */

GN_VECTOR static void to_bf16(const float *restrict x, uint16_t *restrict out, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = gn_bf16_of_f32(x[i]);
}

GN_VECTOR static void from_bf16(const uint16_t *restrict x, float *restrict out, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = gn_f32_of_bf16(x[i]);
}

/* Divided by the number of ranks, so that a sum of numbers that fit into 16 bits does, too. */
GN_VECTOR static void to_f16(const float *restrict x, uint16_t *restrict out, size_t count, float share)
{
	for (size_t i = 0; i < count; i++)
		out[i] = gn_f16_of_f32(x[i] * share);
}

GN_VECTOR static void from_f16(const uint16_t *restrict x, float *restrict out, size_t count, float ranks)
{
	for (size_t i = 0; i < count; i++)
		out[i] = gn_f32_of_f16(x[i]) * ranks;
}

static int is_bf16(const struct gn_codec_bucket *b)
{
	return b->c->options.spec.method == GN_COMPRESS_BF16;
}

static enum gn_status half_prepare(struct gn_codec_bucket *b, struct gn_err *err)
{
	b->state = gn_alloc_aligned(b->count * sizeof(uint16_t) + 1);
	if (!b->state)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu gradients of 16 bits", b->count);
	b->sent_bytes = gn_compress_dense_bytes(b->count * sizeof(uint16_t), gn_comm_size(b->c->options.comm));
	return gn_codec_coll(b, 0, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = b->state, .count = b->count,
							 .type = is_bf16(b) ? GN_BF16 : GN_F16}, err);
}

static void half_encode(struct gn_codec_bucket *b)
{
	if (is_bf16(b))
		to_bf16(b->data, b->state, b->count);
	else
		to_f16(b->data, b->state, b->count, 1.0f / (float)gn_comm_size(b->c->options.comm));
}

static void half_decode(struct gn_codec_bucket *b)
{
	if (is_bf16(b))
		from_bf16(b->state, b->data, b->count);
	else
		from_f16(b->state, b->data, b->count, (float)gn_comm_size(b->c->options.comm));
}

static void half_release(struct gn_codec_bucket *b)
{
	free(b->state);
}

const struct gn_codec gn_codec_half = {.rounds = 1, .prepare = half_prepare, .encode = half_encode, .decode = half_decode,
				       .release = half_release};
