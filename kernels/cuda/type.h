/* The number types of tensors on a GPU, and their conversions to and from float, the same on host and device.
 *
 * bf16 and f16 are kept as their 16 bits. Narrowing rounds to nearest, ties to even; every NaN stays one, what is too
 * large becomes infinite, f16 has subnormal numbers. On a GPU the instructions of the hardware do it where it has them.
 *
 * Compiled as C by the host's compiler and as CUDA by nvcc. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_CUDA_TYPE_H
#define GN_KERNELS_CUDA_TYPE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define GN_HD __host__ __device__ static inline
#else
#define GN_HD static inline
#endif

enum gn_cuda_type { GN_CUDA_F32, GN_CUDA_BF16, GN_CUDA_F16 };

GN_HD size_t gn_cuda_type_bytes(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? 4 : 2;
}

GN_HD const char *gn_cuda_type_name(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? "f32" : type == GN_CUDA_BF16 ? "bf16" : "f16";
}

GN_HD uint32_t gn_float_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}

GN_HD float gn_float_from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

GN_HD float gn_bf16_widen(uint16_t bits)
{
	return gn_float_from_bits((uint32_t)bits << 16);
}

GN_HD uint16_t gn_bf16_narrow(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	uint16_t out;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
	return out;
#else
	uint32_t bits = gn_float_bits(x);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

GN_HD float gn_f16_widen(uint16_t bits)
{
#ifdef __CUDA_ARCH__
	float out;

	asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
	return out;
#else
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
	float subnormal;

	if (rest >= 0x7c00) /* infinite, NaN */
		return gn_float_from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
	if (rest >= 0x400)
		return gn_float_from_bits(sign | ((rest << 13) + (112u << 23)));
	subnormal = (float)rest * 0x1p-24f;
	return sign ? -subnormal : subnormal;
#endif
}

GN_HD uint16_t gn_f16_narrow(float x)
{
#ifdef __CUDA_ARCH__
	uint16_t out;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
	return out;
#else
	uint32_t bits = gn_float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;

	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= 0x477ff000) /* 65520, which rounds to 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (rest < 0x38800000) /* below 2^-14: the sum's last bit is 2^-24, so that the addition rounds */
		return (uint16_t)(sign | (gn_float_bits(gn_float_from_bits(rest) + 0.5f) - 0x3f000000));
	rest += 0xfff + (rest >> 13 & 1);
	return (uint16_t)(sign | ((rest - (112u << 23)) >> 13));
#endif
}

/* Element i of an array of that type, and into it. */
GN_HD float gn_cuda_value(enum gn_cuda_type type, const void *from, size_t i)
{
	if (type == GN_CUDA_F32)
		return ((const float *)from)[i];
	return type == GN_CUDA_BF16 ? gn_bf16_widen(((const uint16_t *)from)[i])
				    : gn_f16_widen(((const uint16_t *)from)[i]);
}

GN_HD void gn_cuda_set_value(enum gn_cuda_type type, void *to, size_t i, float x)
{
	if (type == GN_CUDA_F32)
		((float *)to)[i] = x;
	else
		((uint16_t *)to)[i] = type == GN_CUDA_BF16 ? gn_bf16_narrow(x) : gn_f16_narrow(x);
}

#endif
