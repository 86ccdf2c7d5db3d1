#include "src/base/crc32c.h"

#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* Bitwise, without a table: this path runs only on processors without the instruction. */
uint32_t gn_crc32c_portable(uint32_t crc, const void *data, size_t len_bytes)
{
	const unsigned char *p = data;

	crc = ~crc;
	for (size_t i = 0; i < len_bytes; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
	}
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t len_bytes)
{
	const unsigned char *p = data;
	uint64_t wide = ~crc, word;

	for (; len_bytes >= sizeof word; len_bytes -= sizeof word, p += sizeof word) {
		memcpy(&word, p, sizeof word);
		wide = _mm_crc32_u64(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len_bytes; len_bytes--)
		crc = _mm_crc32_u8(crc, *p++);
	return ~crc;
}
#endif

uint32_t gn_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, data, len_bytes);
#endif
	return gn_crc32c_portable(crc, data, len_bytes);
}
