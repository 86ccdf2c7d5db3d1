#include "data/shard/shard_internal.h"

#include <stdio.h>

static const struct {
	const char *name;
	size_t bytes;
} fields[GN_SHARD_FIELDS] = {
	[GN_SHARD_OFFSET] = {"offset", 8}, [GN_SHARD_LENGTH] = {"length", 4}, [GN_SHARD_LABEL] = {"label", 4},
	[GN_SHARD_CRC32C] = {"crc32c", 4}, [GN_SHARD_WIDTH] = {"width", 2},   [GN_SHARD_HEIGHT] = {"height", 2},
};

const char *gn_shard_field_name(enum gn_shard_field field)
{
	return fields[field].name;
}

size_t gn_shard_field_bytes(enum gn_shard_field field)
{
	return fields[field].bytes;
}

uint64_t gn_shard_field_get(const struct gn_shard_row *row, enum gn_shard_field field)
{
	switch (field) {
	case GN_SHARD_OFFSET:
		return row->offset;
	case GN_SHARD_LENGTH:
		return row->length_bytes;
	case GN_SHARD_LABEL:
		return row->label;
	case GN_SHARD_CRC32C:
		return row->crc32c;
	case GN_SHARD_WIDTH:
		return row->width;
	default:
		return row->height;
	}
}

void gn_shard_field_set(struct gn_shard_row *row, enum gn_shard_field field, uint64_t value)
{
	switch (field) {
	case GN_SHARD_OFFSET:
		row->offset = value;
		break;
	case GN_SHARD_LENGTH:
		row->length_bytes = (uint32_t)value;
		break;
	case GN_SHARD_LABEL:
		row->label = (uint32_t)value;
		break;
	case GN_SHARD_CRC32C:
		row->crc32c = (uint32_t)value;
		break;
	case GN_SHARD_WIDTH:
		row->width = (uint16_t)value;
		break;
	default:
		row->height = (uint16_t)value;
		break;
	}
}

hid_t gn_shard_access(void)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);

	if (access < 0)
		return access;
	/* large datasets start on a page, for direct and mapped reading */
	if (H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
	    H5Pset_alignment(access, 65536, 4096) < 0 || H5Pset_file_locking(access, 0, 1) < 0) {
		H5Pclose(access);
		return -1;
	}
	return access;
}

void gn_shard_quiet(void)
{
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static herr_t keep_first(unsigned n, const H5E_error2_t *entry, void *argument)
{
	(void)n;
	snprintf(argument, 160, "%s", entry->desc ? entry->desc : "");
	return 1;
}

enum gn_status gn_shard_hdf5_error(struct gn_err *err, enum gn_status status, const char *path, const char *what)
{
	char text[160] = "";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, text);
	H5Eclear2(H5E_DEFAULT);
	return gn_err_set(err, status, "%s: %s%s%s%s", path, what, text[0] ? " (HDF5: " : "", text,
			  text[0] ? ")" : "");
}
