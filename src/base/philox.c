#include "src/base/philox.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* multipliers and Weyl constants of the paper */
static const uint32_t mul_0 = 0xD2511F53u, mul_1 = 0xCD9E8D57u;
static const uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;

/* Blocks of normal random numbers: four Philox blocks in SIMD lanes, and Box-Muller with branch-free logarithm and cosine. Both use
 * the polynomials of Sun's fdlibm (e_log, k_sin, k_cos), accurate to one unit in the last place. The argument of the cosine
 * is a fraction of a full turn, so that its reduction is exact. Every instruction set gives the same bits: no fused multiply-add is
 * used. */

enum { LANES = 4 };

/* Compiler vector types. Never passed by value: the calling convention depends on the instruction set. */
typedef double gn_d4 __attribute__((vector_size(32)));
typedef int64_t gn_l4 __attribute__((vector_size(32)));
typedef uint64_t gn_u4 __attribute__((vector_size(32)));
typedef int32_t gn_i4 __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

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

/* The outputs of four gn_philox() blocks in the low halves; the counter increases from the stream's block. */
INLINE void blocks(const struct gn_rng *r, gn_u4 c[4])
{
	const gn_u4 low = (gn_u4){0} + 0xffffffffu, zero = {0}, lanes = {0, 1, 2, 3};
	uint64_t k0 = r->key[0], k1 = r->key[1], m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;

	__asm__("" : "+r"(m0), "+r"(m1)); /* hides the constants: GCC 12 replaces the multiplications by shifts and additions */
	c[0] = (lanes + r->counter[0]) & low;
	for (int i = 1; i < 4; i++)
		c[i] = zero + r->counter[i];
	for (int round = 0; round < 10; round++) {
		gn_u4 p0 = c[0] * m0, p1 = c[2] * m1;

		c[0] = (p1 >> 32) ^ c[1] ^ k0;
		c[1] = p1 & low;
		c[2] = (p0 >> 32) ^ c[3] ^ k1;
		c[3] = p0 & low;
		k0 = (uint32_t)(k0 + 0x9E3779B9u);
		k1 = (uint32_t)(k1 + 0xBB67AE85u);
	}
}

/* Uniform in [0, 1) from two outputs, as gn_rng_uniform(). */
INLINE void uniform(const gn_u4 *high, const gn_u4 *low, gn_d4 *out)
{
	gn_i4 h = __builtin_convertvector(*high >> 5, gn_i4), l = __builtin_convertvector(*low >> 6, gn_i4);

	*out = (__builtin_convertvector(h, gn_d4) * 0x1p26 + __builtin_convertvector(l, gn_d4)) * 0x1p-53;
}

/* Natural logarithm of x in (0, 1]: x = 2^k * m with m in [sqrt(1/2), sqrt(2)); log m from f / (2 + f), f = m - 1. */
INLINE void logarithm(const gn_d4 *x, gn_d4 *out)
{
	const gn_d4 ln2_high = (gn_d4){0} + 6.93147180369123816490e-01, ln2_low = (gn_d4){0} + 1.90821492927058770002e-10;
	/* moves mantissas below sqrt(1/2) to the next lower power of two */
	gn_l4 bits = (gn_l4)*x + ((int64_t)(0x3ff00000 - 0x3fe6a09e) << 32), power = (bits >> 52) - 1023;
	gn_d4 m = (gn_d4)((bits & 0xfffffffffffff) + ((int64_t)0x3fe6a09e << 32)), f = m - 1, s = f / (2 + f), z = s * s, w = z * z;
	gn_d4 half = 0.5 * f * f, k = __builtin_convertvector(__builtin_convertvector(power, gn_i4), gn_d4);
	gn_d4 even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
	gn_d4 odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 +
		    w * 1.479819860511658591e-01)));

	*out = k * ln2_high - ((half - (s * (half + even + odd) + k * ln2_low)) - f);
}

/* cos(2 pi v) for v in [0, 1). */
INLINE void cosine_of_turns(const gn_d4 *v, gn_d4 *out)
{
	gn_i4 quarter = __builtin_convertvector(*v * 4 + 0.5, gn_i4);
	gn_d4 x = (*v * 4 - __builtin_convertvector(quarter, gn_d4)) * 1.57079632679489661923, z = x * x;
	gn_l4 q = __builtin_convertvector(quarter, gn_l4), is_sine = -(q & 1), sign = ((q + 1) & 2) << 62;
	gn_d4 sine = x + x * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 +
		     z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
	gn_d4 cosine = 1 - (0.5 * z - z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 +
		       z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 -
		       z * 1.13596475577881948265e-11))))));

	*out = (gn_d4)((((gn_l4)sine & is_sine) | ((gn_l4)cosine & ~is_sine)) ^ sign);
}

INLINE void draw(const struct gn_rng *r, double *out)
{
	gn_u4 c[4];
	gn_d4 u, v, log_u, cos_v;

	blocks(r, c);
	uniform(&c[0], &c[1], &u);
	uniform(&c[2], &c[3], &v);
	u = 1 - u;
	logarithm(&u, &log_u);
	cosine_of_turns(&v, &cos_v);
	log_u *= -2.0;
	for (int i = 0; i < LANES; i++)
		out[i] = sqrt(log_u[i]) * cos_v[i];
}

static void draw_plain(const struct gn_rng *r, double *out)
{
	draw(r, out);
}

#if defined __x86_64__
/* avx2 without fma: see the top of the file. */
__attribute__((target("avx2"))) static void draw_avx2(const struct gn_rng *r, double *out)
{
	draw(r, out);
}
#endif

static void draw_best(const struct gn_rng *r, double *out)
{
#if defined __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		draw_avx2(r, out);
		return;
	}
#endif
	draw_plain(r, out);
}

/* The SIMD path needs a stream at a block boundary and four numbers; the rest is drawn one by one. */
void gn_rng_normals(struct gn_rng *r, size_t count, double *out)
{
	size_t i = 0;

	for (; r->used == 4 && i + LANES <= count; i += LANES) {
		draw_best(r, out + i);
		r->counter[0] += LANES;
	}
	for (; i < count; i++)
		out[i] = gn_rng_normal(r);
}
