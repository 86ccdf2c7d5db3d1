/* What is chosen and rounded must be what the oracle says, to the bit; what is left over, to rounding. */
#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t magnitude(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

/* The k-th largest magnitude, found bit by bit from the top: the largest number that at least k elements reach. */
static uint32_t threshold(const float *x, size_t count, size_t k)
{
	uint32_t found = 0;

	for (int bit = 30; bit >= 0; bit--) {
		uint32_t tried = found | (uint32_t)1 << bit;
		size_t reach = 0;

		for (size_t i = 0; i < count; i++)
			reach += magnitude(x[i]) >= tried;
		if (reach >= k)
			found = tried;
	}
	return found;
}

/* Top-k and quantisation as kernels/cuda/kernels.h defines them, in plain loops. */
static void ref_top_k(const float *x, size_t count, size_t k, uint32_t *indices, float *values)
{
	uint32_t least = threshold(x, count, k);
	size_t above = 0, equal = 0, taken = 0;

	for (size_t i = 0; i < count; i++)
		above += magnitude(x[i]) > least;
	for (size_t i = 0; i < count; i++) {
		uint32_t m = magnitude(x[i]);

		if (m < least || (m == least && equal++ >= k - above))
			continue;
		indices[taken] = (uint32_t)i;
		values[taken++] = x[i];
	}
}

