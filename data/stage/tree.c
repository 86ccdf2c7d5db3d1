#include "data/stage/tree.h"

#include "src/base/file.h"
#include "src/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
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

/* Lists a tree: names by fts(3), in the order of their bytes; then hard links and holes. */

struct scan {
	struct gn_strbuf block;
	struct link *links; /* of files with several names: a hash table, half full at most */
	size_t link_count, link_room;
	uint32_t count, fifos;
	size_t root_len;
	int with_holes;
	struct gn_log *log;
};

struct link {
	dev_t device;
	ino_t inode;
	uint32_t entry;
	int used;
};

static enum gn_status grow_links(struct scan *s, struct gn_err *err)
{
	size_t room = s->link_room ? 2 * s->link_room : 256, at;
	struct link *grown = calloc(room, sizeof *grown);

	if (!grown)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for hard links");
	for (size_t i = 0; i < s->link_room; i++) {
		if (!s->links[i].used)
			continue;
		for (at = (size_t)s->links[i].inode; grown[at % room].used; at++)
			;
		grown[at % room] = s->links[i];
	}
	free(s->links);
	s->links = grown;
	s->link_room = room;
	return GN_OK;
}

/* The first entry with the same inode, if there is one; else this entry is remembered as that. */
static enum gn_status find_link(struct scan *s, const struct stat *info, uint32_t *first, struct gn_err *err)
{
	enum gn_status status = 2 * s->link_count >= s->link_room ? grow_links(s, err) : GN_OK;
	struct link *l;

	if (status)
		return status;
	for (size_t at = (size_t)info->st_ino;; at++) {
		l = &s->links[at % s->link_room];
		if (!l->used)
			break;
		if (l->inode == info->st_ino && l->device == info->st_dev) {
			*first = l->entry;
			return GN_OK;
		}
	}
	*l = (struct link){info->st_dev, info->st_ino, s->count, 1};
	s->link_count++;
	return GN_OK;
}

static void append_extent(struct scan *s, uint64_t offset, uint64_t len, uint32_t *count)
{
	struct gn_tree_extent x = {offset, len};

	gn_strbuf_append(&s->block, (const char *)&x, sizeof x);
	++*count;
}

/* A file that uses all blocks of its size has no hole and is not opened. */
static enum gn_status append_extents(struct scan *s, const char *path, const struct stat *info, uint32_t *count, struct gn_err *err)
{
	off_t size = info->st_size, data = 0, hole;
	enum gn_status status = GN_OK;
	int fd;

	if (!s->with_holes || !size)
		return GN_OK;
	if ((off_t)info->st_blocks * 512 >= size) {
		append_extent(s, 0, (uint64_t)size, count);
		return GN_OK;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	while (!status && data < size && (data = lseek(fd, data, SEEK_DATA)) >= 0 && data < size) {
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || hole > size)
			hole = size;
		append_extent(s, (uint64_t)data, (uint64_t)(hole - data), count);
		data = hole;
	}
	if (data < 0 && errno != ENXIO)
		status = gn_err_errno(err, errno, "cannot find the holes of %s", path);
	close(fd);
	return status;
}

static enum gn_status append_entry(struct scan *s, const FTSENT *f, struct gn_err *err)
{
	const struct stat *info = f->fts_statp;
	const char *path = f->fts_path + s->root_len;
	struct gn_tree_record r = {.mtime_s = info->st_mtim.tv_sec, .mtime_ns = info->st_mtim.tv_nsec, .links_to = GN_TREE_NO_LINK,
				   .path_bytes = (uint32_t)strlen(path) + 1, .target_bytes = 1};
	char target[PATH_MAX] = "";
	size_t at = s->block.len;
	ssize_t len;
	enum gn_status status = GN_OK;

	r.mode = info->st_mode & (info->st_uid == geteuid() ? ~(mode_t)0 : ~(mode_t)(S_ISUID | S_ISGID));
	if (S_ISREG(info->st_mode))
		r.size_bytes = (uint64_t)info->st_size;
	if (!S_ISDIR(info->st_mode) && info->st_nlink > 1)
		status = find_link(s, info, &r.links_to, err);
	if (!status && S_ISLNK(info->st_mode)) {
		len = readlink(f->fts_accpath, target, sizeof target - 1);
		if (len < 0)
			return gn_err_errno(err, errno, "cannot read the link %s", f->fts_path);
		target[len] = '\0';
		r.target_bytes = (uint32_t)len + 1;
	}
	gn_strbuf_append(&s->block, (const char *)&r, sizeof r);
	gn_strbuf_append(&s->block, path, r.path_bytes);
	gn_strbuf_append(&s->block, target, r.target_bytes);
	if (!status && S_ISREG(info->st_mode) && r.links_to == GN_TREE_NO_LINK)
		status = append_extents(s, f->fts_accpath, info, &r.extent_count, err);
	if (!status && !gn_strbuf_failed(&s->block))
		memcpy(s->block.text + at, &r, sizeof r);
	s->count++;
	return status;
}

static enum gn_status append(struct scan *s, const FTSENT *f, struct gn_err *err)
{
	switch (f->fts_info) {
	case FTS_DP:
		return GN_OK;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return gn_err_errno(err, f->fts_errno, "cannot read %s", f->fts_path);
	case FTS_SLNONE:
		return gn_err_errno(err, ENOENT, "cannot read %s, a symbolic link to nothing", f->fts_path);
	case FTS_DC:
		return gn_err_set(err, GN_ERR_DATA, "%s: the folder contains itself", f->fts_path);
	case FTS_DEFAULT:
		if (!S_ISFIFO(f->fts_statp->st_mode)) {
			gn_log_warn(s->log, "%s is a socket or a device: left out", f->fts_path);
			return GN_OK;
		}
		s->fifos++;
		return append_entry(s, f, err);
	default:
		return append_entry(s, f, err);
	}
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

enum gn_status gn_tree_scan(const char *from, int with_holes, struct gn_log *log, struct gn_tree *out, struct gn_err *err)
{
	struct scan s = {.root_len = strlen(from), .with_holes = with_holes, .log = log};
	char root[PATH_MAX];
	char *roots[] = {root, NULL};
	enum gn_status status = GN_OK;
	FTSENT *f;
	FTS *fts;

	while (s.root_len && from[s.root_len - 1] == '/')
		s.root_len--;
	if (s.root_len >= sizeof root || !s.root_len)
		return gn_err_set(err, GN_ERR_USAGE, "\"%s\" cannot be staged: name a folder below it, by a shorter path", from);
	memcpy(root, from, s.root_len);
	root[s.root_len] = '\0';
	fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (!fts)
		return gn_err_errno(err, errno, "cannot read %s", from);
	while (!status && (errno = 0, f = fts_read(fts)))
		status = append(&s, f, err);
	if (!status && errno)
		status = gn_err_errno(err, errno, "cannot read %s", from);
	fts_close(fts);
	free(s.links);
	if (!status && gn_strbuf_failed(&s.block))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the listing of %s", from);
	if (status || !s.count) {
		gn_strbuf_release(&s.block);
		return status ? status : gn_err_set(err, GN_ERR_DATA, "%s is neither a folder nor a file", from);
	}
	if (s.fifos)
		gn_log_info(log, "%s: %u FIFO%s made anew in the copy; nothing is read from %s", from, s.fifos, s.fifos == 1 ? " is" : "s are",
			    s.fifos == 1 ? "it" : "them");
	return gn_tree_take(s.block.text, s.block.len, out, err);
}
