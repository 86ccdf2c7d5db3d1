/* Walks a folder. The walking thread lists the first level; jobs of the pool list the folders in it, a few ahead of the walk, so
 * that waits for a slow file system overlap. */
#include "data/pack/source.h"

#include "data/shard/shard.h"
#include "src/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 32

/* The current folder and its ancestors: a link to one of them would be an endless loop. */
struct level {
	const struct level *up;
	dev_t device;
	ino_t inode;
	int depth;
};

struct entry {
	char *name;	     /* path inside the source */
	const char *problem; /* or NULL */
	int empty_folder;
};

struct walk {
	const struct gn_source_sink *sink;
	const char *root;
	struct level top;
	pthread_mutex_t lock;
	pthread_cond_t listed;
};

/* The listing below one folder of the first level; owned by its job until done. */
struct listing {
	struct walk *w;
	struct entry *entries;
	size_t count, capacity;
	size_t passed;
	enum gn_status status;
	struct gn_err err;
	char folder[NAME_MAX + 1];
	int done; /* protected by the walk's lock */
};

static int any_entry(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static enum gn_status add(struct listing *l, const char *name, const char *problem, int empty_folder, struct gn_err *err)
{
	if (gn_array_grow(&l->entries, &l->capacity, l->count, sizeof *l->entries))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to list %s", l->w->root);
	l->entries[l->count] = (struct entry){strdup(name), problem, empty_folder};
	if (!l->entries[l->count].name)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to list %s", l->w->root);
	l->count++;
	return GN_OK;
}

static enum gn_status list_folder(struct listing *l, const char *inside, const struct level *up, struct gn_err *err);

/* The type of an entry as in d_type; DT_LNK for a dangling link. */
static enum gn_status kind_of(const char *path, const struct dirent *entry, unsigned char *kind, struct gn_err *err)
{
	struct stat info;

	*kind = entry->d_type;
	if (*kind != DT_UNKNOWN && *kind != DT_LNK)
		return GN_OK;
	*kind = DT_LNK;
	if (!stat(path, &info))
		*kind = S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG : DT_FIFO;
	else if (errno != ENOENT && errno != ELOOP)
		return gn_err_errno(err, errno, "cannot stat %s", path);
	return GN_OK;
}

static enum gn_status list_entry(struct listing *l, const char *inside, const struct dirent *entry, const struct level *level,
				 struct gn_err *err)
{
	char name[GN_SHARD_NAME_MAX + 1], path[PATH_MAX];
	unsigned char kind;
	enum gn_status status;

	if ((size_t)snprintf(name, sizeof name, "%s%s%s", inside, inside[0] ? "/" : "", entry->d_name) >= sizeof name ||
	    (size_t)snprintf(path, sizeof path, "%s/%s", l->w->root, name) >= sizeof path)
		return gn_err_set(err, GN_ERR_DATA, "%s: path too long: %s/%s", l->w->root, inside, entry->d_name);
	status = kind_of(path, entry, &kind, err);
	if (status)
		return status;
	if (gn_source_passes_over(entry->d_name, kind == DT_DIR)) {
		l->passed++;
		return GN_OK;
	}
	if (kind != DT_DIR)
		return add(l, name, kind == DT_LNK ? "a dangling symbolic link"
				    : kind == DT_REG ? NULL : "neither a file nor a folder", 0, err);
	if (level->depth == MAX_DEPTH)
		return gn_err_set(err, GN_ERR_DATA, "%s is more than %d folders deep", path, MAX_DEPTH);
	return list_folder(l, name, level, err);
}

static enum gn_status list_folder(struct listing *l, const char *inside, const struct level *up, struct gn_err *err)
{
	size_t before = l->count;
	struct level level = {.up = up, .depth = up->depth + 1};
	enum gn_status status = GN_OK;
	struct dirent **entries;
	char path[PATH_MAX];
	struct stat info;
	int count;

	if ((size_t)snprintf(path, sizeof path, "%s/%s", l->w->root, inside) >= sizeof path)
		return gn_err_set(err, GN_ERR_DATA, "path too long: %s/%s", l->w->root, inside);
	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	level.device = info.st_dev;
	level.inode = info.st_ino;
	for (; up; up = up->up)
		if (up->device == info.st_dev && up->inode == info.st_ino)
			return gn_err_set(err, GN_ERR_DATA, "%s is a symbolic link to a folder that contains it", path);
	count = scandir(path, &entries, any_entry, by_bytes);
	if (count < 0)
		return gn_err_errno(err, errno, "cannot read folder %s", path);
	for (int i = 0; i < count; i++) {
		if (!status)
			status = list_entry(l, inside, entries[i], &level, err);
		free(entries[i]);
	}
	free(entries);
	if (!status && l->count == before)
		status = add(l, inside, NULL, 1, err);
	return status;
}

static void run_listing(void *argument)
{
	struct listing *l = argument;

	l->status = list_folder(l, l->folder, &l->w->top, &l->err);
	pthread_mutex_lock(&l->w->lock);
	l->done = 1;
	pthread_cond_broadcast(&l->w->listed);
	pthread_mutex_unlock(&l->w->lock);
}

static void wait_listing(struct listing *l)
{
	pthread_mutex_lock(&l->w->lock);
	while (!l->done)
		pthread_cond_wait(&l->w->listed, &l->w->lock);
	pthread_mutex_unlock(&l->w->lock);
}

static void listing_clear(struct listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->entries[i].name);
	free(l->entries);
	l->entries = NULL;
	l->count = 0;
}

