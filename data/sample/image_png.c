#include "data/sample/image.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

enum gn_status gn_image_encode_png(const unsigned char *pixels, uint32_t width, uint32_t height, int components, unsigned char **out,
				   size_t *len_bytes, struct gn_err *err)
{
	png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height,
			   .format = components == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
	png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
	unsigned char *bytes = malloc(size);

	if (!bytes)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PNG file of %u x %u pixels", width, height);
	if (!png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL)) {
		free(bytes);
		return gn_err_set(err, GN_ERR_FAILED, "libpng cannot write an image of %u x %u pixels: %s", width, height, image.message);
	}
	*out = bytes;
	*len_bytes = size;
	return GN_OK;
}
