#include "data/stage/staged_internal.h"

#include "data/shard/manifest.h"
#include "data/stage/stage_marker.h"
#include "src/base/file.h"
#include "src/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum gn_status gn_staged_split(const char *to, char *folder, char *name, struct gn_err *err)
{
	size_t len = strlen(to), begin;

	while (len > 1 && to[len - 1] == '/')
		len--;
	if (len >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", to);
	for (begin = len; begin && to[begin - 1] != '/';)
		begin--;
	snprintf(name, PATH_MAX, "%.*s", (int)(len - begin), to + begin);
	snprintf(folder, PATH_MAX, "%.*s", begin > 1 ? (int)begin - 1 : 1, begin ? to : ".");
	return GN_OK;
}

enum gn_status gn_staged_paths_of(const char *folder, const char *name, struct gn_staged_paths *out, struct gn_err *err)
{
	const struct {
		char *path;
		const char *ending;
	} all[] = {{out->root, ""}, {out->marker, GN_STAGE_MARKER_NAME}, {out->part, GN_STAGE_PART_ENDING}, {out->lock, GN_STAGE_LOCK_NAME},
		   {out->fetch, GN_STAGE_FETCH_ENDING}, {out->fetch_state, GN_STAGE_FETCH_ENDING ".state"}, {out->inner_marker, "/" GN_STAGE_MARKER_NAME},
		   {out->inner_lock, "/" GN_STAGE_LOCK_NAME}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if ((size_t)snprintf(all[i].path, PATH_MAX, "%s/%s%s", folder, name, all[i].ending) >= PATH_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "path too long: %s/%s", folder, name);
	return GN_OK;
}

int gn_staged_has_part(const struct gn_staged_paths *p)
{
	return gn_stage_is_own_path(p->fetch) || gn_stage_is_private(p->part);
}

/* Whether a dataset was staged to the root, be it in part. */
static int is_begun(const struct gn_staged_paths *p)
{
	return gn_stage_is_own_path(p->inner_marker) || gn_stage_is_own_path(p->inner_lock);
}

/* Whether the folder holds nothing but the shards of m and what stage adds. */
static int has_only(const char *folder, const struct gn_manifest *m)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int only = d != NULL;

	while (only && (e = readdir(d))) {
		const char *name = e->d_name;

		only = !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, GN_STAGE_MARKER_NAME) || !strcmp(name, GN_STAGE_LOCK_NAME) ||
		       !strcmp(name, GN_MANIFEST_NAME) || gn_text_ends_with(name, GN_STAGE_PART_ENDING);
		for (uint32_t i = 0; i < m->shard_count && !only; i++)
			only = !strcmp(name, m->shards[i].file);
	}
	if (d)
		closedir(d);
	return only;
}

static int is_missing(const char *folder, const char *name)
{
	char path[PATH_MAX];
	struct stat info;

	return !gn_path_join(path, sizeof path, folder, name, NULL) && lstat(path, &info) && errno == ENOENT;
}

static enum gn_staged_root look_at_dataset(const struct gn_staged_paths *p)
{
	struct gn_manifest m;
	unsigned char *right;
	int ours;

	if (!gn_manifest_is_there(p->root))
		return GN_STAGED_ROOT_UNFINISHED;
	if (gn_manifest_load(p->root, &m, NULL))
		return GN_STAGED_ROOT_OTHER;
	right = calloc(m.shard_count + (size_t)1, 1);
	ours = right && has_only(p->root, &m);
	if (ours)
		gn_stage_marker_load(&m, p->root, right);
	/* what is not there is on another disk of the node, or was removed: nobody's file is lost with the rest */
	for (uint32_t i = 0; i < m.shard_count && ours; i++)
		ours = right[i] || is_missing(p->root, m.shards[i].file);
	free(right);
	gn_manifest_release(&m);
	return ours ? GN_STAGED_ROOT_OURS : GN_STAGED_ROOT_OTHER;
}

enum gn_staged_root gn_staged_look(const struct gn_staged_paths *p, const char **kind)
{
	struct stat info, marker;

	*kind = "tree";
	if (lstat(p->root, &info)) {
		*kind = gn_stage_is_own_path(p->fetch) ? "file" : "tree";
		return GN_STAGED_ROOT_NONE;
	}
	if (!S_ISDIR(info.st_mode))
		*kind = "file";
	if (info.st_uid != geteuid())
		return GN_STAGED_ROOT_OTHER;
	if (!lstat(p->marker, &marker))
		return gn_stage_marker_is_of(p->marker, p->root) && !gn_stage_marker_is_changed(p->marker, p->root) ? GN_STAGED_ROOT_OURS : GN_STAGED_ROOT_OTHER;
	if (S_ISDIR(info.st_mode) && is_begun(p)) {
		*kind = "dataset";
		return look_at_dataset(p);
	}
	return GN_STAGED_ROOT_OTHER;
}

enum gn_status gn_staged_check_target(const char *to, int *begun, struct gn_err *err)
{
	char folder[PATH_MAX], name[PATH_MAX];
	struct gn_staged_paths p;
	enum gn_status status = gn_staged_split(to, folder, name, err);

	if (!status)
		status = gn_staged_paths_of(folder, name, &p, err);
	if (status)
		return status;
	*begun = is_begun(&p);
	if (gn_stage_marker_is_of(p.marker, p.root))
		return gn_err_set(err, GN_ERR_EXISTS, "%s is a copy of a tree that gannet stage has made: choose another folder for the dataset, "
				  "or remove the copy with gannet stage --remove", to);
	return GN_OK;
}

