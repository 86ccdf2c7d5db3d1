#include "data/pack/synthetic.h"

#include "data/sample/image.h"
#include "src/base/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define GRATINGS 2
#define TWO_PI 6.283185307179586

/* Wave numbers in cycles per image, and the amplitude per colour. */
struct grating {
	double along, down, phase;
	double colour[3];
};

void gn_synthetic_class_name(uint32_t class_id, char *out, size_t size)
{
	snprintf(out, size, "c%05u", class_id);
}

/* Independent of the seed: training and validation sets with different seeds have the same classes. */
static void class_gratings(uint32_t class_id, struct grating *g)
{
	struct gn_rng rng;

	gn_rng_init(&rng, 0, GN_RNG_SYNTHETIC, UINT32_MAX, class_id);
	for (int i = 0; i < GRATINGS; i++) {
		double angle = TWO_PI / 2 * gn_rng_uniform(&rng), cycles = 1.5 + 3.5 * gn_rng_uniform(&rng);

		g[i].along = cycles * cos(angle);
		g[i].down = cycles * sin(angle);
		for (int c = 0; c < 3; c++)
			g[i].colour[c] = 60 * gn_rng_uniform(&rng) - 30;
	}
}

static void draw(const struct gn_synthetic_shape *shape, struct grating *g, struct gn_rng *rng, unsigned char *pixels)
{
	double light = 118 + 20 * gn_rng_uniform(rng);

	for (int i = 0; i < GRATINGS; i++)
		g[i].phase = TWO_PI * gn_rng_uniform(rng);
	for (uint32_t y = 0; y < shape->height; y++) {
		for (uint32_t x = 0; x < shape->width; x++) {
			double wave[GRATINGS];
			uint32_t noise = gn_rng_u32(rng);

			for (int i = 0; i < GRATINGS; i++)
				wave[i] = sin(TWO_PI * (g[i].along * x / shape->width + g[i].down * y / shape->height) +
					      g[i].phase);
			for (int c = 0; c < 3; c++) {
				double value = light + ((noise >> (8 * c)) & 31) - 15.5;

				for (int i = 0; i < GRATINGS; i++)
					value += g[i].colour[c] * wave[i];
				*pixels++ = value <= 0 ? 0 : value >= 255 ? 255 : (unsigned char)(value + 0.5);
			}
		}
	}
}

enum gn_status gn_synthetic_jpeg(const struct gn_synthetic_shape *shape, uint64_t seed, uint64_t index, int quality,
				 unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_image_info info = {.width = (uint16_t)shape->width, .height = (uint16_t)shape->height,
				     .components = 3};
	unsigned char *pixels = malloc((size_t)shape->height * shape->width * 3);
	struct grating gratings[GRATINGS];
	enum gn_status status;
	struct gn_rng rng;

	if (!pixels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", shape->width, shape->height);
	class_gratings((uint32_t)(index % shape->classes), gratings);
	gn_rng_init(&rng, seed, GN_RNG_SYNTHETIC, 0, (uint32_t)index);
	draw(shape, gratings, &rng, pixels);
	status = gn_image_encode_jpeg(pixels, &info, quality, 0, jpeg, jpeg_bytes, err);
	free(pixels);
	return status;
}
