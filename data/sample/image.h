/* Checks image files: whether a JPEG decodes completely, and its size; converts PNG and CMYK to RGB JPEG.
 *
 * Packing calls this for every image, so that training never reads a file that it cannot decode. libjpeg warnings that mean lost or
 * corrupt pixels (truncated data, bad codes) are errors here; those that leave every pixel decoded (jpeg_trap_internal.h) are reported
 * beside the result.
 *
 * Thread safety: no state; any thread. Does not block. Errors: GN_ERR_DATA with the defect of the image (the caller adds its name),
 * GN_ERR_NO_MEMORY.
 */
#ifndef GN_DATA_SAMPLE_IMAGE_H
#define GN_DATA_SAMPLE_IMAGE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_IMAGE_MAX_BYTES (64u << 20)	 /* limit of an image file */
#define GN_IMAGE_MAX_SIDE 65500u	 /* in pixels; libjpeg's limit */
#define GN_IMAGE_MAX_PIXELS (1ull << 27) /* width * height: bounds the memory of decoding */

enum gn_image_kind { GN_IMAGE_JPEG, GN_IMAGE_PNG, GN_IMAGE_OTHER };

struct gn_image_info {
	uint16_t width, height; /* pixels, 1 .. GN_IMAGE_MAX_SIDE */
	uint8_t components;	/* 1 (grey) or 3 (colour) */
	char warning[200];	/* libjpeg's first harmless warning, or "" */
};

/* Detects the kind by the first bytes. */
enum gn_image_kind gn_image_sniff(const void *data, size_t len_bytes);
/* Whether the header is that of a JPEG file with four components (CMYK or YCCK); zero for damaged headers. */
int gn_image_is_cmyk(const void *data, size_t len_bytes);

/* GN_ERR_DATA, for a file that is no JPEG: says what it is by its first bytes, and what to do. */
enum gn_status gn_image_not_jpeg(const void *data, size_t len_bytes, struct gn_err *err);

/* The EXIF orientation of a JPEG file: 2 to 8, viewers rotate or mirror it; 1 otherwise. */
int gn_image_orientation(const void *data, size_t len_bytes);
/* Decodes a JPEG file, brings its pixels into the order that viewers show for an orientation of 2 to 8, and encodes them, without EXIF.
 * The caller frees *jpeg. */
enum gn_status gn_image_turn_jpeg(const void *data, size_t len_bytes, int orientation, int quality, unsigned char **jpeg,
				  size_t *jpeg_bytes, struct gn_err *err);

/* Decodes the whole JPEG file. GN_ERR_DATA: corrupt, truncated, empty, other than 8 bits, other than 1 or 3 components, CMYK and
 * YCCK, beyond the limits above. Data after the end-of-image marker is ignored. */
enum gn_status gn_image_check_jpeg(const void *data, size_t len_bytes, struct gn_image_info *out, struct gn_err *err);

/* Encodes pixels, rows of width * components bytes without gaps, as a JPEG file of quality 1..100, with chroma of each pixel or of
 * two by two (4:2:0). The caller frees *jpeg. */
enum gn_status gn_image_encode_jpeg(const unsigned char *pixels, const struct gn_image_info *info, int quality, int whole_chroma,
				    unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err);

/* Decodes a PNG file (transparency is dropped) and encodes it as grey or colour JPEG. 16 bits per sample are refused, because half
 * of them would be lost. The caller frees *jpeg. */
enum gn_status gn_image_png_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				    size_t *jpeg_bytes, struct gn_err *err);

/* Encodes pixels, rows of width * components bytes (1: grey, 3: RGB) without gaps, as a PNG file. The caller frees *out. */
enum gn_status gn_image_encode_png(const unsigned char *pixels, uint32_t width, uint32_t height, int components, unsigned char **out,
				   size_t *len_bytes, struct gn_err *err);

/* Decodes a CMYK or YCCK JPEG file and encodes it as RGB: red = C * K / 255 and so on, with samples inverted as Adobe writes them
 * (0 is full ink), with or without an Adobe marker, as Pillow and djpeg do. Embedded colour profiles are not applied. The caller
 * frees *jpeg. */
enum gn_status gn_image_cmyk_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				     size_t *jpeg_bytes, struct gn_err *err);

#endif
