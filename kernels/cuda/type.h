/* Number types of tensors on a GPU, and their conversion to and from float, identical on host and device.
 *
 * bf16 and f16 are stored as 16 bits. Narrowing rounds to nearest even; NaN stays NaN, overflow becomes infinity, f16 has subnormal
 * numbers. On a GPU hardware instructions are used where available.
 *
 * Compiled as C by the host's compiler and as CUDA by nvcc. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_CUDA_TYPE_H
#define GN_KERNELS_CUDA_TYPE_H

#include "src/base/half.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum gn_cuda_type { GN_CUDA_F32, GN_CUDA_BF16, GN_CUDA_F16 };

GN_HD size_t gn_cuda_type_bytes(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? 4 : 2;
}

GN_HD const char *gn_cuda_type_name(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? "f32" : type == GN_CUDA_BF16 ? "bf16" : "f16";
}

GN_HD float gn_bf16_widen(uint16_t bits)
{
	return gn_f32_of_bf16(bits);
}

GN_HD uint16_t gn_bf16_narrow(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	uint16_t out;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
	return out;
#else
	return gn_bf16_of_f32(x);
#endif
}

GN_HD float gn_f16_widen(uint16_t bits)
{
#ifdef __CUDA_ARCH__
	float out;

	asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
	return out;
#else
	return gn_f32_of_f16(bits);
#endif
}

GN_HD uint16_t gn_f16_narrow(float x)
{
#ifdef __CUDA_ARCH__
	uint16_t out;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
	return out;
#else
	return gn_f16_of_f32(x);
#endif
}

/* Reads or writes element i of an array of that type. */
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
