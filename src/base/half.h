/* Conversion of bfloat16 and float16 to and from float32: round to nearest even, NaN stays NaN. Plain integer code, which compilers
 * vectorise for bfloat16. Under nvcc the functions also compile for the device. */
#ifndef GN_BASE_HALF_H
#define GN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define GN_HD __host__ __device__ static inline
#else
#define GN_HD static inline
#endif

GN_HD float gn_f32_of_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

GN_HD uint32_t gn_bits_of_f32(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

GN_HD float gn_f32_of_bf16(uint16_t h)
{
	return gn_f32_of_bits((uint32_t)h << 16);
}

GN_HD uint16_t gn_bf16_of_f32(float f)
{
	uint32_t bits = gn_bits_of_f32(f);
	uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

GN_HD float gn_f32_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;

	if (exponent == 0x1f)
		return gn_f32_of_bits(sign | 0x7f800000u | fraction << 13);
	if (exponent)
		return gn_f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
	/* subnormal: fraction * 2^-24, exact */
	return gn_f32_of_bits(sign | gn_bits_of_f32((float)fraction * 0x1p-24f));
}

GN_HD uint16_t gn_f16_of_f32(float f)
{
	uint32_t bits = gn_bits_of_f32(f), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;

	if (rest > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
	if (rest >= 0x477ff000u) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7c00u);
	if (rest < 0x38800000u) /* below 2^-14: the addition of 0.5 moves the rounded subnormal fraction into the low bits */
		return (uint16_t)(sign | (gn_bits_of_f32(gn_f32_of_bits(rest) + 0.5f) - 0x3f000000u));
	return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13);
}

#endif
