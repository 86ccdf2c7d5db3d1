#include "data/shard/shard_internal.h"

#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct gn_shard {
	char *path;
	int fd;
	char *copy; /* with is_copied: what fd reads */
	atomic_int is_copied;
	struct gn_shard_layout layout;
	struct gn_shard_row *rows;
};

/* Expected and found properties of an HDF5 dataset. */
struct column {
	const char *name;
	H5T_class_t class;
	size_t element_bytes; /* 0: any, at most GN_SHARD_NAME_MAX */
	uint64_t count;	      /* 0: any */
	hid_t dataset;
	uint64_t offset;
};

static enum gn_status get_attribute(hid_t file, const char *path, const char *name, H5T_class_t class, size_t max_bytes,
				    hid_t memory_type, void *value, struct gn_err *err)
{
	hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), type = -1, space = -1;
	enum gn_status status = GN_OK;

	if (attribute < 0) {
		H5Eclear2(H5E_DEFAULT);
		return gn_err_set(err, GN_ERR_DATA, "%s is an HDF5 file but no Gannet shard: attribute '%s' is missing",
				  path, name);
	}
	type = H5Aget_type(attribute);
	space = H5Aget_space(attribute);
	if (type < 0 || space < 0 || H5Tget_class(type) != class || H5Tget_size(type) > max_bytes ||
	    H5Sget_simple_extent_npoints(space) != 1 || (class == H5T_STRING && H5Tis_variable_str(type) != 0))
		status = gn_err_set(err, GN_ERR_DATA, "%s is an HDF5 file but no Gannet shard: attribute '%s' has "
				    "another type", path, name);
	else if (H5Aread(attribute, class == H5T_STRING ? type : memory_type, value) < 0)
		status = gn_shard_hdf5_error(err, GN_ERR_DATA, path, "cannot read an attribute");
	if (space >= 0)
		H5Sclose(space);
	if (type >= 0)
		H5Tclose(type);
	H5Aclose(attribute);
	return status;
}

static enum gn_status check_attributes(hid_t file, const char *path, uint32_t *classes, struct gn_err *err)
{
	char format[64] = "";
	uint32_t version = 0, count = 0;
	enum gn_status status = get_attribute(file, path, "format", H5T_STRING, sizeof format - 1, -1, format, err);

	if (!status && strcmp(format, GN_SHARD_FORMAT))
		return gn_err_set(err, GN_ERR_DATA, "%s is an HDF5 file but no Gannet shard: its format is '%s'", path,
				  format);
	if (!status)
		status = get_attribute(file, path, "version", H5T_INTEGER, 8, H5T_NATIVE_UINT32, &version, err);
	if (!status && version != GN_SHARD_VERSION)
		return gn_err_set(err, GN_ERR_DATA, "%s has version %u of the shard format; this program reads %d", path,
				  version, GN_SHARD_VERSION);
	if (!status)
		status = get_attribute(file, path, "classes", H5T_INTEGER, 8, H5T_NATIVE_UINT32, &count, err);
	if (!status && !count)
		return gn_err_set(err, GN_ERR_DATA, "%s has no classes", path);
	if (!status)
		*classes = count;
	return status;
}

/* External links, filters or external files would make HDF5 read unchecked data. */
static int is_contiguous(hid_t dataset)
{
	hid_t creation = H5Dget_create_plist(dataset);
	int plain = creation >= 0 && H5Pget_layout(creation) == H5D_CONTIGUOUS && H5Pget_nfilters(creation) == 0 &&
		    H5Pget_external_count(creation) == 0;

	if (creation >= 0)
		H5Pclose(creation);
	return plain;
}

static int type_fits(hid_t dataset, const struct column *c, size_t *element_bytes)
{
	hid_t type = H5Dget_type(dataset);
	int fits = 0;

	if (type < 0)
		return 0;
	*element_bytes = H5Tget_size(type);
	if (H5Tget_class(type) == c->class) {
		if (c->class == H5T_INTEGER)
			fits = *element_bytes == c->element_bytes && H5Tget_sign(type) == H5T_SGN_NONE &&
			       H5Tget_precision(type) == 8 * c->element_bytes;
		else
			fits = H5Tis_variable_str(type) == 0 && *element_bytes > 0 &&
			       *element_bytes <= GN_SHARD_NAME_MAX;
	}
	H5Tclose(type);
	return fits;
}

static int length_of(hid_t dataset, uint64_t *count)
{
	hid_t space = H5Dget_space(dataset);
	hsize_t size = 0;
	int fits = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
		   H5Sget_simple_extent_dims(space, &size, NULL) == 1 && size > 0;

	if (space >= 0)
		H5Sclose(space);
	*count = size;
	return fits;
}

static enum gn_status check_column(struct column *c, const char *path, uint64_t size_bytes, struct gn_err *err)
{
	size_t element_bytes;
	uint64_t count;
	haddr_t offset;

