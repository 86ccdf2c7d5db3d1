/* Any bytes as a safetensors file: opening and reading every tensor ends in a status. */
#include "src/train/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	char path[64];
	struct gn_safetensors *file;
	int fd = memfd_create("fuzz", 0);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!gn_safetensors_open(path, &file, NULL)) {
		for (size_t i = 0; i < gn_safetensors_count(file); i++) {
			const struct gn_tensor_entry *e = gn_safetensors_entry(file, i);
			void *tensor = malloc(e->len_bytes + 1);

			if (!tensor || gn_safetensors_read(file, e, tensor, NULL))
				abort();
			free(tensor);
		}
		gn_safetensors_close(file);
	}
	close(fd);
	return 0;
}
