/* powersgd: a weight of O x I (x H x W) numbers is a matrix M of O rows; what it and what was left of it before add up to is sent as
 * P = M Q, made orthonormal, and Q = M' P. Weights for which that is no less, biases and batch norm travel with P and are summed exactly.
 */
#include "src/train/parallel/compress_internal.h"

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/base/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A vector of whose length so little is left beside those before it depends on them. */
#define DEPENDENT 1e-6

/* A parameter in a bucket. */
struct piece {
	int param, rank;	/* rank 0: summed exactly */
	size_t at;		/* in the bucket */
	size_t rows, columns;	/* exactly: one row */
	size_t p_at, q_at;	/* in the buffers of the rounds: rank vectors of rows numbers, rank of columns */
	float *factors;		/* as at q_at; in the compressor */
};

struct powersgd_state {
	struct piece *pieces;
	size_t count, p_count, q_count;
	float *p, *q;
	int is_finite; /* this rank's gradients in this step */
};

static int factor_rank(const struct gn_param *p, int rank)
{
	size_t rows = p->dims ? (size_t)p->shape[0] : 1, columns = p->count / rows;
	size_t least = rows < columns ? rows : columns, r = (size_t)rank < least ? (size_t)rank : least;

	return p->kind == GN_PARAM_WEIGHT && p->dims > 1 && r * (rows + columns) < p->count ? (int)r : 0;
}

size_t gn_powersgd_factor_count(const struct gn_model *model, int i, int rank)
{
	const struct gn_param *p = gn_model_param(model, i);
	int r = factor_rank(p, rank);

	return r ? (size_t)r * (p->count / (size_t)p->shape[0]) : 0;
}

static void init_vector(const struct gn_compressor *c, int param, int k, float *q, size_t count)
{
	struct gn_rng rng;

	gn_rng_init(&rng, c->options.seed, GN_RNG_COMPRESS, (uint32_t)param, (uint32_t)k);
	for (size_t j = 0; j < count; j++)
		q[j] = (float)gn_rng_normal(&rng);
}

void gn_powersgd_init_factors(struct gn_compressor *c)
{
	const struct gn_model *model = c->options.model;
	float *q = c->factors;

	for (int i = 0; i < gn_model_param_count(model); i++) {
		const struct gn_param *p = gn_model_param(model, i);
		size_t columns = p->dims ? p->count / (size_t)p->shape[0] : p->count;

		for (int k = 0; k < factor_rank(p, c->options.spec.rank); k++, q += columns)
			init_vector(c, i, k, q, columns);
	}
}

/* --- arithmetic --- */

GN_VECTOR static float dot(const float *restrict a, const float *restrict b, size_t count)
{
	float lanes[16] = {0}, sum = 0;
	size_t i = 0;

	for (; i + 16 <= count; i += 16)
		for (size_t l = 0; l < 16; l++)
			lanes[l] += a[i + l] * b[i + l];
	for (; i < count; i++)
		sum += a[i] * b[i];
	for (size_t l = 0; l < 16; l++)
		sum += lanes[l];
	return sum;
}

GN_VECTOR static void add_scaled(float *restrict to, const float *restrict x, float scale, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += x[i] * scale;
}

static double norm_of(const float *x, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * x[i];
	return sqrt(sum);
}

/* Modified Gram-Schmidt; sums in f64, in one order, so that all ranks compute the same bits from the same vectors. */
void gn_powersgd_orthogonalise(float *p, size_t n, int columns)
{
	for (int k = 0; k < columns; k++) {
		float *v = p + (size_t)k * n;
		double before = norm_of(v, n), after;

		for (int j = 0; j < k; j++) {
			const float *u = p + (size_t)j * n;
			double along = 0;

			for (size_t i = 0; i < n; i++)
				along += (double)u[i] * v[i];
			for (size_t i = 0; i < n; i++)
				v[i] = (float)(v[i] - along * u[i]);
		}
		after = norm_of(v, n);
		for (size_t i = 0; i < n; i++)
			v[i] = after <= DEPENDENT * before ? 0 : (float)(v[i] / after);
	}
}

/* --- pieces --- */

/* Where the parameters of the bucket begin and end among the model's. */
static void find_params(const struct gn_codec_bucket *b, int *first, int *end)
{
	const struct gn_model *model = b->c->options.model;
	int i = 0;

	while (i < gn_model_param_count(model) && gn_model_param(model, i)->offset < b->offset)
		i++;
	*first = i;
	while (i < gn_model_param_count(model) && gn_model_param(model, i)->offset < b->offset + b->count)
		i++;
	*end = i;
}

static void cut(const struct gn_codec_bucket *b, int first, int end)
{
	const struct gn_model *model = b->c->options.model;
	struct powersgd_state *s = b->state;
	float *factors = b->c->factors;

	for (int i = 0; i < first; i++)
		factors += gn_powersgd_factor_count(model, i, b->c->options.spec.rank);
	for (int i = first; i < end; i++) {
		const struct gn_param *p = gn_model_param(model, i);
		int r = factor_rank(p, b->c->options.spec.rank);
		size_t rows = r ? (size_t)p->shape[0] : 1, columns = p->count / rows;

		s->pieces[s->count++] = (struct piece){.param = i, .rank = r, .at = p->offset - b->offset, .rows = rows,
						       .columns = columns, .p_at = s->p_count, .q_at = s->q_count, .factors = factors};
		s->p_count += r ? (size_t)r * rows : columns;
		s->q_count += (size_t)r * columns;
		factors += (size_t)r * columns;
	}
}

static enum gn_status powersgd_prepare(struct gn_codec_bucket *b, struct gn_err *err)
{
	struct powersgd_state *s = calloc(1, sizeof *s);
	int first, end, size = gn_comm_size(b->c->options.comm);
	enum gn_status status;

