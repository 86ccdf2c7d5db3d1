/* A look into image files: is this a JPEG that decodes to its end, and how large is it; PNG and CMYK turned into RGB JPEG.
 *
 * Packing calls this for every image, so that training never meets a file it cannot decode. Of libjpeg's warnings those that
 * mean lost or corrupt pixels (data that ends early, bad codes) are errors here; those that leave every pixel decoded
 * (gn_image_harmless) are reported beside the result.
 *
 * Thread safety: no state; any thread. Nothing blocks. Errors: GN_ERR_DATA with what is wrong with the image (the caller
 * knows its name), GN_ERR_NO_MEMORY.
 */
#ifndef GN_DATA_SAMPLE_IMAGE_H
#define GN_DATA_SAMPLE_IMAGE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_IMAGE_MAX_BYTES (64u << 20)	 /* of an image file */
#define GN_IMAGE_MAX_SIDE 65500u	 /* pixels; what libjpeg takes */
#define GN_IMAGE_MAX_PIXELS (1ull << 27) /* width * height: bounds what decoding one may need */

enum gn_image_kind { GN_IMAGE_JPEG, GN_IMAGE_PNG, GN_IMAGE_GIF, GN_IMAGE_WEBP, GN_IMAGE_BMP, GN_IMAGE_TIFF, GN_IMAGE_OTHER };

struct gn_image_info {
	uint16_t width, height; /* pixels, 1 .. GN_IMAGE_MAX_SIDE */
	uint8_t components;	/* 1 (grey) or 3 (colour) */
	char warning[200];	/* libjpeg's first harmless warning, or "" */
};

/* By the first bytes alone. */
enum gn_image_kind gn_image_sniff(const void *data, size_t len_bytes);
/* Non-zero for libjpeg warnings (their msg_code) after which every pixel is still decoded from the file's own data: extraneous
 * bytes, unknown JFIF revision or Adobe transform, bad ICC profile, odd scan parameters. Training's decoder takes the same. */
int gn_image_harmless(int jpeg_message_code);
/* Non-zero for a JPEG file of four components (CMYK or YCCK), by its header; zero for all else, and for damaged headers. */
int gn_image_is_cmyk(const void *data, size_t len_bytes);

/* Non-zero for a JPEG file whose EXIF orientation is 2 to 8: it is meant to be turned or mirrored when it is shown. */
int gn_image_is_rotated(const void *data, size_t len_bytes);

/* Decodes the whole JPEG file. Refused: corrupt, cut short, empty, other than 8 bits, other than 1 or 3 components, CMYK
 * and YCCK, beyond the limits above. What follows the end-of-image marker is not looked at. */
enum gn_status gn_image_check_jpeg(const void *data, size_t len_bytes, struct gn_image_info *out, struct gn_err *err);

/* Pixels, rows of width * components bytes without gaps, as a JPEG file of quality 1..100. *jpeg is the caller's to
 * free. */
enum gn_status gn_image_encode_jpeg(const unsigned char *pixels, const struct gn_image_info *info, int quality,
				    unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err);

/* Decodes a PNG file (transparency over white) and encodes it as JPEG, grey or colour as it is. 16 bits per sample are
 * refused: half of them would be lost silently. *jpeg is the caller's to free. */
enum gn_status gn_image_png_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				    size_t *jpeg_bytes, struct gn_err *err);

/* Decodes a CMYK or YCCK JPEG file and encodes it as RGB: red = C * K / 255 and so on, with the samples inverted as Adobe
 * writes them (0 is full ink) whether an Adobe marker says so or not, as Pillow and djpeg read such files. Embedded colour
 * profiles are not applied. *jpeg is the caller's to free. */
enum gn_status gn_image_cmyk_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				     size_t *jpeg_bytes, struct gn_err *err);

#endif