/* Whether a process has the lock that is opened with these flags. */
static int is_locked(const char *path, int flags, int how)
{
	int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), locked;

	if (fd < 0)
		return 0;
	locked = flock(fd, how | LOCK_NB) && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

static enum gn_staged_state state_of(const struct gn_staged_paths *p, enum gn_staged_root root)
{
	if (is_locked(p->lock, O_RDWR, LOCK_SH) || is_locked(p->inner_lock, O_RDWR, LOCK_SH) || is_locked(p->fetch, O_RDWR, LOCK_SH))
		return GN_STAGED_IN_WORK;
	if (root == GN_STAGED_ROOT_OURS)
		return is_locked(p->root, O_RDONLY, LOCK_EX) ? GN_STAGED_IN_USE : GN_STAGED_COMPLETE;
	if (root == GN_STAGED_ROOT_OTHER && !gn_staged_has_part(p))
		return GN_STAGED_CHANGED;
	return GN_STAGED_INCOMPLETE;
}

static uint64_t disk_bytes(const char *path)
{
	char *roots[] = {strdup(path), NULL};
	FTS *fts = *roots ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL) : NULL;
	uint64_t sum = 0;
	FTSENT *f;

	while (fts && (f = fts_read(fts)))
		if (f->fts_info != FTS_DP && f->fts_info != FTS_NS && f->fts_statp->st_nlink)
			sum += (uint64_t)f->fts_statp->st_blocks * 512 / (f->fts_info == FTS_D ? 1 : f->fts_statp->st_nlink);
	if (fts)
		fts_close(fts);
	free(*roots);
	return sum;
}

static int64_t used_at(const struct gn_staged_paths *p)
{
	const char *const says[] = {p->marker, p->inner_marker, p->fetch, p->part, p->inner_lock};
	struct stat info;

	for (size_t i = 0; i < sizeof says / sizeof *says; i++)
		if (!lstat(says[i], &info))
			return info.st_mtim.tv_sec;
	return 0;
}

static enum gn_status add(struct gn_staged_list *l, const char *name, struct gn_err *err)
{
	struct gn_staged s = {0}, *more;
	struct gn_staged_paths p;
	enum gn_staged_root root;
	struct stat info;
	enum gn_status status = gn_staged_paths_of(l->folder, name, &p, err);

	for (size_t i = 0; i < l->count; i++)
		if (!strcmp(l->items[i].name, name))
			return GN_OK;
	if (status)
		return status;
	root = gn_staged_look(&p, &s.kind);
	s.state = state_of(&p, root);
	s.bytes = disk_bytes(p.part) + disk_bytes(p.fetch);
	/* other users' files count for nobody's quota; what this user has changed is kept, and counts */
	if (!lstat(p.root, &info) && info.st_uid == geteuid())
		s.bytes += disk_bytes(p.root);
	s.used_s = used_at(&p);
	s.name = strdup(name);
	more = s.name ? realloc(l->items, (l->count + 1) * sizeof *more) : NULL;
	if (!more) {
		free(s.name);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the list of %s", l->folder);
	}
	l->items = more;
	l->items[l->count++] = s;
	return GN_OK;
}

/* The name of the copy that an entry of the folder belongs to, in out; 0: of none of this user's. */
static int find_copy(const char *folder, const char *entry, char *out, size_t size)
{
	static const char *const endings[] = {GN_STAGE_MARKER_NAME, GN_STAGE_PART_ENDING, GN_STAGE_FETCH_ENDING};
	struct gn_staged_paths p;

	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		if (!gn_text_ends_with(entry, endings[i]))
			continue;
		snprintf(out, size, "%.*s", (int)(strlen(entry) - strlen(endings[i])), entry);
		return !gn_staged_paths_of(folder, out, &p, NULL) && (i == 0 ? gn_stage_is_own_path(p.marker) : gn_staged_has_part(&p));
	}
	snprintf(out, size, "%s", entry);
	return strcmp(entry, ".") && strcmp(entry, "..") && !gn_staged_paths_of(folder, entry, &p, NULL) && is_begun(&p);
}

static int by_use(const void *a, const void *b)
{
	const struct gn_staged *x = a, *y = b;

	if (x->used_s != y->used_s)
		return x->used_s < y->used_s ? -1 : 1;
	return strcmp(x->name, y->name);
}

enum gn_status gn_staged_list_load(const char *folder, struct gn_staged_list *out, struct gn_err *err)
{
	struct gn_staged_list l = {.folder = strdup(folder)};
	DIR *d = opendir(folder);
	enum gn_status status = GN_OK;
	char name[NAME_MAX + 1];
	struct dirent *e;

	if (!d)
		status = gn_err_errno(err, errno, "cannot read folder %s", folder);
	else if (!l.folder)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the list of %s", folder);
	while (!status && (e = readdir(d)))
		if (find_copy(folder, e->d_name, name, sizeof name))
			status = add(&l, name, err);
	if (d)
		closedir(d);
	if (status) {
		gn_staged_list_release(&l);
		return status;
	}
	if (l.count)
		qsort(l.items, l.count, sizeof *l.items, by_use);
	*out = l;
	return GN_OK;
}

void gn_staged_list_release(struct gn_staged_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->items[i].name);
	free(l->items);
	free(l->folder);
	*l = (struct gn_staged_list){0};
}

const char *gn_staged_state_name(enum gn_staged_state state)
{
	static const char *const names[] = {[GN_STAGED_COMPLETE] = "complete", [GN_STAGED_INCOMPLETE] = "incomplete",
					    [GN_STAGED_IN_USE] = "in use", [GN_STAGED_IN_WORK] = "being staged",
					    [GN_STAGED_CHANGED] = "changed", [GN_STAGED_REMOVED] = "removed"};

	return names[state];
}
