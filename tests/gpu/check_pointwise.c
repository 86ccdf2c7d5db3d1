#include "kernels/ref/ref.h"
#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdlib.h>

static const size_t counts[] = {1, 7, 8, 4096, 30003};
#define COUNTS (sizeof counts / sizeof *counts)

static void cast(struct fixture *b, enum gn_cuda_type from, enum gn_cuda_type to, size_t count)
{
	struct fixture_tensor *x, *y;
	double tolerance = fixture_tolerance(to) > fixture_tolerance(from) ? fixture_tolerance(to) : 0;

	fixture_begin(b);
	x = fixture_input(b, from, count, 0, 1);
	y = fixture_output(b, to, count);
	/* from bf16 to f16 only the range shrinks: exact, but for subnormal numbers */
	if (from == GN_CUDA_BF16 && to == GN_CUDA_F16)
		tolerance = fixture_tolerance(to);
	if (!b->why[0] && fixture_ok(b, gn_cuda_cast(b->stream, from, x->data, to, y->data, count, &b->err), "cast"))
		fixture_compare(b, y, x->host, tolerance, "cast");
	fixture_end(b, "cast %s to %s, %zu", gn_cuda_type_name(from), gn_cuda_type_name(to), count);
}

static void add(struct fixture *b, enum gn_cuda_type type, int relu, int alone, int in_place, size_t count)
{
	struct fixture_tensor *x, *y, *out;
	double *want = fixture_doubles(count);

	fixture_begin(b);
	x = fixture_input(b, type, count, 0, 1);
	y = fixture_input(b, type, count, 0, 1);
	out = in_place ? x : fixture_output(b, type, count);
	if (!b->why[0]) {
		for (size_t i = 0; i < count; i++)
			want[i] = x->host[i] + (alone ? 0 : y->host[i]);
		if (relu)
			gn_ref_relu_forward(count, want, want);
		if (fixture_ok(b,
			   gn_cuda_add(b->stream, type, x->data, alone ? NULL : y->data, relu, out->data, count,
				       &b->err),
			   "add"))
			fixture_compare(b, out, want, fixture_tolerance(type), "sum");
	}
	fixture_end(b, "%s%s %s, %zu%s", alone ? "copy" : "add", relu ? " + relu" : "", gn_cuda_type_name(type), count,
		in_place ? ", in place" : "");
	free(want);
}

static void relu_grad(struct fixture *b, enum gn_cuda_type type, int with_more, size_t count)
{
	struct fixture_tensor *y, *dout, *more, *din;
	double *want = fixture_doubles(count);

	fixture_begin(b);
	y = fixture_input(b, type, count, 0, 1);
	dout = fixture_input(b, type, count, 0, 1);
	more = with_more ? fixture_input(b, type, count, 0, 1) : NULL;
	din = fixture_output(b, type, count);
	if (!b->why[0]) {
		for (size_t i = 0; i < count; i++)
			want[i] = dout->host[i] + (more ? more->host[i] : 0);
		gn_ref_relu_backward(count, y->host, want, want);
		if (fixture_ok(b,
			   gn_cuda_relu_grad(b->stream, type, y->data, dout->data, more ? more->data : NULL, din->data,
					     count, &b->err),
			   "relu_grad"))
			fixture_compare(b, din, want, fixture_tolerance(type), "gradient");
	}
	fixture_end(b, "relu backward %s, %zu%s", gn_cuda_type_name(type), count, with_more ? ", two gradients" : "");
	free(want);
}

static void scale(struct fixture *b, enum gn_cuda_type type, size_t count)
{
	struct fixture_tensor *x;
	double *want = fixture_doubles(count);

	fixture_begin(b);
	x = fixture_input(b, type, count, 0, 1);
	if (!b->why[0]) {
		for (size_t i = 0; i < count; i++)
			want[i] = x->host[i] * 0.37;
		if (fixture_ok(b, gn_cuda_scale(b->stream, type, x->data, 0.37, count, &b->err), "scale"))
			fixture_compare(b, x, want, fixture_tolerance(type), "product");
	}
	fixture_end(b, "scale %s, %zu", gn_cuda_type_name(type), count);
	free(want);
}

/* The first and the last place each, and one in between. */
static void find(struct fixture *b, enum gn_cuda_type type, size_t count)
{
	static const double bad[] = {0, INFINITY, -INFINITY, NAN};
	struct fixture_tensor *x;
	int32_t *found;

	fixture_begin(b);
	x = fixture_input(b, type, count, 0, 1);
	found = fixture_bytes(b, NULL, sizeof *found);
	for (int k = 0; !b->why[0] && k < 12; k++) {
		size_t at = k % 3 == 0 ? 0 : k % 3 == 1 ? count / 2 : count - 1;
		double old = x->host[at];
		int32_t value = -1;

		x->host[at] = bad[k / 3];
		fixture_write(b, x);
		if (fixture_ok(b, gn_cuda_fill(b->stream, found, 0, sizeof *found, &b->err), "fill") &&
		    fixture_ok(b, gn_cuda_find_nonfinite(b->stream, type, x->data, count, found, &b->err), "find"))
			fixture_fetch(b, &value, found, sizeof value);
		if (value != (k >= 3))
			fixture_fail(b, "%g at %zu: found %d", bad[k / 3], at, value);
		x->host[at] = old;
	}
	fixture_end(b, "find what is not finite, %s, %zu", gn_cuda_type_name(type), count);
}

