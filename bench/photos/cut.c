/* cut OUT COUNT SEED FILE...: cuts COUNT photos of about 500x375 pixels, as ImageNet's are, out of large JPEG files, one folder
 * of OUT for each file: an eighth smaller to an eighth larger, a quarter of them upright, at random places and scales, quality 95.
 * The same files, COUNT and SEED give the same photos. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

struct image {
	uint8_t *data; /* RGB */
	uint32_t width, height;
};

static void die(const char *what, const char *path)
{
	fprintf(stderr, "cut: %s %s\n", what, path);
	exit(1);
}

/* splitmix64: public domain, Sebastiano Vigna. */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
	return (double)(draw(state) >> 11) * 0x1p-53;
}

/* libjpeg ends the program when something is wrong: fine here. */
static struct image load(const char *path)
{
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	struct image image;
	FILE *file = fopen(path, "rb");

	if (!file)
		die(strerror(errno), path);
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&jpeg);
	jpeg_stdio_src(&jpeg, file);
	jpeg_read_header(&jpeg, TRUE);
	jpeg.out_color_space = JCS_RGB;
	jpeg_start_decompress(&jpeg);
	image = (struct image){malloc((size_t)jpeg.output_width * jpeg.output_height * 3), jpeg.output_width, jpeg.output_height};
	if (!image.data)
		die("no memory for", path);
	while (jpeg.output_scanline < jpeg.output_height) {
		JSAMPROW row = image.data + (size_t)jpeg.output_scanline * image.width * 3;

		jpeg_read_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_decompress(&jpeg);
	jpeg_destroy_decompress(&jpeg);
	fclose(file);
	return image;
}

/* Means over the boxes that pixels of the photo cover. */
static void shrink(const struct image *from, double left, double top, double scale, struct image *to)
{
	for (uint32_t y = 0; y < to->height; y++)
		for (uint32_t x = 0; x < to->width; x++) {
			uint32_t x0 = (uint32_t)(left + x * scale), x1 = (uint32_t)(left + (x + 1) * scale);
			uint32_t y0 = (uint32_t)(top + y * scale), y1 = (uint32_t)(top + (y + 1) * scale);
			uint64_t sum[3] = {0}, count = 0;

			for (uint32_t v = y0; v < (y1 > y0 ? y1 : y0 + 1) && v < from->height; v++)
				for (uint32_t u = x0; u < (x1 > x0 ? x1 : x0 + 1) && u < from->width; u++, count++)
					for (int c = 0; c < 3; c++)
						sum[c] += from->data[((size_t)v * from->width + u) * 3 + (size_t)c];
			for (int c = 0; c < 3; c++)
				to->data[((size_t)y * to->width + x) * 3 + (size_t)c] = (uint8_t)(count ? sum[c] / count : 0);
		}
}

static void save(const char *path, const struct image *image)
{
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	FILE *file = fopen(path, "wb");

	if (!file)
		die(strerror(errno), path);
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_stdio_dest(&jpeg, file);
	jpeg.image_width = image->width;
	jpeg.image_height = image->height;
	jpeg.input_components = 3;
	jpeg.in_color_space = JCS_RGB;
	jpeg_set_defaults(&jpeg);
	jpeg_set_quality(&jpeg, 95, TRUE);
	jpeg_start_compress(&jpeg, TRUE);
	while (jpeg.next_scanline < jpeg.image_height) {
		JSAMPROW row = image->data + (size_t)jpeg.next_scanline * image->width * 3;

		jpeg_write_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	if (fclose(file))
		die(strerror(errno), path);
}

static void cut(const struct image *from, const char *folder, long number, uint64_t seed)
{
	uint64_t state = seed * 0x2545f4914f6cdd1d + (uint64_t)number;
	double size = 0.875 + 0.25 * uniform(&state), most;
	int upright = uniform(&state) < 0.25;
	struct image photo = {.width = (uint32_t)((upright ? 375 : 500) * size), .height = (uint32_t)((upright ? 500 : 375) * size)};
	double scale;
	char path[4096];

	most = fmin((double)from->width / photo.width, (double)from->height / photo.height);
	/* From half of what there is (in powers) to all of it; an image that is too small is enlarged. */
	scale = most > 1 ? pow(most, 0.5 + 0.5 * uniform(&state)) : most;
	photo.data = malloc((size_t)photo.width * photo.height * 3);
	if (!photo.data)
		die("no memory for a photo of", folder);
	shrink(from, uniform(&state) * (from->width - photo.width * scale), uniform(&state) * (from->height - photo.height * scale),
	       scale, &photo);
	snprintf(path, sizeof path, "%s/%06ld.jpg", folder, number);
	save(path, &photo);
	free(photo.data);
}

int main(int argc, char **argv)
{
	long count = argc > 4 ? atol(argv[2]) : 0;

	if (count < 1) {
		fprintf(stderr, "cut OUT COUNT SEED FILE...\n");
		return 2;
	}
	for (int f = 4; f < argc; f++) {
		struct image image = load(argv[f]);
		char folder[4000];

		snprintf(folder, sizeof folder, "%s/%03d", argv[1], f - 4);
		if (mkdir(folder, 0777) && errno != EEXIST)
			die(strerror(errno), folder);
		for (long i = f - 4; i < count; i += argc - 4)
			cut(&image, folder, i, strtoull(argv[3], NULL, 10));
		free(image.data);
	}
	return 0;
}
