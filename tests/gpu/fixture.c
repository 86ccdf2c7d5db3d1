#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256

enum gn_status fixture_open(struct fixture *b, int ordinal, size_t bytes, struct gn_err *err)
{
	enum gn_status status;

	memset(b, 0, sizeof *b);
	b->random = 1;
	if ((status = gn_cuda_device_create(ordinal, &b->device, err)) ||
	    (status = gn_cuda_stream_create(b->device, &b->stream, err)) ||
	    (status = gn_cuda_arena_create(b->device, bytes, &b->arena, err)))
		fixture_close(b);
	return status;
}

void fixture_close(struct fixture *b)
{
	for (int i = 0; i < b->used; i++)
		free(b->pieces[i].host);
	b->used = 0;
	gn_cuda_arena_destroy(b->arena);
	gn_cuda_stream_destroy(b->stream);
	gn_cuda_device_destroy(b->device);
	b->arena = NULL;
	b->stream = NULL;
	b->device = NULL;
}

void fixture_begin(struct fixture *b)
{
	for (int i = 0; i < b->used; i++)
		free(b->pieces[i].host);
	b->used = 0;
	b->why[0] = 0;
	gn_cuda_arena_empty(b->arena);
}

void fixture_end(struct fixture *b, const char *format, ...)
{
	va_list args;

	b->points++;
	b->failed += b->why[0] != 0;
	printf("%sok %d - cuda:%d ", b->why[0] ? "not " : "", b->points, gn_cuda_device_info(b->device)->ordinal);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("%s\n", b->misaligned ? ", misaligned" : "");
	if (b->why[0])
		printf("# %s\n", b->why);
	fflush(stdout);
}

void fixture_fail(struct fixture *b, const char *format, ...)
{
	va_list args;

	if (b->why[0])
		return;
	va_start(args, format);
	vsnprintf(b->why, sizeof b->why, format, args);
	va_end(args);
}

int fixture_ok(struct fixture *b, enum gn_status status, const char *what)
{
	if (status)
		fixture_fail(b, "%s: %s", what, b->err.text);
	return status == GN_OK;
}

/* splitmix64 */
static uint64_t draw(struct fixture *b)
{
	uint64_t z = b->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

double fixture_uniform(struct fixture *b)
{
	return (double)(draw(b) >> 11) * 0x1p-53;
}

double fixture_normal(struct fixture *b)
{
	return (fixture_uniform(b) + fixture_uniform(b) + fixture_uniform(b) - 1.5) * 2;
}

double *fixture_doubles(size_t count)
{
	double *x = calloc(count ? count : 1, sizeof *x);

	if (!x) {
		fprintf(stderr, "no memory for %zu numbers\n", count);
		exit(1);
	}
	return x;
}

struct fixture_tensor *fixture_output(struct fixture *b, enum gn_cuda_type type, size_t count)
{
	size_t bytes = count * gn_cuda_type_bytes(type), off = b->misaligned ? gn_cuda_type_bytes(type) : 0;
	struct fixture_tensor *t = &b->pieces[b->used];
	char *base;

	if (b->used == BED_PIECES_MAX || !(base = gn_cuda_arena_take(b->arena, bytes + off + 2 * GUARD_BYTES))) {
		fixture_fail(b, "the fixture is too small");
		return NULL;
	}
	*t = (struct fixture_tensor){type, count, bytes, base, base + GUARD_BYTES + off, fixture_doubles(count)};
	b->used++;
	/* every type's 0xff... is a NaN */
	fixture_ok(b, gn_cuda_fill(b->stream, base, 0xff, bytes + off + 2 * GUARD_BYTES, &b->err), "poison");
	return t;
}

struct fixture_tensor *fixture_input(struct fixture *b, enum gn_cuda_type type, size_t count, double mean, double deviation)
{
	struct fixture_tensor *t = fixture_output(b, type, count);

	for (size_t i = 0; t && i < count; i++)
		t->host[i] = mean + deviation * fixture_normal(b);
	if (t)
		fixture_write(b, t);
	return t;
}

void fixture_write(struct fixture *b, struct fixture_tensor *t)
{
	void *raw = calloc(1, t->bytes ? t->bytes : 1);

	if (!raw) {
		fixture_fail(b, "no memory");
		return;
	}
	for (size_t i = 0; i < t->count; i++) {
		gn_cuda_set_value(t->type, raw, i, (float)t->host[i]);
		t->host[i] = gn_cuda_value(t->type, raw, i);
	}
	fixture_ok(b, gn_cuda_copy(b->stream, t->data, raw, t->bytes, &b->err), "copy to the device");
	fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), "copy to the device");
	free(raw);
}

