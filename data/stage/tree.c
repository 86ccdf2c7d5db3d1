#include "data/stage/tree.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_FILE_BYTES ((uint64_t)64 << 10)

/* Whether a path stays below the root: "", or "/name/name". */
static int is_below(const char *path)
{
	for (size_t len; *path; path += len) {
		if (*path++ != '/')
			return 0;
		len = strcspn(path, "/");
		if (!len || (len <= 2 && !strncmp(path, "..", len)))
			return 0;
	}
	return 1;
}

/* Whether the entry at `at` is complete and well formed; sets the entry. */
static size_t parse_entry(const unsigned char *at, size_t left, size_t index, struct gn_tree_entry *e)
{
	struct gn_tree_record r;
	size_t need = sizeof r;
	const char *text = (const char *)at + sizeof r;

	if (left < need)
		return 0;
	memcpy(&r, at, sizeof r);
	if (!r.path_bytes || !r.target_bytes || r.path_bytes > PATH_MAX || r.target_bytes > PATH_MAX)
		return 0;
	need += r.path_bytes + r.target_bytes + r.extent_count * sizeof(struct gn_tree_extent);
	if (left < need || text[r.path_bytes - 1] || text[r.path_bytes + r.target_bytes - 1] ||
	    strlen(text) + 1 != r.path_bytes || !is_below(text) || (r.links_to != GN_TREE_NO_LINK && r.links_to >= index))
		return 0;
	*e = (struct gn_tree_entry){.path = text, .target = text + r.path_bytes, .mode = (mode_t)r.mode, .links_to = r.links_to,
		.mtime_s = r.mtime_s, .mtime_ns = r.mtime_ns, .size_bytes = r.size_bytes, .extent_count = r.extent_count,
		.extents = at + sizeof r + r.path_bytes + r.target_bytes};
	return need;
}

/* Counts the entries, and with t->entries sets them and digests them without their extents. -1: malformed. */
static long parse(struct gn_tree *t, struct gn_sha256 *sha)
{
	const unsigned char *block = t->block;
	struct gn_tree_extent x;
	struct gn_tree_entry e;
	size_t index = 0, need;

	for (size_t at = 0; at < t->block_bytes; at += need, index++) {
		need = parse_entry(block + at, t->block_bytes - at, index, &e);
		if (!need)
			return -1;
		if (!t->entries)
			continue;
		e.stream_at = t->data_bytes;
		for (uint32_t i = 0; i < e.extent_count; i++) {
			memcpy(&x, e.extents + i * sizeof x, sizeof x);
			if (x.offset > e.size_bytes || x.len > e.size_bytes - x.offset)
				return -1;
			t->data_bytes += x.len;
		}
		t->entries[index] = e;
		gn_sha256_update(sha, block + at, offsetof(struct gn_tree_record, extent_count));
		gn_sha256_update(sha, block + at + sizeof(struct gn_tree_record), need - sizeof(struct gn_tree_record) - e.extent_count * sizeof x);
	}
	return index < UINT32_MAX ? (long)index : -1;
}

enum gn_status gn_tree_take(void *block, size_t block_bytes, struct gn_tree *out, struct gn_err *err)
{
	struct gn_tree t = {.block = block, .block_bytes = block_bytes};
	struct gn_sha256 *sha = NULL;
	long count = parse(&t, NULL);
	enum gn_status status = gn_sha256_create(&sha, err);

	if (!status && count > 0 && !(t.entries = calloc((size_t)count, sizeof *t.entries)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a listing of %ld files", count);
	if (!status && (count <= 0 || parse(&t, sha) != count))
		status = gn_err_set(err, GN_ERR_MISMATCH, "the listing of files is malformed");
	if (!status) {
		t.count = (size_t)count;
		gn_sha256_finish(sha, t.identity);
		t.chunk_bytes = t.data_bytes / t.count < SMALL_FILE_BYTES ? GN_TREE_SMALL_CHUNK_BYTES : GN_TREE_CHUNK_BYTES;
		t.chunks = (uint32_t)((t.data_bytes + t.chunk_bytes - 1) / t.chunk_bytes);
		status = gn_sha256_buffer(block, block_bytes, t.layout, err);
	}
	gn_sha256_destroy(sha);
	if (status)
		gn_tree_release(&t);
	else
		*out = t;
	return status;
}

void gn_tree_release(struct gn_tree *t)
{
	free(t->entries);
	free(t->block);
	*t = (struct gn_tree){0};
}

size_t gn_tree_chunk_len(const struct gn_tree *t, uint32_t chunk)
{
	uint64_t left = t->data_bytes - (uint64_t)chunk * t->chunk_bytes;

	return left < t->chunk_bytes ? (size_t)left : t->chunk_bytes;
}

/* The last entry that begins at or before a place in the stream; those before it that begin there have no data. */
static size_t entry_at(const struct gn_tree *t, uint64_t place)
{
	size_t low = 0, high = t->count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		*(t->entries[middle].stream_at <= place ? &low : &high) = middle;
	}
	return low;
}

enum gn_status gn_tree_chunk_pieces(const struct gn_tree *t, uint32_t chunk, gn_tree_piece_fn piece, void *context, struct gn_err *err)
{
	uint64_t begin = (uint64_t)chunk * t->chunk_bytes, end = begin + gn_tree_chunk_len(t, chunk);
	enum gn_status status = GN_OK;

	for (size_t i = entry_at(t, begin); !status && i < t->count && t->entries[i].stream_at < end; i++) {
		const struct gn_tree_entry *e = &t->entries[i];
		uint64_t place = e->stream_at;
		struct gn_tree_extent x;

		for (uint32_t k = 0; !status && k < e->extent_count; k++, place += x.len) {
			uint64_t from, to;

			memcpy(&x, e->extents + k * sizeof x, sizeof x);
			from = place > begin ? place : begin;
			to = place + x.len < end ? place + x.len : end;
			if (from < to)
				status = piece(context, e, x.offset + (from - place), (size_t)(from - begin), (size_t)(to - from), err);
		}
	}
	return status;
}

enum gn_status gn_tree_path(const char *root, const struct gn_tree_entry *e, char path[PATH_MAX], struct gn_err *err)
{
	if ((size_t)snprintf(path, PATH_MAX, "%s%s", root, e->path) < PATH_MAX)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "path too long: %s%s", root, e->path);
}

struct reader {
	const char *root;
	unsigned char *data;
};

static enum gn_status read_piece(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len, struct gn_err *err)
{
	struct reader *r = context;
	char path[PATH_MAX];
	struct stat info;
	enum gn_status status = gn_tree_path(r->root, e, path, err);
	int fd;

	if (status)
		return status;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (*e->path ? O_NOFOLLOW : 0));
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	if (fstat(fd, &info))
		status = gn_err_errno(err, errno, "cannot stat %s", path);
	else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != e->size_bytes || info.st_mtim.tv_sec != e->mtime_s ||
		 info.st_mtim.tv_nsec != e->mtime_ns)
		status = gn_err_set(err, GN_ERR_DATA, "%s was changed while it was staged: start again when nothing writes to it", path);
	if (!status)
		status = gn_pread_full(fd, r->data + at, len, offset, path, err);
	close(fd);
	return status;
}

enum gn_status gn_tree_chunk_read(const struct gn_tree *t, const char *root, uint32_t chunk, void *data, struct gn_err *err)
{
	struct reader r = {root, data};

	return gn_tree_chunk_pieces(t, chunk, read_piece, &r, err);
}
