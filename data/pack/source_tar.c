#include "data/pack/source.h"

#include "data/sample/image.h"
#include "data/shard/names.h"
#include "data/shard/shard.h"
#include "src/base/file_kind.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (256u << 10)

/* An archive being walked. An inner archive reads from the outer one. */
struct tar {
	const struct gn_source_sink *sink;
	const char *path;	 /* of the outer archive, for messages */
	const char *inside;	 /* "", or the inner archive's path inside the outer one */
	struct archive *archive;
	struct gn_names *folders; /* folder entries */
	struct gn_names *holders; /* folders that are not empty */
	uint64_t entries;
};

/* Context of the read callback of an inner archive. */
struct inner {
	struct archive *outer;
	unsigned char *block;
};

static enum gn_status walk_entries(struct tar *t, struct gn_err *err);

static enum gn_status archive_error(const struct tar *t, struct gn_err *err)
{
	int errnum = archive_errno(t->archive);
	const char *text = archive_error_string(t->archive);

	/* libarchive uses -1 or EILSEQ and the like for format errors */
	if (errnum == ENOMEM)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory to read the archive", t->path);
	if (errnum == EIO || errnum == EACCES || errnum == ESTALE)
		return gn_err_errno(err, errnum, "cannot read %s", t->path);
	return gn_err_set(err, GN_ERR_DATA, "%s%s%s is not a tar archive, or damaged: %s", t->path,
			  t->inside[0] ? ", " : "", t->inside, text ? text : "unexpected end");
}

static enum gn_status refuse(const struct tar *t, const char *name, const char *why, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_DATA, "%s: entry '%s' %s: refused in an archive of images", t->path,
			  name, why);
}

/* Normalises "./", doubled and trailing slashes; refuses paths that leave the archive. */
static enum gn_status clean_name(const struct tar *t, const char *raw, char *out, size_t size, struct gn_err *err)
{
	size_t len = 0;

	if (raw[0] == '/')
		return refuse(t, raw, "has an absolute path", err);
	while (*raw) {
		size_t part = strcspn(raw, "/");

		if (part == 2 && !memcmp(raw, "..", 2))
			return refuse(t, raw, "has '..' in its path", err);
		if (part && !(part == 1 && raw[0] == '.')) {
			if (len + part + 2 > size)
				return refuse(t, raw, "has too long a path", err);
			if (len)
				out[len++] = '/';
			memcpy(out + len, raw, part);
			len += part;
		}
		raw += part;
		while (*raw == '/')
			raw++;
	}
	out[len] = '\0';
	return GN_OK;
}

/* Records that the folders above name are not empty. */
static enum gn_status note_holders(struct tar *t, const char *name, struct gn_err *err)
{
	char folder[GN_SHARD_NAME_MAX + 1];
	enum gn_status status = GN_OK;
	char *slash;

	snprintf(folder, sizeof folder, "%s", name);
	while (!status && (slash = strrchr(folder, '/'))) {
		*slash = '\0';
		if (gn_names_find(t->holders, folder, NULL))
			break;
		status = gn_names_add(t->holders, folder, NULL, err);
	}
	return status;
}

/* The path inside the outer archive. ending: "/" for a folder, so that it counts as a level. */
static enum gn_status full_name(const struct tar *t, const char *name, const char *ending, char *out, struct gn_err *err)
{
	if ((size_t)snprintf(out, GN_SHARD_NAME_MAX + 1, "%s%s%s%s", t->inside, t->inside[0] ? "/" : "", name, ending) >
	    GN_SHARD_NAME_MAX)
		return refuse(t, name, "has too long a path", err);
	return GN_OK;
}

static enum gn_status report_empty(const struct tar *t, const char *name, size_t inner_len, struct gn_err *err)
{
	char full[GN_SHARD_NAME_MAX + 1], buffer[GN_SHARD_NAME_MAX + 1];
	struct gn_source_levels levels;
	enum gn_status status = full_name(t, name, "/", full, err);

	if (status || !t->sink->empty)
		return status;
	levels = gn_source_levels_of(full, inner_len, buffer, sizeof buffer);
	return t->sink->empty(t->sink->context, name, &levels, err);
}

static enum gn_status read_bytes(struct tar *t, unsigned char *bytes, size_t len, const char *name, struct gn_err *err)
{
	size_t done = 0;

	while (done < len) {
		la_ssize_t n = archive_read_data(t->archive, bytes + done, len - done);

		if (n < 0)
			return archive_error(t, err);
		if (n == 0)
			return gn_err_set(err, GN_ERR_DATA, "%s: entry '%s' ends after %zu of %zu bytes", t->path, name,
					  done, len);
		done += (size_t)n;
	}
	return GN_OK;
}

