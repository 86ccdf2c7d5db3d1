#include "data/shard/shard_internal.h"

#include "data/shard/shard.h"
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static uint64_t shard_field_get(const struct gn_shard_row *row, enum gn_shard_field field)
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

static int write_attribute(hid_t file, const char *name, hid_t type, const void *value)
{
	hid_t space = H5Screate(H5S_SCALAR);
	hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	int failed = space < 0 || attribute < 0 || H5Awrite(attribute, type, value) < 0;

	if (attribute >= 0)
		H5Aclose(attribute);
	if (space >= 0)
		H5Sclose(space);
	return failed;
}

static int write_attributes(hid_t file, uint32_t classes)
{
	uint32_t version = GN_SHARD_VERSION;
	hid_t text = H5Tcopy(H5T_C_S1);
	int failed = text < 0 || H5Tset_size(text, strlen(GN_SHARD_FORMAT)) < 0 ||
		     H5Tset_strpad(text, H5T_STR_NULLPAD) < 0 || write_attribute(file, "format", text, GN_SHARD_FORMAT) ||
		     write_attribute(file, "version", H5T_STD_U32LE, &version) ||
		     write_attribute(file, "classes", H5T_STD_U32LE, &classes);

	if (text >= 0)
		H5Tclose(text);
	return failed;
}

/* Writes a contiguous dataset without time stamps, allocated at once; values NULL: not written. */
static int write_dataset(hid_t file, const char *name, hid_t type, hsize_t count, hid_t memory_type, const void *values,
		       uint64_t *offset)
{
	hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL), dataset = -1;
	int failed = creation < 0 || space < 0 || H5Pset_layout(creation, H5D_CONTIGUOUS) < 0 ||
		     H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) < 0 ||
		     H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(creation, 0) < 0;

	if (!failed)
		dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
	failed = failed || dataset < 0;
	if (!failed && values)
		failed = H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0;
	if (!failed && offset) {
		haddr_t address = H5Dget_offset(dataset);

		failed = address == HADDR_UNDEF;
		*offset = address;
	}
	if (dataset >= 0)
		H5Dclose(dataset);
	if (space >= 0)
		H5Sclose(space);
	if (creation >= 0)
		H5Pclose(creation);
	return failed;
}

static hid_t field_type(enum gn_shard_field field)
{
	switch (gn_shard_field_bytes(field)) {
	case 8:
		return H5T_STD_U64LE;
	case 4:
		return H5T_STD_U32LE;
	default:
		return H5T_STD_U16LE;
	}
}

static int write_rows(hid_t file, const struct gn_shard_row *rows, uint64_t count, struct gn_shard_layout *layout)
{
	uint64_t *values = malloc(count * sizeof *values);
	int failed = !values;

	for (enum gn_shard_field field = 0; field < GN_SHARD_FIELDS && !failed; field++) {
		for (uint64_t i = 0; i < count; i++)
			values[i] = shard_field_get(&rows[i], field);
		failed = write_dataset(file, gn_shard_field_name(field), field_type(field), count, H5T_NATIVE_UINT64,
				     values, field == GN_SHARD_CRC32C ? &layout->crc32c_offset : NULL);
	}
	free(values);
	return failed;
}

static int write_names(hid_t file, const char *const *names, uint64_t count, struct gn_shard_layout *layout)
{
	hid_t type = H5Tcopy(H5T_C_S1);
	size_t width = 1;
	char *block;
	int failed;

	for (uint64_t i = 0; i < count; i++)
		width = strlen(names[i]) > width ? strlen(names[i]) : width;
	block = calloc(count, width);
	for (uint64_t i = 0; block && i < count; i++)
		memcpy(block + i * width, names[i], strlen(names[i]));
	failed = !block || type < 0 || H5Tset_size(type, width) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
		 H5Tset_cset(type, H5T_CSET_UTF8) < 0 ||
		 write_dataset(file, "name", type, count, type, block, &layout->name_offset);
	layout->name_bytes = (uint32_t)width;
	if (type >= 0)
		H5Tclose(type);
	free(block);
	return failed;
}

static hid_t make_file(const char *path)
{
	hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = gn_shard_access(), file = -1;

	if (creation >= 0 && access >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
	    H5Pset_link_phase_change(creation, 16, 8) >= 0)
		file = H5Fcreate(path, H5F_ACC_EXCL, creation, access);
	if (access >= 0)
		H5Pclose(access);
	if (creation >= 0)
		H5Pclose(creation);
	return file;
}