	find_params(b, &first, &end);
	b->state = s;
	if (s)
		s->pieces = calloc((size_t)(end - first) + 1, sizeof *s->pieces);
	if (s && s->pieces) {
		cut(b, first, end);
		s->p = gn_alloc_aligned(s->p_count * sizeof(float) + 1);
		s->q = gn_alloc_aligned(s->q_count * sizeof(float) + 1);
	}
	if (!s || !s->pieces || !s->p || !s->q)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the factors of %zu gradients", b->count);
	b->sent_bytes = gn_compress_dense_bytes((s->p_count + s->q_count) * sizeof(float), size);
	status = gn_codec_coll(b, 0, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = s->p, .count = s->p_count,
							   .type = GN_F32}, err);
	return status ? status : gn_codec_coll(b, 1, (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = s->q,
									   .count = s->q_count, .type = GN_F32}, err);
}

/* --- the codec --- */

static void encode_piece(const struct gn_codec_bucket *b, const struct piece *piece)
{
	const struct powersgd_state *s = b->state;
	float *m = b->c->residual + b->offset + piece->at, *p = s->p + piece->p_at;

	if (!piece->rank) {
		memcpy(p, b->data + piece->at, piece->columns * sizeof(float));
		return;
	}
	add_scaled(m, b->data + piece->at, 1, piece->rows * piece->columns);
#pragma omp parallel for schedule(static)
	for (size_t o = 0; o < piece->rows; o++)
		for (int k = 0; k < piece->rank; k++)
			p[(size_t)k * piece->rows + o] = dot(m + o * piece->columns, piece->factors + (size_t)k * piece->columns, piece->columns);
}

static void powersgd_encode(struct gn_codec_bucket *b)
{
	struct powersgd_state *s = b->state;

	s->is_finite = gn_codec_is_finite(b->data, b->count);
	for (size_t i = 0; i < s->count && s->is_finite; i++)
		encode_piece(b, &s->pieces[i]);
	for (size_t i = 0; i < s->p_count && !s->is_finite; i++)
		s->p[i] = NAN;
}

static void powersgd_combine(struct gn_codec_bucket *b)
{
	struct powersgd_state *s = b->state;

	memset(s->q, 0, s->q_count * sizeof(float));
	for (size_t i = 0; i < s->count; i++) {
		const struct piece *piece = &s->pieces[i];
		const float *m = b->c->residual + b->offset + piece->at;
		float *p = s->p + piece->p_at, *q = s->q + piece->q_at;

		if (!piece->rank)
			continue;
		gn_powersgd_orthogonalise(p, piece->rows, piece->rank);
#pragma omp parallel for schedule(static)
		for (int k = 0; k < piece->rank; k++)
			for (size_t o = 0; o < piece->rows; o++)
				add_scaled(q + (size_t)k * piece->columns, m + o * piece->columns, p[(size_t)k * piece->rows + o], piece->columns);
	}
}

/* The next step begins with the mean of Q; one that is zero or not finite would stay so. */
static void keep_factors(const struct gn_codec_bucket *b, const struct piece *piece, const float *q)
{
	float share = 1.0f / (float)gn_comm_size(b->c->options.comm);

	for (int k = 0; k < piece->rank; k++) {
		float *to = piece->factors + (size_t)k * piece->columns;
		uint32_t bits = gn_codec_max_bits(q + (size_t)k * piece->columns, piece->columns);

		if (bits == 0 || bits >= 0x7f800000u)
			init_vector(b->c, piece->param, k, to, piece->columns);
		for (size_t j = 0; j < piece->columns && bits && bits < 0x7f800000u; j++)
			to[j] = q[(size_t)k * piece->columns + j] * share;
	}
}

static void decode_piece(const struct gn_codec_bucket *b, const struct piece *piece)
{
	const struct powersgd_state *s = b->state;
	const float *p = s->p + piece->p_at, *q = s->q + piece->q_at;
	float *m = b->c->residual + b->offset + piece->at, *data = b->data + piece->at;
	float share = 1.0f / (float)gn_comm_size(b->c->options.comm);
	int keeps = s->is_finite && gn_codec_is_finite(q, (size_t)piece->rank * piece->columns) &&
		    gn_codec_is_finite(p, (size_t)piece->rank * piece->rows);

#pragma omp parallel for schedule(static)
	for (size_t o = 0; o < piece->rows; o++) {
		float *row = data + o * piece->columns;

		memset(row, 0, piece->columns * sizeof(float));
		for (int k = 0; k < piece->rank; k++)
			add_scaled(row, q + (size_t)k * piece->columns, p[(size_t)k * piece->rows + o], piece->columns);
		if (keeps)
			add_scaled(m + o * piece->columns, row, -share, piece->columns);
	}
	keep_factors(b, piece, q);
}

static void powersgd_decode(struct gn_codec_bucket *b)
{
	struct powersgd_state *s = b->state;

	for (size_t i = 0; i < s->count; i++) {
		const struct piece *piece = &s->pieces[i];

		if (piece->rank)
			decode_piece(b, piece);
		else
			memcpy(b->data + piece->at, s->p + piece->p_at, piece->columns * sizeof(float));
	}
}

static void powersgd_release(struct gn_codec_bucket *b)
{
	struct powersgd_state *s = b->state;

	if (s) {
		free(s->pieces);
		free(s->p);
		free(s->q);
	}
	free(s);
}

const struct gn_codec gn_codec_powersgd = {.rounds = 2, .prepare = powersgd_prepare, .encode = powersgd_encode, .combine = powersgd_combine,
					   .decode = powersgd_decode, .release = powersgd_release};
