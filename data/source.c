#include "data/source.h"

#include "data/image.h"
#include "data/shard.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 32

/* The folder we are in and those that led here: a link back to one of them would never end. */
struct level {
	const struct level *up;
	dev_t device;
	ino_t inode;
	const char *class_name; /* NULL at the top */
	int depth;
};

struct walk {
	const struct gn_source_sink *sink;
	const char *root;
};

static int any_entry(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static enum gn_status walk_level(const struct walk *w, const char *inside, const struct level *level,
				 struct gn_err *err);

static enum gn_status hand_over(const struct walk *w, const char *name, const struct level *level,
				const struct stat *info, struct gn_err *err)
{
	struct gn_source_file file = {.name = name, .class_name = level->class_name};

	if (!S_ISREG(info->st_mode))
		file.problem = "neither a file nor a folder";
	else if ((uint64_t)info->st_size > GN_IMAGE_MAX_BYTES)
		file.problem = "larger than an image may be (64 MiB)";
	else
		file.len_bytes = (size_t)info->st_size;
	return w->sink->file(w->sink->context, &file, err);
}

static enum gn_status walk_entry(const struct walk *w, const char *inside, const char *entry, const struct level *level,
				 struct gn_err *err)
{
	char name[GN_SHARD_NAME_MAX + 1], path[PATH_MAX];
	struct level below = {.up = level, .class_name = entry, .depth = level->depth + 1};
	struct stat info;

	if ((size_t)snprintf(name, sizeof name, "%s%s%s", inside, inside[0] ? "/" : "", entry) >= sizeof name ||
	    (size_t)snprintf(path, sizeof path, "%s/%s", w->root, name) >= sizeof path)
		return gn_err_set(err, GN_ERR_DATA, "%s: path too long: %s/%s", w->root, inside, entry);
	if (stat(path, &info)) {
		struct gn_source_file file = {.name = name, .class_name = level->class_name,
					      .problem = "a link that leads nowhere"};

		if (errno != ENOENT && errno != ELOOP)
			return gn_err_errno(err, errno, "cannot stat %s", path);
		return w->sink->file(w->sink->context, &file, err);
	}
	if (!S_ISDIR(info.st_mode))
		return hand_over(w, name, level, &info, err);
	if (below.depth > MAX_DEPTH)
		return gn_err_set(err, GN_ERR_DATA, "%s lies more than %d folders deep", path, MAX_DEPTH);
	below.device = info.st_dev;
	below.inode = info.st_ino;
	for (const struct level *l = level; l; l = l->up)
		if (l->device == info.st_dev && l->inode == info.st_ino)
			return gn_err_set(err, GN_ERR_DATA, "%s is a link to a folder that holds it", path);
	return walk_level(w, name, &below, err);
}

static enum gn_status walk_level(const struct walk *w, const char *inside, const struct level *level, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct dirent **entries;
	char path[PATH_MAX];
	int count;

	if ((size_t)snprintf(path, sizeof path, "%s/%s", w->root, inside) >= sizeof path)
		return gn_err_set(err, GN_ERR_DATA, "path too long: %s/%s", w->root, inside);
	count = scandir(path, &entries, any_entry, by_bytes);
	if (count < 0)
		return gn_err_errno(err, errno, "cannot read folder %s", path);
	if (!count && level->class_name)
		status = w->sink->empty(w->sink->context, inside, level->class_name, err);
	for (int i = 0; i < count; i++) {
		if (!status)
			status = walk_entry(w, inside, entries[i]->d_name, level, err);
		free(entries[i]);
	}
	free(entries);
	return status;
}

enum gn_status gn_source_walk_folder(const char *path, const struct gn_source_sink *sink, struct gn_err *err)
{
	struct walk w = {sink, path};
	struct level top = {0};
	struct stat info;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot read source %s", path);
	top.device = info.st_dev;
	top.inode = info.st_ino;
	return walk_level(&w, "", &top, err);
}

enum gn_status gn_source_walk(const char *path, const struct gn_source_sink *sink, struct gn_err *err)
{
	struct stat info;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot read source %s", path);
	if (S_ISDIR(info.st_mode))
		return gn_source_walk_folder(path, sink, err);
	if (S_ISREG(info.st_mode))
		return gn_source_walk_tar(path, sink, err);
	return gn_err_set(err, GN_ERR_DATA, "source %s is neither a folder nor a tar archive", path);
}