/* HDF5 reports only that a write failed. */
static enum gn_status write_error(struct gn_err *err, int errnum, const char *path, uint64_t count)
{
	uint64_t free_bytes;

	if (errnum == ENOSPC || errnum == EDQUOT ||
	    (!gn_free_bytes(path, &free_bytes, NULL) && free_bytes < (count + 64) * 128))
		return gn_err_set(err, GN_ERR_NO_SPACE, "cannot write %s: no space left on the file system", path);
	return gn_shard_hdf5_error(err, GN_ERR_IO, path, "cannot write the shard");
}

static enum gn_status check_rows(const char *path, const struct gn_shard_row *rows, uint64_t count, uint32_t classes,
				 uint64_t *data_bytes, struct gn_err *err)
{
	uint64_t end = 0;

	if (!count || count > SIZE_MAX / GN_SHARD_NAME_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%s: a shard of %llu samples", path, (unsigned long long)count);
	for (uint64_t i = 0; i < count; i++) {
		if (rows[i].offset != end || !rows[i].length_bytes || rows[i].label >= classes)
			return gn_err_set(err, GN_ERR_USAGE, "%s: row %llu does not start where the previous row ends", path,
					  (unsigned long long)i);
		end += rows[i].length_bytes;
	}
	*data_bytes = end;
	return GN_OK;
}

enum gn_status gn_shard_write(const char *path, const struct gn_shard_row *rows, const char *const *names,
			      uint64_t count, uint32_t classes, struct gn_shard_layout *out, struct gn_err *err)
{
	struct gn_shard_layout layout = {.count = count, .classes = classes};
	enum gn_status status = check_rows(path, rows, count, classes, &layout.data_bytes, err);
	struct stat info;
	hid_t file;
	int failed;

	if (status)
		return status;
	gn_shard_quiet();
	errno = 0;
	file = make_file(path);
	if (file < 0)
		return errno ? gn_err_errno(err, errno, "cannot create %s", path)
			     : gn_shard_hdf5_error(err, GN_ERR_IO, path, "cannot create the shard");
	failed = write_attributes(file, classes) || write_rows(file, rows, count, &layout) ||
		 write_names(file, names, count, &layout) ||
		 write_dataset(file, "data", H5T_STD_U8LE, layout.data_bytes, -1, NULL, &layout.data_offset);
	if (H5Fclose(file) < 0)
		failed = 1;
	if (!failed && stat(path, &info))
		failed = 1;
	if (failed) {
		status = write_error(err, errno, path, count);
		unlink(path);
		return status;
	}
	layout.size_bytes = (uint64_t)info.st_size;
	*out = layout;
	return GN_OK;
}

#define BLOCK_BYTES (1u << 20)

static enum gn_status add_range(int fd, const char *path, uint64_t from, uint64_t to, unsigned char *block,
				struct gn_sha256 *sha, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	while (from < to && !status) {
		size_t len = to - from < BLOCK_BYTES ? (size_t)(to - from) : BLOCK_BYTES;

		status = gn_pread_full(fd, block, len, from, path, err);
		if (!status)
			gn_sha256_update(sha, block, len);
		from += len;
	}
	return status;
}

static enum gn_status digest_fd(int fd, const char *path, uint64_t data_offset, uint64_t data_bytes,
				unsigned char *block, struct gn_sha256 *sha, struct gn_err *err)
{
	enum gn_status status;
	struct stat info;

	if (fstat(fd, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	if (data_offset > (uint64_t)info.st_size || data_bytes > (uint64_t)info.st_size - data_offset)
		return gn_err_set(err, GN_ERR_DATA, "%s is truncated: it has only %lld bytes", path,
				  (long long)info.st_size);
	status = add_range(fd, path, 0, data_offset, block, sha, err);
	if (!status)
		status = add_range(fd, path, data_offset + data_bytes, (uint64_t)info.st_size, block, sha, err);
	return status;
}

enum gn_status gn_shard_head_digest(const char *path, uint64_t data_offset, uint64_t data_bytes,
				    char hex[GN_SHA256_HEX], struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct gn_sha256 *sha = NULL;
	unsigned char *block = NULL;
	enum gn_status status;

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open shard %s", path);
	status = gn_sha256_create(&sha, err);
	if (!status && !(block = malloc(BLOCK_BYTES)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);
	if (!status)
		status = digest_fd(fd, path, data_offset, data_bytes, block, sha, err);
	if (!status)
		gn_sha256_finish(sha, hex);
	free(block);
	gn_sha256_destroy(sha);
	close(fd);
	return status;
}
