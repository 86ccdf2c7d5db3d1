#include "kernels/optim.h"

#include <math.h>

/* Sums that are equal for any number of threads: split by size only, added in fixed order. */
enum { PIECES_MAX = 64, PIECE_LEAST = 4096 };

struct pieces {
	size_t total, each, count;
};

static struct pieces pieces_of(size_t total)
{
	struct pieces p = {.total = total, .each = (total / PIECES_MAX + 16) / 16 * 16};

	if (p.each < PIECE_LEAST)
		p.each = PIECE_LEAST;
	p.count = (total + p.each - 1) / p.each;
	return p;
}

static size_t piece_end(const struct pieces *p, size_t i)
{
	return (i + 1) * p->each < p->total ? (i + 1) * p->each : p->total;
}

double gn_sum_squares(const float *x, size_t count)
{
	struct pieces pieces = pieces_of(count);
	double sums[PIECES_MAX], sum = 0;

#pragma omp parallel for schedule(static) if (pieces.count > 4)
	for (size_t i = 0; i < pieces.count; i++) {
		size_t end = piece_end(&pieces, i);
		double part = 0;

#pragma omp simd reduction(+ : part)
		for (size_t k = i * pieces.each; k < end; k++)
			part += (double)x[k] * x[k];
		sums[i] = part;
	}
	for (size_t i = 0; i < pieces.count; i++)
		sum += sums[i];
	return sum;
}

void gn_average_step(float *average, const float *values, size_t count, double decay)
{
	const float d = (float)decay, rest = (float)(1 - decay);

#pragma omp parallel for simd schedule(static) if (count > 1 << 14)
	for (size_t i = 0; i < count; i++)
		average[i] = d * average[i] + rest * values[i];
}

/* Scalars as floats: no conversions in the loops. */
struct sgd {
	float lr, momentum, decay, scale;
};

static void plain(struct sgd s, float *params, const float *grads, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++)
		params[i] -= s.lr * (s.scale * grads[i] + s.decay * params[i]);
}

static void heavy_ball(struct sgd s, float *params, const float *grads, float *buffer, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float b = s.momentum * buffer[i] + (s.scale * grads[i] + s.decay * params[i]);

		buffer[i] = b;
		params[i] -= s.lr * b;
	}
}

static void nesterov(struct sgd s, float *params, const float *grads, float *buffer, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float g = s.scale * grads[i] + s.decay * params[i], b = s.momentum * buffer[i] + g;

		buffer[i] = b;
		params[i] -= s.lr * (g + s.momentum * b);
	}
}

static void sgd(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2])
{
	struct sgd s = {(float)(u->lr * t->lr_scale), (float)o->momentum, (float)t->weight_decay, (float)u->grad_scale};

	(void)sums;
	if (o->momentum == 0)
		plain(s, t->params, t->grads, t->count);
	else
		(o->nesterov ? nesterov : heavy_ball)(s, t->params, t->grads, t->slots[0], t->count);
}

static void sgd_sums(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, double sums[2])
{
	(void)o;
	(void)u;
	(void)t;
	sums[0] = sums[1] = 0;
}

/* Of parameters and gradients. */
static void lars_sums(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, double sums[2])
{
	(void)o;
	(void)u;
	sums[0] = t->adapt ? gn_sum_squares(t->params, t->count) : 0;
	sums[1] = t->adapt ? gn_sum_squares(t->grads, t->count) : 0;
}

static void lars(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2])
{
	double ratio = 1, p_norm = sqrt(sums[0]), g_norm = fabs(u->grad_scale) * sqrt(sums[1]);
	float *restrict p = t->params, *restrict slot = t->slots[0];
	const float *restrict g = t->grads;
	const float m = (float)o->momentum, scale = (float)u->grad_scale, decay = (float)t->weight_decay;

	if (p_norm > 0 && g_norm > 0)
		ratio = o->trust * p_norm / (g_norm + t->weight_decay * p_norm + o->eps);
	const float rate = (float)(ratio * (u->lr * t->lr_scale)), again = o->nesterov ? m : 1, direct = o->nesterov ? rate : 0;

#pragma omp parallel for simd schedule(static) if (t->count > 1 << 14)
	for (size_t i = 0; i < t->count; i++) {
		float d = scale * g[i] + decay * p[i], b = m * slot[i] + rate * d;

		slot[i] = b;
		p[i] -= again * b + direct * d;
	}
}

struct lamb {
	float beta1, beta2, rest1, rest2; /* 1 - beta, rounded once */
	float scale, decay, eps;
	float first, second; /* bias corrections of both moments, as factors */
};

/* By value: pointers could alias what the loop stores, which prevents vectorisation. */
static inline float lamb_direction(struct lamb l, float m, float v, float p)
{
	return l.first * m / (sqrtf(l.second * v) + l.eps) + l.decay * p;
}

