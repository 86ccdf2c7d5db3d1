/* Any bytes as an image, as packing looks at them. */
#include "data/sample/image.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct gn_image_info info = {0};
	unsigned char *jpeg = NULL;
	size_t jpeg_bytes = 0;
	enum gn_status status;
	struct gn_err err;

	gn_image_orientation(data, len_bytes);
	if (gn_image_sniff(data, len_bytes) == GN_IMAGE_PNG) {
		status = gn_image_png_to_jpeg(data, len_bytes, 90, &jpeg, &jpeg_bytes, &err);
	} else if (gn_image_is_cmyk(data, len_bytes)) {
		status = gn_image_cmyk_to_jpeg(data, len_bytes, 90, &jpeg, &jpeg_bytes, &err);
	} else {
		status = gn_image_check_jpeg(data, len_bytes, &info, &err);
		if (!status && (!info.width || !info.height))
			abort();
	}
	/* What we encode ourselves must pass our own check. */
	if (jpeg && gn_image_check_jpeg(jpeg, jpeg_bytes, &info, &err))
		abort();
	must_be_good(status, &err);
	free(jpeg);
	return 0;
}
