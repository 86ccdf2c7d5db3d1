#include "data/sample/image_op.h"

#include <math.h>
#include <string.h>

typedef uint8_t table[256];

static uint8_t clip(double v)
{
	return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

static size_t bytes_of(const struct gn_bitmap *b)
{
	return (size_t)b->width * b->height * b->channels;
}

/* Pillow's convert("L"). */
static uint8_t luma(const uint8_t *p, uint32_t channels)
{
	return channels == 1 ? *p : (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

/* --- ImageEnhance: from + factor * (pixel - from), truncated --- */

static uint8_t blended(int from, int pixel, float factor)
{
	float v = (float)from + factor * (float)(pixel - from);

	return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

/* Towards one value. */
static void blend_value(struct gn_bitmap *b, int value, float factor)
{
	const size_t n = bytes_of(b);
	table t;

	for (int v = 0; v < 256; v++)
		t[v] = blended(value, v, factor);
	for (size_t i = 0; i < n; i++)
		b->pixels[i] = t[b->pixels[i]];
}

static void blend_luma(struct gn_bitmap *b, float factor)
{
	const size_t n = bytes_of(b);

	for (size_t i = 0; i < n && b->channels == 3; i += 3) {
		int grey = luma(b->pixels + i, 3);

		for (int c = 0; c < 3; c++)
			b->pixels[i + (size_t)c] = blended(grey, b->pixels[i + (size_t)c], factor);
	}
}

static int mean_luma(const struct gn_bitmap *b)
{
	const size_t n = bytes_of(b);
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i += b->channels)
		sum += luma(b->pixels + i, b->channels);
	return (int)((double)sum / ((double)b->width * b->height) + 0.5);
}

/* ImageFilter.SMOOTH: the mean of 3x3 pixels, the middle one five times; border pixels stay. Into spare. */
static void smooth(struct gn_bitmap *b)
{
	const size_t stride = (size_t)b->width * b->channels;

	memcpy(b->spare, b->pixels, bytes_of(b));
	for (uint32_t y = 1; y + 1 < b->height; y++) {
		const uint8_t *above = b->pixels + (y - 1) * stride, *row = above + stride, *below = row + stride;

		for (size_t i = b->channels; i + b->channels < stride; i++) {
			size_t left = i - b->channels, right = i + b->channels;
			int sum = above[left] + above[i] + above[right] + row[left] + 5 * row[i] + row[right] + below[left] + below[i] +
				  below[right];

			b->spare[y * stride + i] = (uint8_t)((2 * sum + 13) / 26);
		}
	}
}

static void sharpen(struct gn_bitmap *b, float factor)
{
	const size_t n = bytes_of(b);

	smooth(b);
	for (size_t i = 0; i < n; i++)
		b->pixels[i] = blended(b->spare[i], b->pixels[i], factor);
}

/* --- ImageOps: a table for each channel --- */

static void autocontrast_table(const uint32_t histogram[256], table t)
{
	int low = 0, high = 255;
	double scale;

	while (low < 255 && !histogram[low])
		low++;
	while (high > 0 && !histogram[high])
		high--;
	scale = high > low ? 255.0 / (high - low) : 1;
	for (int v = 0; v < 256; v++)
		t[v] = high > low ? clip(v * scale + -low * scale) : (uint8_t)v;
}

static void equalize_table(const uint32_t histogram[256], table t)
{
	uint64_t sum = 0, at;
	uint32_t last = 0, step;

	for (int v = 0; v < 256; v++) {
		sum += histogram[v];
		last = histogram[v] ? histogram[v] : last;
	}
	step = (uint32_t)((sum - last) / 255);
	at = step / 2;
	for (int v = 0; v < 256; v++) {
		t[v] = step ? clip((double)(at / step)) : (uint8_t)v;
		at += histogram[v];
	}
}

static void by_histogram(struct gn_bitmap *b, void (*make)(const uint32_t histogram[256], table t))
{
	const size_t n = bytes_of(b);

	for (uint32_t c = 0; c < b->channels; c++) {
		uint32_t histogram[256] = {0};
		table t;

		for (size_t i = c; i < n; i += b->channels)
			histogram[b->pixels[i]]++;
		make(histogram, t);
		for (size_t i = c; i < n; i += b->channels)
			b->pixels[i] = t[b->pixels[i]];
	}
}

static void posterize(struct gn_bitmap *b, int bits)
{
	const uint8_t mask = (uint8_t)(0xff00 >> bits);
	const size_t n = bytes_of(b);

	for (size_t i = 0; i < n; i++)
		b->pixels[i] &= mask;
}

static void solarize(struct gn_bitmap *b, double threshold)
{
	const size_t n = bytes_of(b);

	for (size_t i = 0; i < n; i++)
		b->pixels[i] = b->pixels[i] < threshold ? b->pixels[i] : (uint8_t)(255 - b->pixels[i]);
}

/* --- Pillow's HSV, of 8 bits each --- */

static void to_hsv(const uint8_t p[3], uint8_t *hue, uint8_t *saturation, uint8_t *value)
{
	const int top = p[0] > p[1] ? (p[0] > p[2] ? p[0] : p[2]) : p[1] > p[2] ? p[1] : p[2];
	const int bottom = p[0] < p[1] ? (p[0] < p[2] ? p[0] : p[2]) : p[1] < p[2] ? p[1] : p[2];
	const float range = (float)(top - bottom);
	float red, green, blue, h;

	*value = (uint8_t)top;
	*hue = *saturation = 0;
	if (top == bottom)
		return;
	red = (float)(top - p[0]) / range;
	green = (float)(top - p[1]) / range;
	blue = (float)(top - p[2]) / range;
	if (p[0] == top)
		h = blue - green;
	else if (p[1] == top)
		h = (float)(2.0 + red - blue);
	else
		h = (float)(4.0 + green - red);
	h = (float)fmod(h / 6.0 + 1.0, 1.0);
	*hue = clip(h * 255.0);
	*saturation = clip(range / (float)top * 255.0);
}

static void from_hsv(uint8_t hue, uint8_t saturation, uint8_t value, uint8_t out[3])
{
	const float sixth = (float)floor((double)hue * 6.0 / 255.0);
	const float f = (float)((double)hue * 6.0 / 255.0 - sixth), s = (float)(saturation / 255.0);
	const uint8_t p = clip(round(value * (1.0 - s))), q = clip(round(value * (1.0 - s * f)));
	const uint8_t t = clip(round(value * (1.0 - s * (1.0 - f))));
	const uint8_t of_sixth[6][3] = {{value, t, p}, {q, value, p}, {p, value, t}, {p, q, value}, {t, p, value}, {value, p, q}};

	memcpy(out, of_sixth[(int)sixth % 6], 3);
}

static void turn_hue(struct gn_bitmap *b, double turns)
{
	const uint8_t shift = (uint8_t)(int)(turns * 255);
	const size_t n = bytes_of(b);

	for (size_t i = 0; i < n && b->channels == 3; i += 3) {
		uint8_t hue, saturation, value;

		to_hsv(b->pixels + i, &hue, &saturation, &value);
		from_hsv((uint8_t)(hue + shift), saturation, value, b->pixels + i);
	}
}

/* op: brightness to hue. */
static void recolour(enum gn_image_op op, double magnitude, struct gn_bitmap *b)
{
	const float factor = (float)(1 + magnitude);

	if (op == GN_OP_BRIGHTNESS)
		blend_value(b, 0, factor);
	else if (op == GN_OP_COLOR)
		blend_luma(b, factor);
	else if (op == GN_OP_CONTRAST)
		blend_value(b, mean_luma(b), factor);
	else if (op == GN_OP_SHARPNESS)
		sharpen(b, factor);
	else if (op == GN_OP_POSTERIZE)
		posterize(b, (int)magnitude);
	else if (op == GN_OP_SOLARIZE)
		solarize(b, magnitude);
	else if (op == GN_OP_AUTOCONTRAST)
		by_histogram(b, autocontrast_table);
	else if (op == GN_OP_EQUALIZE)
		by_histogram(b, equalize_table);
	else if (op == GN_OP_INVERT)
		solarize(b, 0);
	else
		turn_hue(b, magnitude);
}

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
		recolour(op, magnitude, b);
	}
}