/* NaN when an element is not finite. */
static float largest(const float *x, size_t count)
{
	float most = 0;

	for (size_t i = 0; i < count; i++) {
		if (!isfinite(x[i]))
			return NAN;
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	return most;
}

static void ref_quantise(const float *x, size_t count, int8_t *to, float *scales)
{
	for (size_t begin = 0; begin < count; begin += GN_QUANTISE_GROUP) {
		size_t some = count - begin < GN_QUANTISE_GROUP ? count - begin : GN_QUANTISE_GROUP;
		float most = largest(x + begin, some);
		float scale = most < GN_QUANTISE_LEAST ? 0 : most / 127;

		for (size_t i = begin; i < begin + some; i++)
			to[i] = scale > 0 ? (int8_t)rintf(x[i] / scale) : 0;
		scales[begin / GN_QUANTISE_GROUP] = scale;
	}
}

struct job {
	size_t count, k;
	int kinds; /* 0: any numbers; else so many different magnitudes, so that most are equal */
	int broken; /* one is NaN, one infinite */
};

static float *draw(struct fixture *b, const struct job *j)
{
	float *x = calloc(j->count, sizeof *x);

	if (!x)
		abort();
	for (size_t i = 0; i < j->count; i++) {
		x[i] = (float)fixture_normal(b);
		if (j->kinds)
			x[i] = copysignf((float)(int)(fixture_uniform(b) * j->kinds), x[i]);
	}
	if (j->broken) {
		x[j->count / 3] = -INFINITY;
		x[j->count / 2] = NAN;
	}
	return x;
}

static void same(struct fixture *b, const void *device, const void *want, size_t bytes, const char *what)
{
	void *got = malloc(bytes);

	if (!got)
		abort();
	fixture_fetch(b, got, device, bytes);
	if (memcmp(got, want, bytes))
		fixture_fail(b, "%s differ", what);
	free(got);
}

/* What is left over, to a rounding of what was there. */
static void leaves(struct fixture *b, struct fixture_tensor *left, const double *want, const float *x)
{
	fixture_read(b, left, "what is left");
	for (size_t i = 0; i < left->count && !b->why[0]; i++)
		if (!(fabs(left->host[i] - want[i]) <= 2e-7 * fabs((double)x[i]) + 1e-44))
			fixture_fail(b, "%g is left of number %zu, and not %g", left->host[i], i, want[i]);
}

struct taken {
	float *values, *to_values;
	uint32_t *indices, *to_indices;
	void *scratch;
};

/* What is left goes to rest_to, which may be NULL or from itself; from holds x before, and x or what is left behind it. */
static void take_top(struct fixture *b, const struct job *j, struct taken *t, const float *x, float *from, float *rest_to,
		     const float *rest)
{
	if (!fixture_ok(b, gn_cuda_fill(b->stream, t->to_indices, 0xff, j->k * sizeof *t->indices, &b->err), "fill") ||
	    !fixture_ok(b, gn_cuda_fill(b->stream, t->to_values, 0xff, j->k * sizeof *t->values, &b->err), "fill") ||
	    !fixture_ok(b, gn_cuda_top_k(b->stream, from, j->count, j->k, t->to_indices, t->to_values, rest_to, t->scratch, &b->err),
		    "top-k"))
		return;
	same(b, t->to_indices, t->indices, j->k * sizeof *t->indices, "indices");
	same(b, t->to_values, t->values, j->k * sizeof *t->values, "values");
	if (rest_to)
		same(b, rest_to, rest, j->count * sizeof *rest, "what is left");
	if (rest_to != from)
		same(b, from, x, j->count * sizeof *x, "numbers that were to stay");
}

/* Without what is left, with it elsewhere, and in place; then back again by adding. */
static void check_top_k(struct fixture *b, const struct job *j)
{
	struct taken t = {.values = calloc(j->k, sizeof *t.values), .indices = calloc(j->k, sizeof *t.indices)};
	float *x = draw(b, j), *rest = malloc(j->count * sizeof *rest), *from, *elsewhere;

	if (!t.values || !rest || !t.indices)
		abort();
	fixture_begin(b);
	from = fixture_bytes(b, x, j->count * sizeof *x);
	elsewhere = fixture_bytes(b, NULL, j->count * sizeof *x);
	t.to_indices = fixture_bytes(b, NULL, j->k * sizeof *t.indices);
	t.to_values = fixture_bytes(b, NULL, j->k * sizeof *t.values);
	t.scratch = fixture_bytes(b, NULL, gn_cuda_top_k_scratch_bytes());
	ref_top_k(x, j->count, j->k, t.indices, t.values);
	memcpy(rest, x, j->count * sizeof *rest);
	for (size_t i = 0; i < j->k; i++)
		rest[t.indices[i]] = 0;
	if (!b->why[0]) {
		if (j->count < 100000) {
			take_top(b, j, &t, x, from, NULL, rest);
			take_top(b, j, &t, x, from, elsewhere, rest);
		}
		take_top(b, j, &t, x, from, from, rest);
	}
	if (!b->why[0]) {
		fixture_ok(b, gn_cuda_scatter_add(b->stream, t.to_indices, t.to_values, j->k, from, &b->err), "scatter");
		for (size_t i = 0; i < j->k; i++)
			rest[t.indices[i]] += t.values[i];
		if (!j->broken)
			same(b, from, rest, j->count * sizeof *rest, "sums");
	}
	fixture_end(b, "top %zu of %zu%s%s", j->k, j->count, j->kinds ? ", many equal" : "", j->broken ? ", not all finite" : "");
	free(x);
	free(t.values);
	free(rest);
	free(t.indices);
}

static void check_quantise(struct fixture *b, const struct job *j, double size)
{
	size_t groups = GN_QUANTISE_GROUPS(j->count);
	float *x = draw(b, j), *scales = calloc(groups, sizeof *scales);
	double *rest = fixture_doubles(j->count), *sums = fixture_doubles(j->count);
	int8_t *whole = calloc(j->count, 1), *to;
	struct fixture_tensor *left, *back;
	float *from, *to_scales;

	if (!scales || !whole)
		abort();
	fixture_begin(b);
	for (size_t i = 0; i < j->count; i++)
		x[i] *= (float)size;
	from = fixture_bytes(b, x, j->count * sizeof *x);
	to = fixture_bytes(b, NULL, j->count);
	to_scales = fixture_bytes(b, NULL, groups * sizeof *scales);
	left = fixture_output(b, GN_CUDA_F32, j->count);
	back = fixture_input(b, GN_CUDA_F32, j->count, 0, 1);
	ref_quantise(x, j->count, whole, scales);
	for (size_t i = 0; i < j->count && back; i++) {
		double value = (double)whole[i] * scales[i / GN_QUANTISE_GROUP];

		rest[i] = x[i] - value;
		sums[i] = back->host[i] + value;
		if (isfinite(value) && fabs(rest[i]) > 0.501 * scales[i / GN_QUANTISE_GROUP] + (double)GN_QUANTISE_LEAST)
			fixture_fail(b, "the oracle is off by more than half a step");
	}
	if (!b->why[0] &&
	    fixture_ok(b, gn_cuda_quantise(b->stream, from, j->count, to, to_scales, left->data, &b->err), "quantise")) {
		same(b, to, whole, j->count, "numbers");
		if (!j->broken) {
			same(b, to_scales, scales, groups * sizeof *scales, "scales");
			leaves(b, left, rest, x);
			fixture_ok(b, gn_cuda_dequantise(b->stream, to, to_scales, j->count, 1, back->data, &b->err), "dequantise");
			fixture_compare(b, back, sums, fixture_tolerance(GN_CUDA_F32), "sums");
		} else {
			fixture_fetch(b, scales, to_scales, groups * sizeof *scales);
			if (!isnan(scales[j->count / 3 / GN_QUANTISE_GROUP]) || !isnan(scales[j->count / 2 / GN_QUANTISE_GROUP]))
				fixture_fail(b, "a group with infinity or NaN has a scale");
		}
	}
	fixture_end(b, "8 bits, %zu of about %g%s", j->count, size, j->broken ? ", not all finite" : "");
	free(x);
	free(scales);
	free(rest);
	free(sums);
	free(whole);
}

static void check_errors(struct fixture *b)
{
	float *x;

	fixture_begin(b);
	x = fixture_bytes(b, NULL, 64);
	if (gn_cuda_top_k(b->stream, x, 8, 9, NULL, NULL, NULL, x, &b->err) != GN_ERR_USAGE ||
	    gn_cuda_top_k(b->stream, x, 8, 0, NULL, NULL, NULL, x, &b->err) != GN_ERR_USAGE)
		fixture_fail(b, "more than there are, and none, are taken");
	fixture_end(b, "top-k of more than there are, and of none");
}

void check_compress(struct fixture *b)
{
	static const struct job jobs[] = {{1, 1, 0, 0},	      {7, 3, 0, 0},	 {1000, 10, 0, 0},	{5003, 5003, 0, 0},
					  {20001, 700, 0, 0}, {9000, 5000, 4, 0}, {4100, 41, 0, 1},
					  {600, 599, 1, 0}};

	static const struct job large[] = {{1100000, 11000, 0, 0}, {1100000, 300000, 4, 0}};

	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
		check_top_k(b, &jobs[i]);
	/* several rows in a stretch, several stretches for a thread, and equals that are taken from some of them */
	for (size_t i = 0; !b->misaligned && i < sizeof large / sizeof *large; i++)
		check_top_k(b, &large[i]);
	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
		check_quantise(b, &jobs[i], i % 2 ? 1e-3 : 1);
	check_quantise(b, &jobs[2], 1e-37);
	check_errors(b);
}
