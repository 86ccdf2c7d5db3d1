/* CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4). Uses SSE 4.2 where the processor has it. */
#ifndef GN_BASE_CRC32C_H
#define GN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of len_bytes at data, continued from crc (0 at the start): crc32c(crc32c(0, a), b) equals crc32c(0, a
 * followed by b). Any thread. */
uint32_t gn_crc32c(uint32_t crc, const void *data, size_t len_bytes);
/* The same without special instructions: the reference that the hardware path is tested against. */
uint32_t gn_crc32c_portable(uint32_t crc, const void *data, size_t len_bytes);

#endif
