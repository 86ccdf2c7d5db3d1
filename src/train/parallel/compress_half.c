/* bf16 and fp16: an allreduce of 16-bit numbers. */
#include "src/train/parallel/compress_internal.h"

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/vector.h"

#include <stdlib.h>

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
