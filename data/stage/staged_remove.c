#include "data/stage/staged_internal.h"

#include "data/stage/stage_marker.h"
#include "data/stage/tree_target_internal.h"
#include "src/base/trust.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What keeps others away during a removal. -1: not needed. */
struct claim {
	int lock, inner_lock, fetch, root;
};

static void give_back(const struct claim *c)
{
	const int all[] = {c->root, c->fetch, c->inner_lock, c->lock};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i] >= 0)
			close(all[i]);
}

/* A lock that does not exist is not made in a folder that may be no copy. */
static enum gn_status lock_if_there(const char *path, const char *root, int *out, struct gn_err *err)
{
	return gn_stage_is_own_path(path) ? gn_stage_lock(path, root, 0, NULL, out, NULL, err) : GN_OK;
}

static enum gn_status claim_all(const struct gn_staged_paths *p, struct claim *c, struct gn_err *err)
{
	enum gn_status status = gn_stage_lock(p->lock, p->root, 0, NULL, &c->lock, NULL, err);

	if (!status)
		status = lock_if_there(p->inner_lock, p->root, &c->inner_lock, err);
	if (!status)
		status = lock_if_there(p->fetch, p->root, &c->fetch, err);
	return status;
}

static enum gn_status move_away(const struct gn_staged_paths *p, struct gn_err *err)
{
	char old[PATH_MAX + 8];
	enum gn_status status = gn_stage_make_private(p->part, err);
	struct stat info;

	if (status)
		return status;
	snprintf(old, sizeof old, "%s/old", p->part);
	status = gn_tree_remove(old, err);
	/* a folder that its owner cannot write cannot be moved to another one */
	if (!status && !lstat(p->root, &info) && S_ISDIR(info.st_mode) && chmod(p->root, 0700))
		status = gn_err_errno(err, errno, "cannot change the permissions of %s", p->root);
	if (!status && rename(p->root, old))
		status = gn_err_errno(err, errno, "cannot move %s out of the way", p->root);
	return status;
}

static enum gn_status remove_file(const char *path, struct gn_err *err)
{
	return unlink(path) && errno != ENOENT ? gn_err_errno(err, errno, "cannot remove %s", path) : GN_OK;
}

/* All locks are held. A death in between leaves an incomplete copy. */
static enum gn_status delete_all(const struct gn_staged_paths *p, enum gn_staged_root root, int has_part, struct gn_err *err)
{
	enum gn_status status = root == GN_STAGED_ROOT_OURS ? move_away(p, err) : GN_OK;

	/* the marker that is left without a root, or beside the files of somebody else, says nothing */
	if (!status && root != GN_STAGED_ROOT_OTHER && gn_stage_is_own_path(p->marker))
		status = remove_file(p->marker, err);
	if (!status && (has_part || root == GN_STAGED_ROOT_OURS))
		status = gn_tree_remove(p->part, err);
	if (!status && gn_stage_is_own_path(p->fetch))
		status = remove_file(p->fetch_state, err);
	if (!status && gn_stage_is_own_path(p->fetch))
		status = remove_file(p->fetch, err);
	return status;
}

static enum gn_status remove_claimed(const struct gn_staged_paths *p, struct claim *c, struct gn_err *err)
{
	const char *kind;
	/* again, now that it cannot change */
	enum gn_staged_root root = gn_staged_look(p, &kind);
	int has_part = gn_staged_has_part(p);
	enum gn_status status;

	if (root == GN_STAGED_ROOT_OTHER && !has_part)
		return gn_err_set(err, GN_ERR_EXISTS, "%s has files that gannet stage did not make, or that were changed since: remove it yourself", p->root);
	if (root == GN_STAGED_ROOT_UNFINISHED && !has_part)
		return gn_err_set(err, GN_ERR_EXISTS, "%s is a dataset that was not staged to its end: stage it again, or remove it yourself", p->root);
	status = root != GN_STAGED_ROOT_OURS ? GN_OK :
		 gn_stage_claim(p->root, "is in use: it is removed only when no process holds it", &c->root, err);
	if (!status)
		status = delete_all(p, root, has_part, err);
	return status;
}

enum gn_status gn_staged_remove(const struct gn_staged_list *l, struct gn_staged *s, struct gn_err *err)
{
	struct claim c = {-1, -1, -1, -1};
	struct gn_staged_paths p;
	enum gn_status status = gn_staged_paths_of(l->folder, s->name, &p, err);

	if (!status)
		status = gn_trust_check_path(p.root, err);
	if (!status)
		status = claim_all(&p, &c, err);
	if (!status)
		status = remove_claimed(&p, &c, err);
	/* while it is held: who waits for it sees that its file is another one */
	if (c.lock >= 0)
		unlink(p.lock);
	give_back(&c);
	if (!status)
		s->state = GN_STAGED_REMOVED;
	return status;
}

static uint64_t sum(const struct gn_staged_list *l, const char *except)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < l->count; i++)
		if (l->items[i].state != GN_STAGED_REMOVED && (!except || strcmp(l->items[i].name, except) != 0))
			bytes += l->items[i].bytes;
	return bytes;
}

enum gn_status gn_staged_shrink(struct gn_staged_list *l, const char *except, uint64_t needed_bytes, uint64_t quota_bytes, struct gn_log *log,
				struct gn_err *err)
{
	uint64_t left = quota_bytes > needed_bytes ? quota_bytes - needed_bytes : 0, used;

	if (needed_bytes > quota_bytes)
		return gn_err_set(err, GN_ERR_NO_SPACE, "the copy takes %.1f MB, more than --quota, %.1f MB", (double)needed_bytes * 1e-6,
				  (double)quota_bytes * 1e-6);
	for (size_t i = 0; i < l->count && sum(l, except) > left; i++) {
		struct gn_staged *s = &l->items[i];
		struct gn_err why;

		if ((s->state != GN_STAGED_COMPLETE && s->state != GN_STAGED_INCOMPLETE) || (except && !strcmp(s->name, except)))
			continue;
		if (gn_staged_remove(l, s, &why))
			gn_log_info(log, "%s", why.text);
		else
			gn_log_info(log, "%s/%s: removed for --quota (%.1f MB)", l->folder, s->name, (double)s->bytes * 1e-6);
	}
	used = sum(l, except);
	if (used <= left)
		return GN_OK;
	return gn_err_set(err, GN_ERR_NO_SPACE, "--quota is %.1f MB, and %.1f MB in %s cannot be removed (gannet stage --list --to %s says why)%s",
			  (double)quota_bytes * 1e-6, (double)used * 1e-6, l->folder, l->folder,
			  needed_bytes ? ": too little is left for the copy" : "");
}

enum gn_status gn_staged_make_room(const char *to, uint64_t needed_bytes, uint64_t quota_bytes, struct gn_log *log, struct gn_err *err)
{
	struct gn_staged_list l;
	enum gn_status status;
	char folder[PATH_MAX], except[PATH_MAX];

	if (!quota_bytes)
		return GN_OK;
	status = gn_staged_split(to, folder, except, err);
	if (!status)
		status = gn_staged_list_load(folder, &l, err);
	if (status)
		return status;
	status = gn_staged_shrink(&l, except, needed_bytes, quota_bytes, log, err);
	gn_staged_list_release(&l);
	return status;
}
