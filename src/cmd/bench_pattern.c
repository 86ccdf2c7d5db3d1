#include "src/cmd/bench_pattern.h"

#include <math.h>
#include <string.h>

#define PERIOD 61
#define ELEMENT_MAX 8

size_t gn_pattern_bytes(enum gn_dtype type)
{
	switch (type) {
	case GN_F64:
	case GN_I64:
		return 8;
	case GN_F16:
	case GN_BF16:
		return 2;
	case GN_BYTES:
		return 1;
	default:
		return 4;
	}
}

/* Integers up to this are exact, and so are their sums. */
static int exact_to(enum gn_dtype type)
{
	return type == GN_BF16 ? 256 : type == GN_F16 ? 2048 : type == GN_BYTES ? 30 : 1 << 24;
}

/* The value of element i of rank. Small enough that the sum over all ranks stays exact; ranks beyond that count contribute 0. */
static int value_of(const struct gn_pattern *p, int rank, size_t i)
{
	int most = exact_to(p->type) / (p->type == GN_BYTES ? 1 : p->size),
		value = (int)((i * 7 + (size_t)rank * 13) % PERIOD) - 30;

	if (p->type == GN_BYTES)
		return value + 30;
	if (most < 1)
		return rank < exact_to(p->type) ? value % 2 : 0;
	return most < 30 ? value % (most + 1) : value;
}

static double reduced(const struct gn_pattern *p, size_t i)
{
	double result = value_of(p, 0, i);

	for (int r = 1; r < p->size; r++) {
		double v = value_of(p, r, i);

		if (p->reduction == GN_MAX)
			result = v > result ? v : result;
		else if (p->reduction == GN_MIN)
			result = v < result ? v : result;
		else
			result += v;
	}
	return p->reduction == GN_AVERAGE ? result / p->size : result;
}

/* Integers up to 2048 are exact in binary16; larger results are rounded and compared with a tolerance. */
static uint16_t half_of(double value)
{
	uint16_t sign = value < 0 ? 0x8000 : 0;
	int exponent;
	double fraction = frexp(fabs(value), &exponent);

	return fraction > 0 ? (uint16_t)(sign | (uint16_t)((exponent + 14) << 10 | ((int)(fraction * 2048) & 0x3ff))) : sign;
}

static double of_half(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 0x3ff;
	double value = exponent == 31 ? NAN : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	return h & 0x8000 ? -value : value;
}

static void encode(enum gn_dtype type, double value, void *out)
{
	float single = (float)value;
	int32_t whole = (int32_t)value;
	int64_t wide = (int64_t)value;
	uint16_t half = half_of(value);
	uint32_t bits;
	uint8_t byte = (uint8_t)wide;

	memcpy(&bits, &single, sizeof bits);
	switch (type) {
	case GN_F64:
		memcpy(out, &value, sizeof value);
		break;
	case GN_I64:
		memcpy(out, &wide, sizeof wide);
		break;
	case GN_I32:
		memcpy(out, &whole, sizeof whole);
		break;
	case GN_BF16:
		half = (uint16_t)(bits >> 16);
		/* fall through */
	case GN_F16:
		memcpy(out, &half, sizeof half);
		break;
	case GN_BYTES:
		memcpy(out, &byte, sizeof byte);
		break;
	default:
		memcpy(out, &single, sizeof single);
	}
}

static double decode(enum gn_dtype type, const void *data)
{
	uint64_t bits = 0;
	uint32_t upper;
	float single;
	double wide;

	memcpy(&bits, data, gn_pattern_bytes(type));
	switch (type) {
	case GN_F64:
		memcpy(&wide, &bits, sizeof wide);
		return wide;
	case GN_I64:
		return (double)(int64_t)bits;
	case GN_I32:
		return (double)(int32_t)bits;
	case GN_F16:
		return of_half((uint16_t)bits);
	case GN_BYTES:
		return (double)bits;
	default:
		upper = (uint32_t)(type == GN_BF16 ? bits << 16 : bits);
		memcpy(&single, &upper, sizeof single);
		return single;
	}
}

static int differs(const struct gn_pattern *p, const void *data, double wanted)
{
	double got = decode(p->type, data), relative;

	if (p->type == GN_I32 || p->type == GN_I64 || p->type == GN_BYTES)
		return got != trunc(wanted);
	if (p->reduction != GN_AVERAGE)
		return got != wanted;
	/* two units in the last place */
	relative = p->type == GN_F64 ? 4e-16 : p->type == GN_F16 ? 2e-3 : p->type == GN_BF16 ? 1.6e-2 : 2.4e-7;
	return !(fabs(got - wanted) <= relative * fabs(wanted));
}

void gn_pattern_fill(const struct gn_pattern *p, void *data, size_t first, size_t count, int rank)
{
	size_t bytes = gn_pattern_bytes(p->type), done = count < PERIOD ? count : PERIOD, more;
	char *to = data;

	for (size_t i = 0; i < done; i++)
		encode(p->type, value_of(p, rank, first + i), to + i * bytes);
	/* copies whole periods, doubling the filled part */
	for (; done < count; done += more) {
		more = count - done < done ? count - done : done;
		memcpy(to + done * bytes, to, more * bytes);
	}
}

int64_t gn_pattern_wrong(const struct gn_pattern *p, const void *data, size_t first, size_t count, int rank)
{
	size_t bytes = gn_pattern_bytes(p->type);
	char wanted[PERIOD * ELEMENT_MAX];
	double values[PERIOD];
	int64_t wrong = 0;

	for (size_t i = 0; i < PERIOD; i++) {
		values[i] = rank < 0 ? reduced(p, first + i) : value_of(p, rank, first + i);
		encode(p->type, values[i], wanted + i * bytes);
	}
	for (size_t at = 0; at < count; at += PERIOD) {
		const char *block = (const char *)data + at * bytes;
		size_t n = count - at < PERIOD ? count - at : PERIOD;

		if (!memcmp(block, wanted, n * bytes))
			continue;
		for (size_t i = 0; i < n; i++)
			wrong += differs(p, block + i * bytes, values[i]);
	}
	return wrong;
}
