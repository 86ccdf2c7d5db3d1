#include "data/stage/tree_target_internal.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

int gn_tree_is_one_piece(const struct gn_tree *t, const struct gn_tree_entry *e)
{
	struct gn_tree_extent x;

	if (e->extent_count != 1)
		return 0;
	memcpy(&x, e->extents, sizeof x);
	return !x.offset && x.len == e->size_bytes && e->stream_at / t->chunk_bytes == (e->stream_at + x.len - 1) / t->chunk_bytes;
}

int gn_tree_is_final(const struct gn_tree_target *t, const struct gn_tree_entry *e)
{
	return t->is_new && gn_tree_is_one_piece(t->tree, e) && (e->mode & 0400);
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
		if (!status && S_ISREG(e->mode) && e->links_to == GN_TREE_NO_LINK && !(t->is_new && gn_tree_is_one_piece(t->tree, e)))
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

enum gn_status gn_tree_make_metadata(const struct gn_tree_entry *e, const char *path, struct gn_err *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns}};

	if (!S_ISLNK(e->mode) && chmod(path, e->mode & 07777))
		return gn_err_errno(err, errno, "cannot set the permissions of %s", path);
	if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW))
		return gn_err_errno(err, errno, "cannot set the time of %s", path);
	return GN_OK;
}

enum gn_status gn_tree_make_rest(const struct gn_tree_target *t, struct gn_err *err)
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

		if (e->links_to != GN_TREE_NO_LINK || gn_tree_is_final(t, e))
			continue;
		status = gn_tree_path(t->root, e, path, err);
		if (!status)
			status = gn_tree_make_metadata(e, path, err);
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
