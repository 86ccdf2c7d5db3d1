/* What methods of compression are made of. A codec has one or two rounds of a collective over all ranks: encode fills the buffer of the
 * first, combine turns its result into the buffer of the second, decode writes the sums of all ranks. */
#ifndef GN_TRAIN_PARALLEL_COMPRESS_INTERNAL_H
#define GN_TRAIN_PARALLEL_COMPRESS_INTERNAL_H

#include "src/train/parallel/compress.h"

struct gn_compressor {
	struct gn_compress_options options;
	const struct gn_codec *codec;
	struct gn_comm *second;	       /* of second rounds, which have an order of their own; NULL: there are none */
	float *residual, *momentum;    /* laid out as the parameters; NULL: the method has none */
	float *factors;		       /* powersgd: Q of all matrices, the same on all ranks */
	size_t factor_count;
	uint64_t step, epoch;
	unsigned started, second_turn; /* buckets in this step: started; whose second round is next */
	float clip_scale;	       /* dgc: of this step */
	double sent_bytes;	       /* a step, by formula, over all buckets */
};

/* A bucket: count parameters with zeros between tensors, `offset` elements from the array's start, whose gradients are at data. */
struct gn_codec_bucket {
	struct gn_compressor *c;
	float *data;
	size_t count, offset;
	void *state;		   /* the codec's */
	struct gn_coll *rounds[2];
	double sent_bytes;	   /* set by prepare */
};

struct gn_codec {
	int rounds;
	/* Buffers and collectives, through gn_codec_coll. Local, in the same order on all ranks. On failure release is called. */
	enum gn_status (*prepare)(struct gn_codec_bucket *b, struct gn_err *err);
	/* Before encode in each step, in the same order on all ranks: whether prepare has to be called anew; NULL: never. */
	int (*is_stale)(const struct gn_codec_bucket *b);
	void (*encode)(struct gn_codec_bucket *b);
	void (*combine)(struct gn_codec_bucket *b); /* of two rounds */
	void (*decode)(struct gn_codec_bucket *b);
	/* All but the collectives, which are freed before. */
	void (*release)(struct gn_codec_bucket *b);
};

/* NULL: none and auto. */
extern const struct gn_codec gn_codec_half, gn_codec_int8, gn_codec_sparse, gn_codec_powersgd;
/* Prepares the collective of a round. algorithm is the options' for allreduce, else selected. */
enum gn_status gn_codec_coll(struct gn_codec_bucket *b, int round, struct gn_coll_args args, struct gn_err *err);

/* The largest of the numbers without their signs, as bits: above 0x7f800000 where there is a NaN. */
uint32_t gn_codec_max_bits(const float *x, size_t count);
int gn_codec_is_finite(const float *x, size_t count);

/* powersgd: how many numbers Q has for parameter i; 0: it is summed exactly. */
size_t gn_powersgd_factor_count(const struct gn_model *model, int i, int rank);
/* powersgd: initial values of Q. */
void gn_powersgd_init_factors(struct gn_compressor *c);

/* int8, for tests: count numbers to blocks of scales and integers, and back. key: as gn_philox; lane: makes draws differ. */
#define GN_INT8_BLOCK 256
size_t gn_int8_bytes(size_t count);
void gn_int8_encode(const float *x, size_t count, const uint32_t key[2], uint64_t step, uint32_t lane, size_t first, void *out);
/* to[i] = value, or += with `add`. */
void gn_int8_decode(const void *in, size_t count, int add, float *to);

/* Largest values. The bits, without sign, of the k-th largest by absolute value, 1 <= k <= count; *above: how many are larger. */
uint32_t gn_select_kth(const float *x, size_t count, size_t k, size_t *above);

/* An element that is sent. */
struct gn_sparse_entry {
	uint32_t index;
	float value;
};
/* Moves the k largest to out, in ascending order of index, equal ones from the left, and leaves zeros. Also in `too` (NULL: none). */
void gn_sparse_take(float *x, float *too, size_t count, size_t k, struct gn_sparse_entry *out);

/* powersgd, for tests: `columns` vectors of n numbers each become orthonormal, in order; dependent ones become zero. */
void gn_powersgd_orthogonalise(float *p, size_t n, int columns);

#endif
