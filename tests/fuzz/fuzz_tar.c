/* Any bytes as an archive of images: no name that comes out of it leads out of a folder. */
#include "data/pack/source.h"
#include "data/sample/image.h"
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

static void check_levels(const struct gn_source_levels *levels)
{
	if ((levels->first && (!levels->first[0] || strchr(levels->first, '/'))) ||
	    (levels->second && (!levels->first || !levels->second[0] || strchr(levels->second, '/'))))
		abort();
}

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	(void)context;
	(void)err;
	check_name(file->name);
	check_levels(&file->levels);
	if (!file->problem && (!file->bytes || file->len_bytes > GN_IMAGE_MAX_BYTES))
		abort();
	free(file->bytes);
	return GN_OK;
}

static enum gn_status take_empty(void *context, const char *name, const struct gn_source_levels *levels, struct gn_err *err)
{
	(void)context;
	(void)err;
	check_name(name);
	if (!levels->first)
		abort();
	check_levels(levels);
	return GN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	uint64_t passed = 0;
	const struct gn_source_sink sink = {NULL, take_file, take_empty, &passed};
	struct gn_err err;

	must_be_good(gn_source_walk_tar(scratch_file(data, len_bytes), &sink, &err), &err);
	return 0;
}