static enum gn_status hand_over(const struct walk *w, const struct listing *l, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	*w->sink->passed += l->passed;
	for (size_t i = 0; i < l->count && !status; i++) {
		const struct entry *e = &l->entries[i];
		char inside[GN_SHARD_NAME_MAX + 3], buffer[GN_SHARD_NAME_MAX + 3];
		struct gn_source_file file = {.name = e->name, .problem = e->problem};

		snprintf(inside, sizeof inside, "%s%s", e->name, e->empty_folder ? "/" : "");
		file.levels = gn_source_levels_of(inside, 0, buffer, sizeof buffer);
		if (!e->empty_folder)
			status = w->sink->file(w->sink->context, &file, err);
		else if (w->sink->empty)
			status = w->sink->empty(w->sink->context, e->name, &file.levels, err);
	}
	return status;
}

/* Passes the first level's files and the listings to the sink in order, while the pool lists folders ahead. */
static enum gn_status walk_listings(struct gn_thread_pool *pool, struct listing *l, size_t count, struct gn_err *err)
{
	size_t ahead = 2 * (size_t)gn_thread_pool_threads(pool), next = 0;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < count && !status; i++) {
		for (; next < count && next <= i + ahead; next++)
			gn_thread_pool_submit(pool, run_listing, &l[next]);
		wait_listing(&l[i]);
		status = l[i].status;
		if (status && err)
			*err = l[i].err;
		if (!status)
			status = hand_over(l[i].w, &l[i], err);
		listing_clear(&l[i]);
	}
	for (size_t i = 0; i < next; i++) {
		wait_listing(&l[i]);
		listing_clear(&l[i]);
	}
	return status;
}

/* Sorts the first level into files, in *files, and folders, each with a listing. */
static enum gn_status split_top(struct walk *w, struct dirent **entries, int count, struct listing *files,
				struct listing *folders, size_t *folder_count, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	char path[PATH_MAX];
	unsigned char kind;

	for (int i = 0; i < count && !status; i++) {
		const char *name = entries[i]->d_name;

		if ((size_t)snprintf(path, sizeof path, "%s/%s", w->root, name) >= sizeof path)
			return gn_err_set(err, GN_ERR_DATA, "path too long: %s/%s", w->root, name);
		status = kind_of(path, entries[i], &kind, err);
		if (!status && kind == DT_DIR && !gn_source_passes_over(name, 1)) {
			struct listing *l = &folders[(*folder_count)++];

			l->w = w;
			snprintf(l->folder, sizeof l->folder, "%s", name);
		} else if (!status) {
			status = list_entry(files, "", entries[i], &w->top, err);
		}
	}
	return status;
}

enum gn_status gn_source_walk_folder(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink,
				     struct gn_err *err)
{
	struct walk w = {.sink = sink, .root = path};
	struct listing files = {.w = &w}, *folders;
	struct dirent **entries;
	size_t folder_count = 0;
	enum gn_status status;
	struct stat info;
	int count;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot read source %s", path);
	w.top.device = info.st_dev;
	w.top.inode = info.st_ino;
	count = scandir(path, &entries, any_entry, by_bytes);
	if (count < 0)
		return gn_err_errno(err, errno, "cannot read folder %s", path);
	folders = calloc((size_t)count + 1, sizeof *folders);
	status = folders ? split_top(&w, entries, count, &files, folders, &folder_count, err)
			 : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to list %s", path);
	for (int i = 0; i < count; i++)
		free(entries[i]);
	free(entries);
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.listed, NULL);
	if (!status)
		status = hand_over(&w, &files, err);
	if (!status)
		status = walk_listings(pool, folders, folder_count, err);
	listing_clear(&files);
	free(folders);
	pthread_cond_destroy(&w.listed);
	pthread_mutex_destroy(&w.lock);
	return status;
}
