/* Any bytes as a safetensors file: refused, or every tensor it claims can be read. */
#include "src/train/model/safetensors.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct gn_safetensors *file;
	struct gn_err err;
	enum gn_status status;

	setenv("GANNET_ALLOW_NONFINITE", "1", 1); /* else what is read may still be refused for its values */
	status = gn_safetensors_open(scratch_file(data, len_bytes), NULL, &file, &err);

	must_be_good(status, &err);
	if (status)
		return 0;
	for (size_t i = 0; i < gn_safetensors_count(file); i++) {
		const struct gn_tensor_entry *e = gn_safetensors_entry(file, i);
		void *tensor;

		/* What was accepted must lie in the file. */
		if (e->offset + e->len_bytes > len_bytes)
			abort();
		tensor = malloc(e->len_bytes + 1);
		if (!tensor || gn_safetensors_read(file, e, tensor, NULL))
			abort();
		free(tensor);
	}
	gn_safetensors_close(file);
	return 0;
}