	if (!type_fits(c->dataset, c, &element_bytes) || !length_of(c->dataset, &count))
		return gn_err_set(err, GN_ERR_DATA, "%s: dataset '%s' has another type or shape than a shard's", path,
				  c->name);
	if (!is_contiguous(c->dataset))
		return gn_err_set(err, GN_ERR_DATA, "%s: dataset '%s' is not stored in one contiguous piece", path,
				  c->name);
	if (c->count && count != c->count)
		return gn_err_set(err, GN_ERR_DATA, "%s: dataset '%s' has %llu elements for %llu samples", path, c->name,
				  (unsigned long long)count, (unsigned long long)c->count);
	offset = H5Dget_offset(c->dataset);
	if (offset == HADDR_UNDEF || offset > size_bytes || count > (size_bytes - offset) / element_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s: dataset '%s' lies beyond the end of the file", path, c->name);
	c->count = count;
	c->offset = offset;
	c->element_bytes = element_bytes;
	return GN_OK;
}

/* Opens and checks a dataset. The caller closes c->dataset. */
static enum gn_status open_column(hid_t file, const char *path, uint64_t size_bytes, struct column *c,
				  struct gn_err *err)
{
	enum gn_status status;
	H5L_info_t link;

	if (H5Lget_info(file, c->name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD ||
	    (c->dataset = H5Dopen2(file, c->name, H5P_DEFAULT)) < 0) {
		H5Eclear2(H5E_DEFAULT);
		return gn_err_set(err, GN_ERR_DATA, "%s: dataset '%s' is missing", path, c->name);
	}
	status = check_column(c, path, size_bytes, err);
	if (status) {
		H5Dclose(c->dataset);
		c->dataset = -1;
	}
	return status;
}

static enum gn_status read_field(hid_t file, struct gn_shard *s, enum gn_shard_field field, uint64_t **values,
				 struct gn_err *err)
{
	struct column c = {gn_shard_field_name(field), H5T_INTEGER, gn_shard_field_bytes(field), s->layout.count, -1, 0};
	enum gn_status status = open_column(file, s->path, s->layout.size_bytes, &c, err);

	if (status)
		return status;
	if (!s->rows) {
		s->layout.count = c.count;
		s->rows = calloc(c.count, sizeof *s->rows);
		*values = calloc(c.count, sizeof **values);
	}
	if (!s->rows || !*values)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for %llu samples", s->path,
				    (unsigned long long)c.count);
	else if (H5Dread(c.dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, *values) < 0)
		status = gn_shard_hdf5_error(err, GN_ERR_DATA, s->path, "cannot read a dataset of rows");
	else
		for (uint64_t i = 0; i < c.count; i++)
			gn_shard_field_set(&s->rows[i], field, (*values)[i]);
	if (field == GN_SHARD_CRC32C)
		s->layout.crc32c_offset = c.offset;
	H5Dclose(c.dataset);
	return status;
}

static enum gn_status read_rows(hid_t file, struct gn_shard *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	uint64_t *values = NULL;

	for (enum gn_shard_field field = 0; field < GN_SHARD_FIELDS && !status; field++)
		status = read_field(file, s, field, &values, err);
	free(values);
	return status;
}

static enum gn_status find_blobs(hid_t file, struct gn_shard *s, struct gn_err *err)
{
	struct column name = {"name", H5T_STRING, 0, s->layout.count, -1, 0};
	struct column data = {"data", H5T_INTEGER, 1, 0, -1, 0};
	enum gn_status status = open_column(file, s->path, s->layout.size_bytes, &name, err);

	if (status)
		return status;
	H5Dclose(name.dataset);
	status = open_column(file, s->path, s->layout.size_bytes, &data, err);
	if (status)
		return status;
	H5Dclose(data.dataset);
	s->layout.name_offset = name.offset;
	s->layout.name_bytes = (uint32_t)name.element_bytes;
	s->layout.data_offset = data.offset;
	s->layout.data_bytes = data.count;
	return GN_OK;
}

/* Rows must be contiguous, so that a wrong offset or length cannot read another sample's bytes. */
static enum gn_status check_rows(const struct gn_shard *s, struct gn_err *err)
{
	uint64_t end = 0;

	for (uint64_t i = 0; i < s->layout.count; i++) {
		const struct gn_shard_row *row = &s->rows[i];
		const char *what = NULL;

		if (row->offset < end)
			what = "overlaps the previous sample";
		else if (row->offset > s->layout.data_bytes ||
			 row->length_bytes > s->layout.data_bytes - row->offset)
			what = "extends beyond the end of the data";
		else if (!row->length_bytes || !row->width || !row->height)
			what = "is empty";
		else if (row->label >= s->layout.classes)
			what = "has a label beyond the last class";
		if (what)
			return gn_err_set(err, GN_ERR_DATA, "%s: sample %llu %s (offset %llu, %u bytes, label %u): the "
					  "shard is damaged, stage or pack it again", s->path, (unsigned long long)i,
					  what, (unsigned long long)row->offset, row->length_bytes, row->label);
		end = row->offset + row->length_bytes;
	}
	return GN_OK;
}

static enum gn_status open_file(struct gn_shard *s, struct gn_err *err)
{
	static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
	unsigned char found[sizeof magic];
	enum gn_status status;
	struct stat info;