static enum gn_status hand_over(struct tar *t, struct archive_entry *entry, const char *name, struct gn_err *err)
{
	char full[GN_SHARD_NAME_MAX + 1], buffer[GN_SHARD_NAME_MAX + 1];
	struct gn_source_file file = {.name = full};
	la_int64_t size = archive_entry_size(entry);
	enum gn_status status = full_name(t, name, "", full, err);

	if (status)
		return status;
	file.levels = gn_source_levels_of(full, strlen(t->inside), buffer, sizeof buffer);
	if (size < 0 || (uint64_t)size > GN_IMAGE_MAX_BYTES) {
		file.problem = "larger than an image may be (64 MiB)";
		return t->sink->file(t->sink->context, &file, err);
	}
	file.len_bytes = (size_t)size;
	file.bytes = malloc(file.len_bytes ? file.len_bytes : 1);
	if (!file.bytes)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for entry '%s'", t->path, name);
	status = read_bytes(t, file.bytes, file.len_bytes, name, err);
	if (status) {
		free(file.bytes);
		return status;
	}
	return t->sink->file(t->sink->context, &file, err);
}

/* to: what a hard link names, in this archive; NULL: the link is symbolic. */
static enum gn_status report_link(const struct tar *t, const char *name, const char *to, struct gn_err *err)
{
	char full[GN_SHARD_NAME_MAX + 1], buffer[GN_SHARD_NAME_MAX + 1], target[GN_SHARD_NAME_MAX + 1], clean[GN_SHARD_NAME_MAX + 1];
	struct gn_source_file file = {.name = full, .is_link = !to, .same_as = to ? target : NULL,
				      .problem = to ? NULL : "a symbolic link, which is not followed in an archive"};
	enum gn_status status = full_name(t, name, "", full, err);

	if (!status && to)
		status = clean_name(t, to, clean, sizeof clean, err);
	if (!status && to)
		status = full_name(t, clean, "", target, err);
	if (status)
		return status;
	file.levels = gn_source_levels_of(full, strlen(t->inside), buffer, sizeof buffer);
	return t->sink->file(t->sink->context, &file, err);
}

static int names_archive(const char *name)
{
	static const char *const endings[] = {".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst", ".tgz"};
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		size_t ending = strlen(endings[i]);

		if (len > ending && !strcmp(name + len - ending, endings[i]))
			return 1;
	}
	return 0;
}

static struct archive *new_archive(void)
{
	struct archive *a = archive_read_new();

	/* without filter_all: some filters execute programs */
	if (a && (archive_read_support_format_tar(a) != ARCHIVE_OK ||
		  archive_read_set_format_option(a, "tar", "read_concatenated_archives", "1") != ARCHIVE_OK || archive_read_support_filter_gzip(a) < ARCHIVE_WARN ||
		  archive_read_support_filter_bzip2(a) < ARCHIVE_WARN || archive_read_support_filter_xz(a) < ARCHIVE_WARN ||
		  archive_read_support_filter_zstd(a) < ARCHIVE_WARN)) {
		archive_read_free(a);
		return NULL;
	}
	return a;
}

static la_ssize_t read_inner(struct archive *a, void *argument, const void **block)
{
	struct inner *in = argument;
	la_ssize_t n = archive_read_data(in->outer, in->block, BLOCK_BYTES);

	if (n < 0)
		archive_set_error(a, archive_errno(in->outer), "%s", archive_error_string(in->outer));
	*block = in->block;
	return n;
}

static enum gn_status walk_inner(struct tar *outer, const char *name, struct gn_err *err)
{
	struct inner in = {.outer = outer->archive, .block = malloc(BLOCK_BYTES)};
	struct tar t = {.sink = outer->sink, .path = outer->path, .inside = name, .archive = new_archive()};
	enum gn_status status;

	if (!in.block || !t.archive)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for '%s'", outer->path, name);
	else if (archive_read_open(t.archive, &in, NULL, read_inner, NULL) != ARCHIVE_OK)
		status = archive_error(&t, err);
	else
		status = walk_entries(&t, err);
	if (!status && !t.entries)
		status = report_empty(outer, name, strlen(name), err);
	archive_read_free(t.archive);
	free(in.block);
	return status;
}

/* In the C locale libarchive may fail to convert a name; tries another form. */
static const char *entry_name(struct archive_entry *entry)
{
	const char *name = archive_entry_pathname(entry);

	return name ? name : archive_entry_pathname_utf8(entry);
}

