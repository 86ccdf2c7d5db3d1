/* What a worker does with one image in the first pass: load or make it, turn PNG into JPEG, decode it to its end. */
#include "data/pack_parts.h"

#include "data/image.h"
#include "data/synthetic.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <stdlib.h>

static enum gn_status load_bytes(struct gn_pack_image *image, const struct gn_pack_options *options, struct gn_err *err)
{
	char path[PATH_MAX], *text;
	enum gn_status status;

	if (image->synthetic) {
		struct gn_synthetic_shape shape = {options->synthetic_classes, options->synthetic_height,
						   options->synthetic_width};

		return gn_synthetic_jpeg(&shape, options->seed, image->synthetic - 1, options->quality, &image->bytes,
					 &image->len_bytes, err);
	}
	status = gn_path_join(path, sizeof path, options->sources[image->source], image->name, err);
	if (!status)
		status = gn_file_load(path, GN_IMAGE_MAX_BYTES, &text, &image->len_bytes, err);
	if (status)
		return status;
	image->bytes = (unsigned char *)text;
	image->in_file = 1;
	return GN_OK;
}

static enum gn_status convert_png(struct gn_pack_image *image, const struct gn_pack_options *options, struct gn_err *err)
{
	unsigned char *jpeg;
	size_t len;
	enum gn_status status;

	if (options->refuse_png)
		return gn_err_set(err, GN_ERR_DATA, "a PNG file (--png convert would turn it into JPEG)");
	status = gn_image_png_to_jpeg(image->bytes, image->len_bytes, options->quality, &jpeg, &len, err);
	if (status)
		return status;
	free(image->bytes);
	image->bytes = jpeg;
	image->len_bytes = len;
	image->in_file = 0;
	return GN_OK;
}

enum gn_status gn_pack_image_check(struct gn_pack_image *image, const struct gn_pack_options *options,
				   struct gn_pack_item *out, struct gn_err *err)
{
	struct gn_image_info info;
	enum gn_status status = image->bytes ? GN_OK : load_bytes(image, options, err);

	if (!status && gn_image_sniff(image->bytes, image->len_bytes) == GN_IMAGE_PNG)
		status = convert_png(image, options, err);
	if (!status)
		status = gn_image_check_jpeg(image->bytes, image->len_bytes, &info, err);
	if (status)
		return status;
	out->length_bytes = (uint32_t)image->len_bytes;
	out->crc32c = gn_crc32c(0, image->bytes, image->len_bytes);
	out->width = info.width;
	out->height = info.height;
	return GN_OK;
}
