#include "data/sample/image_op_internal.h"

#include <math.h>
#include <string.h>

const char *gn_image_op_name(enum gn_image_op op)
{
	static const char *const names[GN_OP_COUNT] = {"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness",
						       "Color", "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast",
						       "Equalize", "Invert", "Hue"};

	return names[op];
}

static int64_t fixed(double v)
{
	return (int64_t)floor(v * 65536 + 0.5);
}

/* Pillow's Image.transform(AFFINE, NEAREST): the output at (x, y) is the pixel at (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y +
 * m[5]), of pixel centres, in its 16.16 fixed-point arithmetic; black outside. */
static void transform(const double m[6], struct gn_bitmap *b)
{
	const int64_t across_x = fixed(m[0]), down_x = fixed(m[1]), across_y = fixed(m[3]), down_y = fixed(m[4]);
	const size_t stride = (size_t)b->width * b->channels;
	int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
	uint8_t *out = b->spare;

	for (uint32_t y = 0; y < b->height; y++, row_x += down_x, row_y += down_y) {
		int64_t at_x = row_x, at_y = row_y;

		for (uint32_t x = 0; x < b->width; x++, at_x += across_x, at_y += across_y, out += b->channels) {
			int64_t column = at_x >> 16, row = at_y >> 16;

			if (column < 0 || column >= b->width || row < 0 || row >= b->height)
				memset(out, 0, b->channels);
			else
				memcpy(out, b->pixels + (size_t)row * stride + (size_t)column * b->channels, b->channels);
		}
	}
	out = b->spare;
	b->spare = b->pixels;
	b->pixels = out;
}

/* Around the centre, as Image.rotate(degrees). */
static void rotate(double degrees, struct gn_bitmap *b)
{
	const double angle = -degrees * (acos(-1) / 180), c = cos(angle), s = sin(angle);
	const double middle_x = b->width / 2.0, middle_y = b->height / 2.0;
	const double m[6] = {c, s, middle_x - c * middle_x - s * middle_y, -s, c, middle_y + s * middle_x - c * middle_y};

	transform(m, b);
}

void gn_image_op_apply(enum gn_image_op op, double magnitude, struct gn_bitmap *b)
{
	const double shear = tan(atan(magnitude)), shift = -trunc(magnitude);

	switch (op) {
	case GN_OP_IDENTITY:
	case GN_OP_COUNT:
		break;
	case GN_OP_SHEAR_X:
		transform((const double[6]){1, shear, 0, 0, 1, 0}, b);
		break;
	case GN_OP_SHEAR_Y:
		transform((const double[6]){1, 0, 0, shear, 1, 0}, b);
		break;
	case GN_OP_TRANSLATE_X:
		transform((const double[6]){1, 0, shift, 0, 1, 0}, b);
		break;
	case GN_OP_TRANSLATE_Y:
		transform((const double[6]){1, 0, 0, 0, 1, shift}, b);
		break;
	case GN_OP_ROTATE:
		rotate(magnitude, b);
		break;
	default:
		gn_image_op_recolour(op, magnitude, b);
	}
}