static struct lamb lamb_of(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t)
{
	return (struct lamb){
		(float)o->momentum, (float)o->beta2, (float)(1 - o->momentum), (float)(1 - o->beta2),
		(float)u->grad_scale, (float)t->weight_decay, (float)o->eps,
		(float)(1 / (1 - pow(o->momentum, (double)u->step))), (float)(1 / (1 - pow(o->beta2, (double)u->step))),
	};
}

/* One part: updates both moments and returns the sums of squares of parameters and direction. */
static void lamb_moments(struct lamb l, const struct gn_optim_tensor *t, size_t begin, size_t end, double sums[2])
{
	float *restrict m = t->slots[0], *restrict v = t->slots[1];
	const float *restrict g = t->grads, *restrict p = t->params;
	double p_sum = 0, d_sum = 0;

#pragma omp simd reduction(+ : p_sum, d_sum)
	for (size_t i = begin; i < end; i++) {
		float s = l.scale * g[i], d;

		m[i] = l.beta1 * m[i] + l.rest1 * s;
		v[i] = l.beta2 * v[i] + l.rest2 * s * s;
		d = lamb_direction(l, m[i], v[i], p[i]);
		p_sum += (double)p[i] * p[i];
		d_sum += (double)d * d;
	}
	sums[0] = p_sum;
	sums[1] = d_sum;
}

/* Of parameters and direction. */
static void lamb_sums(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, double sums[2])
{
	const struct lamb l = lamb_of(o, u, t);
	struct pieces pieces = pieces_of(t->count);
	double each[PIECES_MAX][2];

	sums[0] = sums[1] = 0;
#pragma omp parallel for schedule(static) if (pieces.count > 4)
	for (size_t i = 0; i < pieces.count; i++)
		lamb_moments(l, t, i * pieces.each, piece_end(&pieces, i), each[i]);
	for (size_t i = 0; i < pieces.count; i++) {
		sums[0] += each[i][0];
		sums[1] += each[i][1];
	}
}

static void lamb(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2])
{
	const struct lamb l = lamb_of(o, u, t);
	float *restrict p = t->params;
	const float *restrict m = t->slots[0], *restrict v = t->slots[1];
	const int adapts = o->kind == GN_OPTIM_LAMB && t->adapt && sums[0] > 0 && sums[1] > 0;
	const float rate = (float)(u->lr * t->lr_scale * (adapts ? sqrt(sums[0] / sums[1]) : 1));

#pragma omp parallel for simd schedule(static) if (t->count > 1 << 14)
	for (size_t i = 0; i < t->count; i++)
		p[i] -= rate * lamb_direction(l, m[i], v[i], p[i]);
}

static void rmsprop(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2])
{
	float *restrict p = t->params, *restrict b = t->slots[0], *restrict v = t->slots[1];
	const float *restrict g = t->grads;
	const float m = (float)o->momentum, alpha = (float)o->beta2, rest = (float)(1 - o->beta2), eps = (float)o->eps;
	const float scale = (float)u->grad_scale, decay = (float)t->weight_decay, rate = (float)(u->lr * t->lr_scale);

	(void)sums;
#pragma omp parallel for simd schedule(static) if (t->count > 1 << 14)
	for (size_t i = 0; i < t->count; i++) {
		float d = scale * g[i] + decay * p[i];

		v[i] = alpha * v[i] + rest * d * d;
		b[i] = m * b[i] + d / (sqrtf(v[i]) + eps);
		p[i] -= rate * b[i];
	}
}

void gn_optim_sums(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, double sums[2])
{
	static void (*const rules[])(const struct gn_optim *, const struct gn_optim_update *, const struct gn_optim_tensor *, double *) = {
		[GN_OPTIM_SGD] = sgd_sums, [GN_OPTIM_LARS] = lars_sums, [GN_OPTIM_LAMB] = lamb_sums,
		[GN_OPTIM_ADAMW] = lamb_sums, [GN_OPTIM_RMSPROP] = sgd_sums};

	rules[o->kind](o, u, t, sums);
}

void gn_optim_apply(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2])
{
	static void (*const rules[])(const struct gn_optim *, const struct gn_optim_update *, const struct gn_optim_tensor *,
				     const double *) = {
		[GN_OPTIM_SGD] = sgd, [GN_OPTIM_LARS] = lars, [GN_OPTIM_LAMB] = lamb, [GN_OPTIM_ADAMW] = lamb,
		[GN_OPTIM_RMSPROP] = rmsprop};

	rules[o->kind](o, u, t, sums);
}

void gn_optim_step(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t)
{
	double sums[2];

	gn_optim_sums(o, u, t, sums);
	gn_optim_apply(o, u, t, sums);
}
