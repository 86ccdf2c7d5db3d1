/* Synthetic images that a network can learn: each class has gratings of a certain direction, pitch and colour, each image a random
 * phase, brightness and noise.
 *
 * Thread safety: no state; any thread. An image is a pure function of (shape, seed, index, quality).
 */
#ifndef GN_DATA_PACK_SYNTHETIC_H
#define GN_DATA_PACK_SYNTHETIC_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gn_synthetic_shape {
	uint32_t classes;	/* image index belongs to class index % classes */
	uint32_t height, width; /* pixels */
};

/* "c00042". */
void gn_synthetic_class_name(uint32_t class_id, char *out, size_t size);
/* Encodes image number index (< 2^32) as a colour JPEG; the caller frees *jpeg. GN_ERR_NO_MEMORY. */
enum gn_status gn_synthetic_jpeg(const struct gn_synthetic_shape *shape, uint64_t seed, uint64_t index, int quality,
				 unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err);

#endif
