/* Any bytes as an archive of images: no name that comes out of it leads out of a folder. */
#include "data/image.h"
#include "data/source.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void check_name(const char *name)
{
	size_t len = strlen(name);

	if (!len || name[0] == '/' || name[len - 1] == '/' || !strcmp(name, "..") || !strncmp(name, "../", 3) ||
	    strstr(name, "/../") || strstr(name, "//") || (len > 2 && !strcmp(name + len - 3, "/..")))
		abort();
}

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	(void)context;
	(void)err;
	check_name(file->name);
	if (file->class_name && (!file->class_name[0] || strchr(file->class_name, '/')))
		abort();
	if (!file->problem && (!file->bytes || file->len_bytes > GN_IMAGE_MAX_BYTES))
		abort();
	free(file->bytes);
	return GN_OK;
}

static enum gn_status take_empty(void *context, const char *name, const char *class_name, struct gn_err *err)
{
	(void)context;
	(void)err;
	check_name(name);
	if (!class_name || strchr(class_name, '/'))
		abort();
	return GN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	const struct gn_source_sink sink = {NULL, take_file, take_empty};
	struct gn_err err;

	must_be_good(gn_source_walk_tar(scratch_file(data, len_bytes), &sink, &err), &err);
	return 0;
}
