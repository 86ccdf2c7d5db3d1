/* Chunks into and out of the copy, and its end. */
#include "data/stage/tree_target_internal.h"

#include "data/stage/stage_marker.h"
#include "src/base/file.h"
#include "src/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* What is worth a write of its own. */
#define EARLY_BYTES ((size_t)256 << 10)

/* In small files, after which the disk is to begin. */
#define SYNC_BYTES ((size_t)16 << 20)

struct writer {
	const struct gn_tree_target *t;
	const unsigned char *data;
	size_t small_bytes;
};

static enum gn_status make_file(const struct gn_tree_entry *e, const char *path, struct gn_err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	enum gn_status status = GN_OK;
	int fd = open(path, flags, 0600);

	/* an earlier run may have set its final permissions */
	if (fd < 0 && errno == EACCES && !chmod(path, 0600))
		fd = open(path, flags, 0600);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot create %s", path);
	if (ftruncate(fd, (off_t)e->size_bytes))
		status = gn_err_errno(err, errno, "cannot set the size of %s", path);
	close(fd);
	return status;
}

/* Whether a file is written at once, as a whole. */
static int tree_is_one_piece(const struct gn_tree *t, const struct gn_tree_entry *e)
{
	struct gn_tree_extent x;

	if (e->extent_count != 1)
		return 0;
	memcpy(&x, e->extents, sizeof x);
	return !x.offset && x.len == e->size_bytes && e->stream_at / t->chunk_bytes == (e->stream_at + x.len - 1) / t->chunk_bytes;
}

/* Whether it gets its permissions and time when it is written, not at the end. Its owner must be able to read it: chunks are read again. */
static int tree_is_final(const struct gn_tree_target *t, const struct gn_tree_entry *e)
{
	return t->is_new && tree_is_one_piece(t->tree, e) && (e->mode & 0400);
}

enum gn_status gn_tree_make(const struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	char path[PATH_MAX];

	for (size_t i = 0; i < t->tree->count && !status; i++) {
		const struct gn_tree_entry *e = &t->tree->entries[i];

		status = gn_tree_path(t->root, e, path, err);
		if (!status && S_ISDIR(e->mode) && mkdir(path, 0700) && (errno != EEXIST || chmod(path, 0700)))
			status = gn_err_errno(err, errno, "cannot create the folder %s", path);
		if (!status && S_ISREG(e->mode) && e->links_to == GN_TREE_NO_LINK && !(t->is_new && tree_is_one_piece(t->tree, e)))
			status = make_file(e, path, err);
	}
	return status;
}

/* What is neither a folder nor a file with data of its own; one of an earlier run is replaced. */
static enum gn_status make_link(const struct gn_tree_target *t, const struct gn_tree_entry *e, const char *path, struct gn_err *err)
{
	char first[PATH_MAX];
	enum gn_status status = GN_OK;
	int failed;

	if (e->links_to != GN_TREE_NO_LINK)
		status = gn_tree_path(t->root, &t->tree->entries[e->links_to], first, err);
	if (status)
		return status;
	if (unlink(path) && errno != ENOENT)
		return gn_err_errno(err, errno, "cannot replace %s", path);
	if (e->links_to != GN_TREE_NO_LINK)
		failed = link(first, path);
	else if (S_ISLNK(e->mode))
		failed = symlink(e->target, path);
	else
		failed = mkfifo(path, 0600);
	return failed ? gn_err_errno(err, errno, "cannot create %s", path) : GN_OK;
}

/* Permissions and times of one entry. */
static enum gn_status tree_make_metadata(const struct gn_tree_entry *e, const char *path, struct gn_err *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns}};

	if (!S_ISLNK(e->mode) && chmod(path, e->mode & 07777))
		return gn_err_errno(err, errno, "cannot set the permissions of %s", path);
	if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW))
		return gn_err_errno(err, errno, "cannot set the time of %s", path);
	return GN_OK;
}