void check_pointwise(struct fixture *b)
{
	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++) {
		for (size_t i = 0; i < COUNTS; i++) {
			for (int to = GN_CUDA_F32; to <= GN_CUDA_F16; to++)
				cast(b, type, to, counts[i]);
			add(b, type, 0, 0, 0, counts[i]);
			add(b, type, 0, 0, 1, counts[i]);
			add(b, type, 1, 0, 0, counts[i]);
			add(b, type, 1, 1, 0, counts[i]);
			relu_grad(b, type, 0, counts[i]);
			relu_grad(b, type, 1, counts[i]);
			scale(b, type, counts[i]);
			find(b, type, counts[i]);
		}
	}
}

/* Widening and narrowing on the device as on the host, for every 16-bit number there is. */
static void every_number(struct fixture *b, enum gn_cuda_type type)
{
	struct fixture_tensor *x, *wide, *back;

	fixture_begin(b);
	x = fixture_output(b, type, 65536);
	wide = fixture_output(b, GN_CUDA_F32, 65536);
	back = fixture_output(b, type, 65536);
	if (!b->why[0]) {
		for (uint32_t i = 0; i < 65536; i++)
			x->host[i] = type == GN_CUDA_BF16 ? gn_bf16_widen((uint16_t)i) : gn_f16_widen((uint16_t)i);
		fixture_write(b, x);
		if (fixture_ok(b, gn_cuda_cast(b->stream, type, x->data, GN_CUDA_F32, wide->data, 65536, &b->err),
			   "widen") &&
		    fixture_ok(b, gn_cuda_cast(b->stream, GN_CUDA_F32, wide->data, type, back->data, 65536, &b->err),
			   "narrow")) {
			fixture_read(b, wide, "widen");
			fixture_read(b, back, "narrow");
		}
		for (uint32_t i = 0; i < 65536; i++)
			if (isnan(x->host[i]) ? !isnan(wide->host[i]) || !isnan(back->host[i])
					      : wide->host[i] != x->host[i] || back->host[i] != x->host[i])
				fixture_fail(b, "%04x is %g, widened %g, and back %g", i, x->host[i], wide->host[i],
					 back->host[i]);
	}
	fixture_end(b, "every %s number to f32 and back", gn_cuda_type_name(type));
}

/* Numbers around every place where rounding changes: the middle between two neighbours, and just beside it. */
static void rounding(struct fixture *b, enum gn_cuda_type type)
{
	struct fixture_tensor *x, *y;
	uint32_t step = type == GN_CUDA_BF16 ? 1u << 16 : 1u << 13, count = 3 * 4096;

	fixture_begin(b);
	x = fixture_output(b, GN_CUDA_F32, count);
	y = fixture_output(b, type, count);
	if (!b->why[0]) {
		for (uint32_t i = 0; i < count; i++) {
			uint32_t bits = (0x33000000 + (uint32_t)(fixture_uniform(b) * 0x16000000)) / step * step;

			x->host[i] = gn_f32_of_bits(bits + step / 2 - 1 + i % 3) * (i % 2 ? -1 : 1);
		}
		fixture_write(b, x);
		if (fixture_ok(b, gn_cuda_cast(b->stream, GN_CUDA_F32, x->data, type, y->data, count, &b->err), "narrow"))
			fixture_read(b, y, "narrow");
		for (uint32_t i = 0; i < count; i++) {
			uint16_t bits = type == GN_CUDA_BF16 ? gn_bf16_narrow((float)x->host[i])
							     : gn_f16_narrow((float)x->host[i]);
			float want = type == GN_CUDA_BF16 ? gn_bf16_widen(bits) : gn_f16_widen(bits);

			if (y->host[i] != want)
				fixture_fail(b, "%a became %a, not %a", x->host[i], y->host[i], (double)want);
		}
	}
	fixture_end(b, "f32 to %s rounds as the host does", gn_cuda_type_name(type));
}

/* Even numbers between -1 and 1: the mean 0, that of squares a third; the same again for the same seed. */
static void randomise(struct fixture *b, enum gn_cuda_type type)
{
	enum { COUNT = 20003 };
	struct fixture_tensor *x[3];
	double sum = 0, squares = 0;
	int same = 0;

	fixture_begin(b);
	for (int i = 0; i < 3; i++)
		x[i] = fixture_output(b, type, COUNT);
	for (int i = 0; i < 3 && !b->why[0]; i++)
		if (fixture_ok(b, gn_cuda_randomise(b->stream, type, x[i]->data, COUNT, i < 2, &b->err), "random numbers"))
			fixture_read(b, x[i], "random numbers");
	for (size_t i = 0; i < COUNT && !b->why[0]; i++) {
		sum += x[0]->host[i] / COUNT;
		squares += x[0]->host[i] * x[0]->host[i] / COUNT;
		same += x[0]->host[i] == x[2]->host[i];
		if (fabs(x[0]->host[i]) > 1 || x[0]->host[i] != x[1]->host[i])
			fixture_fail(b, "number %zu is %g, and then %g", i, x[0]->host[i], x[1]->host[i]);
	}
	if (fabs(sum) > 0.02 || fabs(squares - 1.0 / 3) > 0.02 || same > COUNT / 50)
		fixture_fail(b, "a mean of %g, of squares %g, and %d the same for another seed", sum, squares, same);
	fixture_end(b, "random numbers in %s", gn_cuda_type_name(type));
}

void check_types(struct fixture *b)
{
	for (int type = 0; type <= GN_CUDA_F16; type++)
		randomise(b, (enum gn_cuda_type)type);
	for (int type = GN_CUDA_BF16; type <= GN_CUDA_F16; type++) {
		every_number(b, type);
		rounding(b, type);
	}
}
