#include "data/sample/decode.h"
#include "data/sample/image.h"

#include <stdlib.h>
#include <string.h>

/* The pixel of an image of width x height that comes to (x, y): EXIF 2.3, 4.6.4, tag Orientation. */
static void source_of(int orientation, uint32_t width, uint32_t height, uint32_t x, uint32_t y, uint32_t *from_x, uint32_t *from_y)
{
	const uint32_t across = orientation >= 5 ? y : x, down = orientation >= 5 ? x : y;
	const int mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
	const int mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;

	*from_x = mirrors_x ? width - 1 - across : across;
	*from_y = mirrors_y ? height - 1 - down : down;
}

static void turn(const struct gn_pixels *from, int orientation, const struct gn_image_info *to, unsigned char *out)
{
	for (uint32_t y = 0; y < to->height; y++)
		for (uint32_t x = 0; x < to->width; x++, out += to->components) {
			uint32_t from_x, from_y;

			source_of(orientation, from->width, from->height, x, y, &from_x, &from_y);
			memcpy(out, from->data + from_y * from->stride_bytes + (size_t)from_x * to->components, to->components);
		}
}

enum gn_status gn_image_turn_jpeg(const void *data, size_t len_bytes, int orientation, int quality, unsigned char **jpeg,
				  size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_region all = {0};
	struct gn_image_info info;
	unsigned char *turned = NULL;
	struct gn_decoder *d = NULL;
	struct gn_pixels pixels;
	enum gn_status status = gn_image_check_jpeg(data, len_bytes, &info, err);

	if (!status)
		status = gn_decoder_create(&d, err);
	if (!status)
		status = gn_decoder_open(d, data, len_bytes, &all.width, &all.height, err);
	if (!status)
		status = gn_decoder_read(d, &all, 1, info.components, &pixels, err);
	if (!status) {
		turned = malloc((size_t)all.width * all.height * info.components);
		if (!turned)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", all.width, all.height);
	}
	if (!status) {
		info.width = (uint16_t)(orientation >= 5 ? all.height : all.width);
		info.height = (uint16_t)(orientation >= 5 ? all.width : all.height);
		turn(&pixels, orientation, &info, turned);
		status = gn_image_encode_jpeg(turned, &info, quality, 1, jpeg, jpeg_bytes, err);
	}
	free(turned);
	gn_decoder_destroy(d);
	return status;
}