/* Links, permissions and times of everything below the root. */
static enum gn_status tree_make_rest(const struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	char path[PATH_MAX];

	for (size_t i = 0; i < t->tree->count && !status; i++) {
		const struct gn_tree_entry *e = &t->tree->entries[i];

		if (S_ISDIR(e->mode) || (S_ISREG(e->mode) && e->links_to == GN_TREE_NO_LINK))
			continue;
		status = gn_tree_path(t->root, e, path, err);
		if (!status)
			status = make_link(t, e, path, err);
	}
	/* children before their folder, whose time they change and whose permissions may forbid it */
	for (size_t i = t->tree->count; i-- > 1 && !status;) {
		const struct gn_tree_entry *e = &t->tree->entries[i];

		if (e->links_to != GN_TREE_NO_LINK || tree_is_final(t, e))
			continue;
		status = gn_tree_path(t->root, e, path, err);
		if (!status)
			status = tree_make_metadata(e, path, err);
	}
	return status;
}

enum gn_status gn_tree_remove(const char *path, struct gn_err *err)
{
	char root[PATH_MAX];
	char *roots[] = {root, NULL};
	FTSENT *f;
	FTS *fts;

	snprintf(root, sizeof root, "%s", path);
	fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	/* before the folder is read; what cannot be changed shows in the removal */
	while (fts && (f = fts_read(fts)))
		if (f->fts_info == FTS_D && (f->fts_statp->st_mode & 0700) != 0700 && !chmod(f->fts_path, 0700))
			fts_set(fts, f, FTS_AGAIN);
	if (fts)
		fts_close(fts);
	return gn_remove_tree(path, err);
}

static int open_to_write(const struct gn_tree_target *t, const struct gn_tree_entry *e, const char *path)
{
	int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (tree_is_one_piece(t->tree, e) ? O_CREAT : 0);
	mode_t mode = tree_is_final(t, e) ? e->mode & 0777 : 0600;
	int fd = open(path, flags, mode);

	/* a chunk that was wrong is written again */
	if (fd < 0 && errno == EACCES && !chmod(path, 0600))
		fd = open(path, flags, mode);
	return fd;
}

/* After the write, which changes both. Most files have the right permissions since they were created. */
static enum gn_status set_metadata(int fd, const struct gn_tree_entry *e, const char *path, struct gn_err *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns}};
	struct stat info;

	if (fstat(fd, &info) || ((info.st_mode ^ e->mode) & 07777 && fchmod(fd, e->mode & 07777)))
		return gn_err_errno(err, errno, "cannot set the permissions of %s", path);
	if (futimens(fd, times))
		return gn_err_errno(err, errno, "cannot set the time of %s", path);
	return GN_OK;
}

static enum gn_status write_piece(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len, struct gn_err *err)
{
	struct writer *w = context;
	char path[PATH_MAX];
	enum gn_status status;
	int fd;

