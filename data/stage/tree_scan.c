/* Lists a tree: names by fts(3), in the order of their bytes; then hard links and holes. */
#include "data/stage/tree.h"

#include "src/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
