#include "src/base/philox.h"

#include <math.h>
#include <string.h>

/* multipliers and Weyl constants of the paper */
static const uint32_t mul_0 = 0xD2511F53u, mul_1 = 0xCD9E8D57u;
static const uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;

void gn_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)mul_0 * c0, p1 = (uint64_t)mul_1 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += weyl_0;
		k1 += weyl_1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

void gn_rng_init(struct gn_rng *r, uint64_t seed, enum gn_rng_stream stream, uint32_t a, uint32_t b)
{
	memset(r, 0, sizeof *r);
	r->key[0] = (uint32_t)seed;
	r->key[1] = (uint32_t)(seed >> 32);
	r->counter[1] = b;
	r->counter[2] = a;
	r->counter[3] = (uint32_t)stream;
	r->used = 4;
}

uint32_t gn_rng_u32(struct gn_rng *r)
{
	if (r->used == 4) {
		gn_philox(r->counter, r->key, r->block);
		r->counter[0]++;
		r->used = 0;
	}
	return r->block[r->used++];
}

uint32_t gn_rng_below(struct gn_rng *r, uint32_t bound)
{
	/* Lemire's multiply-and-reject: rejects the low products that would bias the result. */
	uint32_t floor = (0u - bound) % bound;
	uint64_t product;

	do
		product = (uint64_t)gn_rng_u32(r) * bound;
	while ((uint32_t)product < floor);
	return (uint32_t)(product >> 32);
}

double gn_rng_uniform(struct gn_rng *r)
{
	uint64_t high = gn_rng_u32(r) >> 5, low = gn_rng_u32(r) >> 6;

	return (double)((high << 26) | low) * 0x1p-53;
}

double gn_rng_normal(struct gn_rng *r)
{
	const double two_pi = 6.283185307179586;
	double u = 1.0 - gn_rng_uniform(r), v = gn_rng_uniform(r);

	return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}