	status = gn_tree_path(w->t->root, e, path, err);
	if (status)
		return status;
	fd = open_to_write(w->t, e, path);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	status = gn_pwrite_full(fd, w->data + at, len, offset, path, err);
	if (!status && tree_is_final(w->t, e))
		status = set_metadata(fd, e, path, err);
	/* beside the copy, so that little is left for the sync at the end; a file system that cannot does all then */
	if (!status && len >= EARLY_BYTES)
		(void)sync_file_range(fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
	else
		w->small_bytes += len;
	if (close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", path);
	return status;
}

enum gn_status gn_tree_target_write(struct gn_tree_target *t, uint32_t chunk, const void *data, struct gn_err *err)
{
	struct writer w = {t, data, 0};
	enum gn_status status = gn_tree_chunk_pieces(t->tree, chunk, write_piece, &w, err);

	pthread_mutex_lock(&t->mutex);
	t->unsynced_bytes += w.small_bytes;
	pthread_mutex_unlock(&t->mutex);
	return status;
}

int gn_tree_target_wants_sync(struct gn_tree_target *t)
{
	int wants;

	pthread_mutex_lock(&t->mutex);
	wants = t->unsynced_bytes >= SYNC_BYTES && !t->is_syncing;
	if (wants) {
		t->unsynced_bytes = 0;
		t->is_syncing = 1;
	}
	pthread_mutex_unlock(&t->mutex);
	return wants;
}

/* The kernel tells each failure once, perhaps to the sync beside that of the end. */
static enum gn_status sync_disk(struct gn_tree_target *t, struct gn_err *err)
{
	int failed;

	pthread_mutex_lock(&t->syncing);
	if (syncfs(t->journal))
		t->sync_errno = errno;
	failed = t->sync_errno;
	pthread_mutex_unlock(&t->syncing);
	return failed ? gn_err_errno(err, failed, "cannot sync %s", t->part) : GN_OK;
}

enum gn_status gn_tree_target_sync(struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = sync_disk(t, err);

	pthread_mutex_lock(&t->mutex);
	t->is_syncing = 0;
	pthread_mutex_unlock(&t->mutex);
	return status;
}

enum gn_status gn_tree_target_mark(struct gn_tree_target *t, uint32_t chunk, const char *digest, struct gn_err *err)
{
	enum gn_status status;
	char line[128];

	snprintf(line, sizeof line, GN_TREE_LINE, chunk, digest);
	pthread_mutex_lock(&t->mutex);
	status = gn_write_full(t->journal, line, strlen(line), t->part, err);
	if (!status)
		memcpy(t->digests[chunk], digest, GN_SHA256_HEX);
	pthread_mutex_unlock(&t->mutex);
	return status;
}

/* In the journal the last line of a chunk counts, and no data have this digest. */
enum gn_status gn_tree_target_forget(struct gn_tree_target *t, uint32_t chunk, struct gn_err *err)
{
	char none[GN_SHA256_HEX];
	enum gn_status status;

	if (!gn_tree_target_has(t, chunk))
		return GN_OK;
	if (t->was_complete)
		return gn_err_set(err, GN_ERR_DATA, "%s differs from the source in chunk %u: stage again with --check", t->to, chunk);
	memset(none, '0', sizeof none - 1);
	none[sizeof none - 1] = '\0';
	status = gn_tree_target_mark(t, chunk, none, err);
	pthread_mutex_lock(&t->mutex);
	t->digests[chunk][0] = '\0';
	pthread_mutex_unlock(&t->mutex);
	return status;
}

/* Times of files in the making are not the listing's. */
static enum gn_status read_piece(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len, struct gn_err *err)
{
	const struct writer *w = context;
	char path[PATH_MAX];
	enum gn_status status;
	int fd;

	status = gn_tree_path(w->t->root, e, path, err);
	if (status)
		return status;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	status = gn_pread_full(fd, (unsigned char *)(uintptr_t)w->data + at, len, offset, path, err);
	close(fd);
	return status;
}

enum gn_status gn_tree_target_get(struct gn_tree_target *t, uint32_t chunk, void *data, struct gn_err *err)
{
	struct writer w = {t, data, 0};
	char digest[GN_SHA256_HEX];
	enum gn_status status = gn_tree_chunk_pieces(t->tree, chunk, read_piece, &w, err);

	if (!status)
		status = gn_sha256_buffer(data, gn_tree_chunk_len(t->tree, chunk), digest, err);
	if (!status && strcmp(digest, t->digests[chunk]))
		status = gn_err_set(err, GN_ERR_DATA, "chunk %u of %s fails its digest: stage again with --check", chunk, t->root);
	return status;
}

enum gn_status gn_tree_target_write_at(struct gn_tree_target *t, uint64_t offset, const void *data, size_t len_bytes, struct gn_err *err)
{
	struct writer w = {t, data, 0};

	return write_piece(&w, &t->tree->entries[0], offset, 0, len_bytes, err);
}

enum gn_status gn_tree_target_read_at(struct gn_tree_target *t, uint64_t offset, void *data, size_t len_bytes, struct gn_err *err)
{
	struct writer w = {t, data, 0};

	return read_piece(&w, &t->tree->entries[0], offset, 0, len_bytes, err);
}

enum gn_status gn_tree_target_check_file(struct gn_tree_target *t, const char *sha256, struct gn_err *err)
{
	char hex[GN_SHA256_HEX];
	enum gn_status status = gn_sha256_file(t->root, hex, NULL, err);

	if (status || !strcasecmp(hex, sha256))
		return status;
	if (t->was_complete)
		return gn_err_set(err, GN_ERR_DATA, "%s does not have the SHA-256 of --sha256: it was damaged, or the server has another file", t->to);
	gn_tree_remove(t->part, NULL);
	return gn_err_set(err, GN_ERR_DATA, "what was copied to %s does not have the SHA-256 of --sha256: it was damaged, or is another file; "
			  "nothing is kept", t->to);
}

enum gn_status gn_tree_save_marker(const struct gn_tree_target *t, int synced, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	gn_strbuf_printf(&text, GN_TREE_HEAD, t->tree->layout);
	for (uint32_t c = 0; c < t->tree->chunks; c++)
		gn_strbuf_printf(&text, GN_TREE_LINE, c, t->digests[c]);
	gn_stage_marker_root(t->root, t->tree->identity, &text);
	status = gn_file_replace_text(t->marker, &text, synced ? GN_REPLACE_SYNCED : GN_REPLACE_UNSYNCED, err);
	gn_strbuf_release(&text);
	return status;
}

/* One sync for all files, on whose file system the journal is, and for the marker of a new copy, which says nothing without a tree. */
static enum gn_status sync_all(struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = t->replaces ? GN_OK : gn_tree_save_marker(t, 0, err);

	return status ? status : sync_disk(t, err);
}

/* The earlier copy is claimed. Its marker names no listing until the new one is in place, so that whatever is there is an earlier copy or a
 * whole new one. */
static enum gn_status move_old(const struct gn_tree_target *t, struct gn_err *err)
{
	static const char none[] = "gannet-stage-tree 1 incomplete\n";
	enum gn_status status = gn_file_replace(t->marker, none, sizeof none - 1, err);
	struct stat info;

	if (status)
		return status;
	/* a folder that its owner cannot write cannot be moved to another one */
	if (!lstat(t->to, &info) && S_ISDIR(info.st_mode) && chmod(t->to, 0700))
		return gn_err_errno(err, errno, "cannot change the permissions of %s", t->to);
	/* it may be gone */
	return rename(t->to, t->old) && errno != ENOENT ? gn_err_errno(err, errno, "cannot move %s out of the way", t->to) : GN_OK;
}

static enum gn_status put_in_place(struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = t->replaces ? move_old(t, err) : GN_OK;

	if (!status && rename(t->root, t->to))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", t->root, t->to);
	if (status)
		return status;
	memcpy(t->root, t->to, sizeof t->root);
	/* after the rename: a folder that its owner cannot write cannot be moved */
	status = tree_make_metadata(&t->tree->entries[0], t->to, err);
	if (!status && (status = gn_sync_parent(t->to, err)))
		gn_err_prefix(err, "%s", t->to);
	return status || !t->replaces ? status : gn_tree_save_marker(t, 1, err);
}

enum gn_status gn_tree_target_finish(struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int held = -1;

	if (t->was_complete)
		return GN_OK;
	status = tree_make_rest(t, err);
	if (!status)
		status = sync_all(t, err);
	/* who opened it while this one was made keeps it, and who comes now waits for the new one: some seconds, so not for the sync of all */
	if (!status && t->replaces)
		status = gn_tree_claim_old(t, &held, err);
	if (!status)
		status = put_in_place(t, err);
	if (held >= 0)
		close(held);
	if (!status && gn_tree_remove(t->part, NULL))
		gn_log_warn(t->log, "%s cannot be removed completely", t->part);
	return status;
}
