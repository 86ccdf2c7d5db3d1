/* Operations on 8-bit images, as torchvision's transforms apply them to Pillow images: what RandAugment, TrivialAugment, AutoAugment and
 * ColorJitter are made of.
 *
 * The geometric ones read the nearest pixel and fill with black. The arithmetic is Pillow's (ImageEnhance, ImageOps, Image.transform), so
 * that results are equal to torchvision's (tests/data/test_image_op).
 *
 * Thread safety: pure functions of their arguments. Nothing blocks or fails.
 */
#ifndef GN_DATA_SAMPLE_IMAGE_OP_H
#define GN_DATA_SAMPLE_IMAGE_OP_H

#include <stdint.h>

/* Rows of width * channels bytes without gaps, and as many bytes for an operation's result. Both are the caller's. */
struct gn_bitmap {
	uint8_t *pixels, *spare; /* exchanged by operations that cannot work in place */
	uint32_t width, height;	 /* at most 32767 */
	uint32_t channels;	 /* 1 (grey) or 3 (red, green, blue) */
};

/* In the order of torchvision's RandAugment and TrivialAugmentWide; what follows equalize is in neither. */
enum gn_image_op {
	GN_OP_IDENTITY,
	GN_OP_SHEAR_X,	   /* magnitude: pixels per pixel; around the upper left corner */
	GN_OP_SHEAR_Y,
	GN_OP_TRANSLATE_X, /* pixels, rounded towards zero */
	GN_OP_TRANSLATE_Y,
	GN_OP_ROTATE,	   /* degrees, counterclockwise, -180 to 180 */
	GN_OP_BRIGHTNESS,  /* this and the next three: 1 + magnitude is the factor of ImageEnhance; 0 changes nothing */
	GN_OP_COLOR,
	GN_OP_CONTRAST,
	GN_OP_SHARPNESS,
	GN_OP_POSTERIZE,   /* bits that remain, 0 to 8 */
	GN_OP_SOLARIZE,	   /* the least value that is inverted */
	GN_OP_AUTOCONTRAST,
	GN_OP_EQUALIZE,
	GN_OP_INVERT,
	GN_OP_HUE,	   /* of a turn, -0.5 to 0.5 */
	GN_OP_COUNT
};

enum { GN_OP_OF_POLICIES = GN_OP_EQUALIZE + 1 };

/* "ShearX" and so on, as torchvision names them. */
const char *gn_image_op_name(enum gn_image_op op);
void gn_image_op_apply(enum gn_image_op op, double magnitude, struct gn_bitmap *b);

#endif
