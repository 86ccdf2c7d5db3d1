/* Decodes JPEG files: a region of an image, at full size or scaled down by 2, 4 or 8, grey or RGB.
 *
 * Only the blocks of the region are transformed (skipped scanlines, cropped columns), and scaling is part of the inverse DCT; the
 * pixels equal those of decoding everything and cropping. Files are not trusted: an image beyond gn_decode_max_pixels, CMYK, or a
 * libjpeg warning that can have cost pixels (see jpeg_trap_internal.h) is GN_ERR_DATA, never a crash. Data after the last needed row
 * is not read (the shard's checksum covers it). EXIF orientation is not applied.
 *
 * Lifecycle: create, then open and read for each image, destroy. Thread safety: one thread per decoder.
 */
#ifndef GN_DATA_SAMPLE_DECODE_H
#define GN_DATA_SAMPLE_DECODE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { gn_decode_max_pixels = 1 << 27 };

struct gn_decoder;

struct gn_region {
	uint32_t x, y, width, height;
};

struct gn_pixels {
	const uint8_t *data; /* the first pixel of the first row; `channels` bytes per pixel */
	size_t stride_bytes; /* bytes from row to row */
	uint32_t width, height;
	uint32_t channels; /* 1 (grey) or 3 (red, green, blue) */
};

enum gn_status gn_decoder_create(struct gn_decoder **out, struct gn_err *err);
void gn_decoder_destroy(struct gn_decoder *d);

/* Reads the header of the JPEG file at jpeg, which is borrowed until the next open or destroy. */
enum gn_status gn_decoder_open(struct gn_decoder *d, const void *jpeg, size_t len_bytes, uint32_t *width,
			       uint32_t *height, struct gn_err *err);
/* Decodes; once per open. denominator is 1, 2, 4 or 8. region is in pixels of the scaled image, whose sides are the image's divided
 * by denominator and rounded up. channels is 1 or 3, independent of the file. *out points into the decoder and is valid until the
 * next call. At least 16 bytes after the region's last byte are readable. */
enum gn_status gn_decoder_read(struct gn_decoder *d, const struct gn_region *region, uint32_t denominator,
			       uint32_t channels, struct gn_pixels *out, struct gn_err *err);

#endif