/* Whether name, or a folder above it, is ignored. */
static int passes_over(const char *name, int is_folder)
{
	char path[GN_SHARD_NAME_MAX + 1], *part = path, *slash;

	snprintf(path, sizeof path, "%s", name);
	while ((slash = strchr(part, '/'))) {
		*slash = '\0';
		if (gn_source_passes_over(part, 1))
			return 1;
		part = slash + 1;
	}
	return gn_source_passes_over(part, is_folder);
}

static enum gn_status walk_entry(struct tar *t, struct archive_entry *entry, struct gn_err *err)
{
	const char *raw = entry_name(entry), *link = archive_entry_hardlink(entry);
	char name[GN_SHARD_NAME_MAX + 1];
	enum gn_status status;

	if (!raw)
		return refuse(t, "?", "has a name that cannot be read", err);
	status = clean_name(t, raw, name, sizeof name, err);
	if (status)
		return status;
	link = link ? link : archive_entry_hardlink_utf8(entry);
	if (!link && archive_entry_filetype(entry) != AE_IFREG && archive_entry_filetype(entry) != AE_IFDIR &&
	    archive_entry_filetype(entry) != AE_IFLNK)
		return refuse(t, raw, "is a device, pipe or socket", err);
	if (!name[0])
		return GN_OK;
	if (passes_over(name, archive_entry_filetype(entry) == AE_IFDIR)) {
		if (archive_entry_filetype(entry) != AE_IFDIR)
			++*t->sink->passed;
		return GN_OK;
	}
	if (archive_entry_filetype(entry) == AE_IFLNK)
		return report_link(t, name, NULL, err);
	t->entries++;
	status = note_holders(t, name, err);
	if (status)
		return status;
	if (archive_entry_filetype(entry) == AE_IFDIR)
		return gn_names_add(t->folders, name, NULL, err);
	/* pax may give a link its bytes, too */
	if (link && archive_entry_size(entry) <= 0)
		return report_link(t, name, link, err);
	if (names_archive(name)) {
		if (t->inside[0])
			return refuse(t, raw, "is an archive in an archive in an archive", err);
		return walk_inner(t, name, err);
	}
	return hand_over(t, entry, name, err);
}

static enum gn_status tell_empty_folders(const struct tar *t, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (uint32_t i = 0; i < gn_names_count(t->folders) && !status; i++) {
		const char *name = gn_names_get(t->folders, i);

		if (!gn_names_find(t->holders, name, NULL))
			status = report_empty(t, name, strlen(t->inside), err);
	}
	return status;
}

static enum gn_status walk_entries(struct tar *t, struct gn_err *err)
{
	enum gn_status status = gn_names_create(&t->folders, err);
	struct archive_entry *entry;

	if (!status)
		status = gn_names_create(&t->holders, err);
	while (!status) {
		int result = archive_read_next_header(t->archive, &entry);

		if (result == ARCHIVE_EOF)
			break;
		/* a warning concerns the characters of a name or an attribute: the contents are good */
		status = result != ARCHIVE_OK && result != ARCHIVE_WARN ? archive_error(t, err) : walk_entry(t, entry, err);
	}
	if (!status)
		status = tell_empty_folders(t, err);
	gn_names_destroy(t->folders);
	gn_names_destroy(t->holders);
	return status;
}

/* Of a compressed archive libarchive takes what follows another kind of data, or none, for its end. */
static enum gn_status check_end(const char *path, int64_t at, struct gn_err *err)
{
	FILE *f = fopen(path, "rb");
	int c = f && !fseeko(f, (off_t)at, SEEK_SET) ? fgetc(f) : EOF;

	while (c == 0)
		c = fgetc(f);
	if (f)
		fclose(f);
	return c == EOF ? GN_OK
			: gn_err_set(err, GN_ERR_DATA, "%s: behind its compressed data, from byte %lld on, there is something else: decompress "
				     "its parts, and pack these", path, (long long)at);
}

enum gn_status gn_source_walk_tar(const char *path, const struct gn_source_sink *sink, struct gn_err *err)
{
	struct tar t = {.sink = sink, .path = path, .inside = ""};
	const char *kind = gn_file_kind_at(path);
	enum gn_status status;

	if (kind)
		return gn_err_set(err, GN_ERR_DATA, "%s is %s, not a tar archive: unpack it, or make a tar of it", path, kind);
	t.archive = new_archive();
	if (!t.archive)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory to read the archive", path);
	if (archive_read_open_filename(t.archive, path, BLOCK_BYTES) != ARCHIVE_OK)
		status = archive_error(&t, err);
	else
		status = walk_entries(&t, err);
	if (!status)
		status = check_end(path, archive_filter_bytes(t.archive, -1), err);
	archive_read_free(t.archive);
	return status;
}