static int all_poison(const unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != 0xff)
			return 0;
	return 1;
}

void fixture_read(struct fixture *b, struct fixture_tensor *t, const char *what)
{
	size_t before = (size_t)((char *)t->data - t->base), all = before + t->bytes + GUARD_BYTES;
	unsigned char *raw = malloc(all);

	if (!raw) {
		fixture_fail(b, "no memory");
		return;
	}
	if (fixture_ok(b, gn_cuda_copy(b->stream, raw, t->base, all, &b->err), what) &&
	    fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), what)) {
		if (!all_poison(raw, before) || !all_poison(raw + before + t->bytes, GUARD_BYTES))
			fixture_fail(b, "%s: written outside of the tensor", what);
		/* to where elements are aligned */
		memmove(raw, raw + before, t->bytes);
		for (size_t i = 0; i < t->count; i++)
			t->host[i] = gn_cuda_value(t->type, raw, i);
	}
	free(raw);
}

void fixture_compare(struct fixture *b, struct fixture_tensor *t, const double *want, double tolerance, const char *what)
{
	/* what half of the last bit may be of one number, which among many (also where a relu leaves half of them) is less */
	double half = t->type == GN_CUDA_BF16 ? 1.0 / 256 : t->type == GN_CUDA_F16 ? 1.0 / 2048 : 0;
	double squares = 0, differences = 0, worst = 0, size;
	size_t at = 0;

	if (t->count < 64 && tolerance < half)
		tolerance = half;
	fixture_read(b, t, what);
	for (size_t i = 0; i < t->count; i++)
		squares += want[i] * want[i];
	size = sqrt(squares / (double)t->count) + 1e-30;
	for (size_t i = 0; i < t->count; i++) {
		double d = fabs(t->host[i] - want[i]);

		differences += d * d;
		if (!(d / (size + fabs(want[i])) <= worst)) {
			worst = d / (size + fabs(want[i]));
			at = i;
		}
	}
	if (!(sqrt(differences) <= tolerance * (sqrt(squares) + 1e-30)) || !(worst <= 8 * tolerance))
		fixture_fail(b, "%s: relative error %.2e (allowed %.0e), worst at %zu of %zu: %.9g, not %.9g", what,
			 sqrt(differences) / (sqrt(squares) + 1e-30), tolerance, at, t->count, t->host[at], want[at]);
}

void *fixture_bytes(struct fixture *b, const void *from, size_t bytes)
{
	char *base = gn_cuda_arena_take(b->arena, bytes);

	if (!base) {
		fixture_fail(b, "the fixture is too small");
		return NULL;
	}
	if (from)
		fixture_ok(b, gn_cuda_copy(b->stream, base, from, bytes, &b->err), "copy to the device");
	else
		fixture_ok(b, gn_cuda_fill(b->stream, base, 0xff, bytes, &b->err), "poison");
	fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), "copy to the device");
	return base;
}

void fixture_fetch(struct fixture *b, void *to, const void *from, size_t bytes)
{
	fixture_ok(b, gn_cuda_copy(b->stream, to, from, bytes, &b->err), "copy from the device");
	fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), "copy from the device");
}

double fixture_tolerance(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? 4e-6 : type == GN_CUDA_BF16 ? 3e-3 : 5e-4;
}

void fixture_to_planes(const double *from, int n, int c, size_t hw, double *to)
{
	for (int i = 0; i < n; i++)
		for (size_t p = 0; p < hw; p++)
			for (int k = 0; k < c; k++)
				to[((size_t)i * c + k) * hw + p] = *from++;
}

void fixture_from_planes(const double *from, int n, int c, size_t hw, double *to)
{
	for (int i = 0; i < n; i++)
		for (size_t p = 0; p < hw; p++)
			for (int k = 0; k < c; k++)
				*to++ = from[((size_t)i * c + k) * hw + p];
}