	s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (s->fd < 0)
		return gn_err_errno(err, errno, "cannot open shard %s%s", s->path,
				    errno == EMFILE ? " (raise ulimit -n, or pack with a larger --shard-bytes)" : "");
	if (fstat(s->fd, &info))
		return gn_err_errno(err, errno, "cannot stat %s", s->path);
	if (!S_ISREG(info.st_mode))
		return gn_err_set(err, GN_ERR_DATA, "%s is not a regular file", s->path);
	s->layout.size_bytes = (uint64_t)info.st_size;
	if (s->layout.size_bytes < sizeof magic)
		return gn_err_set(err, GN_ERR_DATA, "%s has only %lld bytes: not a shard, or truncated", s->path,
				  (long long)info.st_size);
	status = gn_pread_full(s->fd, found, sizeof found, 0, s->path, err);
	if (status)
		return status;
	if (memcmp(found, magic, sizeof magic))
		return gn_err_set(err, GN_ERR_DATA, "%s is not an HDF5 file", s->path);
	return GN_OK;
}

static enum gn_status open_hdf5(struct gn_shard *s, struct gn_err *err)
{
	hid_t access = gn_shard_access();
	hid_t file = access < 0 ? -1 : H5Fopen(s->path, H5F_ACC_RDONLY, access);
	enum gn_status status;

	if (access >= 0)
		H5Pclose(access);
	if (file < 0)
		return gn_shard_hdf5_error(err, GN_ERR_DATA, s->path, "not readable as HDF5: truncated or damaged");
	status = check_attributes(file, s->path, &s->layout.classes, err);
	if (!status)
		status = read_rows(file, s, err);
	if (!status)
		status = find_blobs(file, s, err);
	H5Fclose(file);
	return status ? status : check_rows(s, err);
}

enum gn_status gn_shard_open(const char *path, struct gn_shard **out, struct gn_err *err)
{
	struct gn_shard *s = calloc(1, sizeof *s);
	enum gn_status status;

	if (!s || !(s->path = strdup(path))) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to open %s", path);
	}
	s->fd = -1;
	gn_shard_quiet();
	status = open_file(s, err);
	if (!status)
		status = open_hdf5(s, err);
	if (status)
		gn_shard_close(s);
	else
		*out = s;
	return status;
}

void gn_shard_close(struct gn_shard *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->rows);
	free(s->copy);
	free(s->path);
	free(s);
}

const struct gn_shard_layout *gn_shard_layout(const struct gn_shard *s)
{
	return &s->layout;
}

const struct gn_shard_row *gn_shard_rows(const struct gn_shard *s)
{
	return s->rows;
}

const char *gn_shard_path(const struct gn_shard *s)
{
	return s->path;
}

/* The descriptor keeps its number: a read that has begun ends in the file where it began. */
enum gn_status gn_shard_use_copy(struct gn_shard *s, const char *path, struct gn_err *err)
{
	char *copy = strdup(path);
	enum gn_status status = copy ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to open %s", path);
	struct stat info;
	int fd = -1;

	if (!status && (fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0)
		status = gn_err_errno(err, errno, "cannot open shard %s", path);
	if (!status && (fstat(fd, &info) || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != s->layout.size_bytes))
		status = gn_err_set(err, GN_ERR_DATA, "%s is no copy of %s", path, s->path);
	if (!status && dup3(fd, s->fd, O_CLOEXEC) < 0)
		status = gn_err_errno(err, errno, "cannot read %s in place of %s", path, s->path);
	if (fd >= 0)
		close(fd);
	if (status) {
		free(copy);
		return status;
	}
	s->copy = copy;
	atomic_store(&s->is_copied, 1);
	return GN_OK;
}

int gn_shard_is_copied(const struct gn_shard *s)
{
	return atomic_load(&s->is_copied);
}

static const char *read_path(const struct gn_shard *s)
{
	return atomic_load(&s->is_copied) ? s->copy : s->path;
}

enum gn_status gn_shard_read(const struct gn_shard *s, uint64_t row, void *buffer, struct gn_err *err)
{
	const struct gn_shard_row *r = &s->rows[row];
	char name[256];
	enum gn_status status = gn_pread_full(s->fd, buffer, r->length_bytes, s->layout.data_offset + r->offset, read_path(s),
					      err);

	if (status)
		return status;
	if (gn_crc32c(0, buffer, r->length_bytes) == r->crc32c)
		return GN_OK;
	gn_shard_name(s, row, name, sizeof name);
	return gn_err_set(err, GN_ERR_DATA, "%s: sample %llu (%s) fails its checksum: the shard is damaged, stage or "
			  "pack it again", read_path(s), (unsigned long long)row, name);
}

void gn_shard_name(const struct gn_shard *s, uint64_t row, char *out, size_t size)
{
	size_t len = s->layout.name_bytes < size ? s->layout.name_bytes : size - 1;

	if (gn_pread_full(s->fd, out, len, s->layout.name_offset + row * s->layout.name_bytes, s->path, NULL)) {
		snprintf(out, size, "?");
		return;
	}
	out[len] = '\0';
}
