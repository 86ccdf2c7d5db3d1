#include "data/shard_hdf5.h"

#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows lie one behind the other, so that a wrong offset or length cannot pass as another sample's bytes. */
static enum gn_status check_rows(const struct gn_shard *s, struct gn_err *err)
{
	uint64_t end = 0;

	for (uint64_t i = 0; i < s->layout.count; i++) {
		const struct gn_shard_row *row = &s->rows[i];
		const char *what = NULL;

		if (row->offset < end)
			what = "overlaps the sample before it";
		else if (row->offset > s->layout.data_bytes ||
			 row->length_bytes > s->layout.data_bytes - row->offset)
			what = "reaches beyond the end of the data";
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
		return gn_err_set(err, GN_ERR_DATA, "%s has only %lld bytes: not a shard, or cut short", s->path,
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
		return gn_shard_hdf5_error(err, GN_ERR_DATA, s->path, "not readable as HDF5: cut short or damaged");
	status = gn_shard_read_tables(file, s, err);
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
	if (status) {
		gn_shard_close(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

void gn_shard_close(struct gn_shard *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->rows);
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

enum gn_status gn_shard_read(const struct gn_shard *s, uint64_t row, void *buffer, struct gn_err *err)
{
	const struct gn_shard_row *r = &s->rows[row];
	char name[256];
	enum gn_status status = gn_pread_full(s->fd, buffer, r->length_bytes, s->layout.data_offset + r->offset, s->path,
					      err);

	if (status)
		return status;
	if (gn_crc32c(0, buffer, r->length_bytes) == r->crc32c)
		return GN_OK;
	gn_shard_name(s, row, name, sizeof name);
	return gn_err_set(err, GN_ERR_DATA, "%s: sample %llu (%s) fails its checksum: the shard is damaged, stage or "
			  "pack it again", s->path, (unsigned long long)row, name);
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
