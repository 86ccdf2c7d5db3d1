/* Any bytes as a file of labels: refused, or every line is found again under its own name. */
#include "data/pack/labels.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct gn_labels *l;
	struct gn_err err;
	enum gn_status status = gn_labels_parse((const char *)data, len_bytes, "fuzz", &l, &err);

	must_be_good(status, &err);
	if (status)
		return 0;
	if (!gn_labels_count(l))
		abort();
	for (uint32_t i = 0; i < gn_labels_count(l); i++) {
		const char *image = gn_labels_image(l, i);
		uint32_t index;

		if (!image[0] || strchr(image, '\n') || !gn_labels_class(l, i)[0] || strchr(gn_labels_class(l, i), '\n') ||
		    !gn_labels_find(l, image, &index) || index != i)
			abort();
	}
	gn_labels_destroy(l);
	return 0;
}
