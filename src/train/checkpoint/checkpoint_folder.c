/* The folder of a run's checkpoints: names, the commit by rename, links, and what is removed. */
#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/train/checkpoint/owner.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tenth of a second each. */
#define SHARED_TRIES 30

/* DIR/NAME.NONCE.tmp */
static enum gn_status name_temporary(const struct gn_checkpoint_target *t, const char *name, char path[PATH_MAX],
				     struct gn_err *err)
{
	if ((size_t)snprintf(path, PATH_MAX, "%s/%s.%s.tmp", t->directory, name, t->nonce) >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", t->directory);
	return GN_OK;
}

enum gn_status gn_checkpoint_name_paths(const struct gn_checkpoint_target *t, uint64_t step, struct gn_checkpoint_paths *p, struct gn_err *err)
{
	enum gn_status status;

	snprintf(p->leaf, sizeof p->leaf, "step-%08llu", (unsigned long long)step);
	status = name_temporary(t, p->leaf, p->temporary, err);
	return status ? status : gn_path_join(p->folder, sizeof p->folder, t->directory, p->leaf, err);
}

/* The digits after "step-", at least eight; NULL for other names. */
static const char *after_step(const char *name)
{
	size_t digits = strncmp(name, "step-", 5) ? 0 : strspn(name + 5, "0123456789");

	return digits < 8 ? NULL : name + 5 + digits;
}

static int is_finished(const struct dirent *entry)
{
	const char *rest = after_step(entry->d_name);

	return rest && !*rest;
}

/* Includes step-N.tmp, the name of earlier versions, and what is left of links, and of looks at the age of an owner. */
static int is_temporary(const struct dirent *entry)
{
	static const char *const others[] = {"latest.", "best.", "owner."};
	const char *rest = after_step(entry->d_name);
	size_t len = rest ? strlen(rest) : 0;

	for (size_t i = 0; !rest && i < sizeof others / sizeof *others; i++)
		if (!strncmp(entry->d_name, others[i], strlen(others[i]))) {
			rest = entry->d_name + strlen(others[i]) - 1;
			len = strlen(rest);
		}
	return len >= 4 && *rest == '.' && !strcmp(rest + len - 4, ".tmp");
}

int gn_checkpoint_any(const char *directory)
{
	struct dirent **names;
	int count = scandir(directory, &names, is_finished, versionsort);

	for (int i = 0; i < count; i++)
		free(names[i]);
	if (count >= 0)
		free(names);
	return count > 0;
}

/* Renames before removal: a partially removed folder must not look like a checkpoint, and the next save removes the rest. */
static enum gn_status rename_aside(const struct gn_checkpoint_target *t, const char *name, char aside[PATH_MAX], struct gn_err *err)
{
	char path[PATH_MAX], old[64];
	enum gn_status status = gn_path_join(path, sizeof path, t->directory, name, err);

	snprintf(old, sizeof old, "%.48s.old", name);
	if (!status)
		status = name_temporary(t, old, aside, err);
	if (!status && rename(path, aside))
		status = gn_err_errno(err, errno, "cannot remove %s", path);
	return status;
}

static enum gn_status remove_one(const struct gn_checkpoint_target *t, const char *name, int finished, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = finished ? rename_aside(t, name, path, err)
					 : gn_path_join(path, sizeof path, t->directory, name, err);

	return status ? status : gn_remove_tree(path, err);
}

/* The best one, and those that are to stay for ever. best: what the link says. */
static int stays(const struct gn_checkpoint_target *t, const char *name, const char *best)
{
	char path[PATH_MAX];

	return !strcmp(name, best) ||
	       ((size_t)snprintf(path, sizeof path, "%s/%s/keep", t->directory, name) < sizeof path && !access(path, F_OK));
}

static void read_best(const struct gn_checkpoint_target *t, char best[64])
{
	char path[PATH_MAX];
	ssize_t len = gn_path_join(path, sizeof path, t->directory, "best", NULL) ? -1 : readlink(path, best, 63);

	best[len > 0 ? len : 0] = '\0';
}

/* Removes the oldest checkpoints until at most t->keep up to newest remain beside those that stay; without newest, all unfinished ones
 * but `own`.
 * Continues after failures and reports the first. Checkpoints newer than newest were rejected on resume; they are damaged and must not count. */
static enum gn_status prune(const struct gn_checkpoint_target *t, const char *newest, const char *own, struct gn_err *err)
{
	struct dirent **names;
	enum gn_status status, first = GN_OK;
	int count = scandir(t->directory, &names, newest ? is_finished : is_temporary, versionsort), known = 0;
	char best[64];

	read_best(t, best);
	if (count < 0)
		return gn_err_errno(err, errno, "cannot list %s", t->directory);
	while (known < count && (!newest || strverscmp(names[known]->d_name, newest) <= 0))
		known++;
	for (int i = 0; i < count; i++) {
		if (i < known - (newest ? t->keep : 0) && !(newest ? stays(t, names[i]->d_name, best) : own && !strcmp(names[i]->d_name, own))) {
			status = remove_one(t, names[i]->d_name, newest != NULL, first ? NULL : err);
			first = first ? first : status;
		}
		free(names[i]);
	}
	free(names);
	return first;
}

enum gn_status gn_checkpoint_make_temporary(const struct gn_checkpoint_paths *p, struct gn_err *err)
{
	if (mkdir(p->temporary, 0777) && errno != EEXIST)
		return gn_err_errno(err, errno, "cannot make folder %s", p->temporary);
	return GN_OK;
}

enum gn_status gn_checkpoint_prepare(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = gn_owner_check(t->owner, err);

	if (!status && prune(t, NULL, strrchr(p->temporary, '/') + 1, &why))
		gn_log_warn(t->log, "cannot remove an unfinished checkpoint yet: %s", why.text);
	return status ? status : gn_checkpoint_make_temporary(p, err);
}

/* `latest` and `best` are for users and scripts; they are replaced by rename, so that they always point to a complete checkpoint. */
static enum gn_status move_link(const struct gn_checkpoint_target *t, const char *name, const char *leaf, struct gn_err *err)
{
	char link[PATH_MAX], fresh[PATH_MAX];
	enum gn_status status = gn_path_join(link, sizeof link, t->directory, name, err);

	if (!status)
		status = name_temporary(t, name, fresh, err);
	if (status)
		return status;
	if (symlink(leaf, fresh) || rename(fresh, link)) {
		status = gn_err_errno(err, errno, "cannot point %s at %s", link, leaf);
		unlink(fresh);
		return status;
	}
	return gn_sync_dir(t->directory, err);
}

enum gn_status gn_checkpoint_mark_best(const struct gn_checkpoint_target *target, uint64_t step, struct gn_err *err)
{
	struct gn_checkpoint_paths p;
	enum gn_status status = gn_checkpoint_name_paths(target, step, &p, err);

	if (!status)
		status = gn_owner_check(target->owner, err);
	if (!status)
		status = move_link(target, "best", p.leaf, err);
	return status ? status : prune(target, p.leaf, NULL, err);
}

/* The file that keeps a checkpoint for ever, where it is due. */
static enum gn_status put_keep(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, int64_t number, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status;

	if (!t->keep_every || number % t->keep_every)
		return GN_OK;
	status = gn_path_join(path, sizeof path, p->temporary, "keep", err);
	return status ? status : gn_file_replace(path, "", 0, err);
}

/* Replaces a damaged checkpoint of the same step. */
static enum gn_status put_in_place(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, struct gn_err *err)
{
	char aside[PATH_MAX];
	enum gn_status status = gn_sync_dir(p->temporary, err);
	int replaces = !status && access(p->folder, F_OK) == 0;

	if (replaces)
		status = rename_aside(t, p->leaf, aside, err);
	if (!status && rename(p->temporary, p->folder))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", p->temporary, p->folder);
	if (!status)
		status = gn_sync_dir(t->directory, err);
	/* a folder that cannot be removed now is removed by the next save */
	if (!status && replaces)
		gn_remove_tree(aside, NULL);
	return status;
}

enum gn_status gn_checkpoint_place(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, int64_t number,
				   struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = put_keep(t, p, number, err);

	if (!status)
		status = gn_owner_check(t->owner, err);
	if (!status)
		status = put_in_place(t, p, err);
	if (status)
		return status;
	if (move_link(t, "latest", p->leaf, &why))
		gn_log_warn(t->log, "checkpoint %s is saved, but %s", p->folder, why.text);
	if (prune(t, p->leaf, NULL, &why))
		gn_log_warn(t->log, "cannot remove an old checkpoint yet: %s", why.text);
	return GN_OK;
}

/* Lower bound of the size of a checkpoint. */
static enum gn_status check_space(const struct gn_checkpoint_target *t, const struct gn_checkpoint_info *info,
				  const struct gn_model *model, int average, struct gn_err *err)
{
	uint64_t params = gn_model_param_elements(model), buffers = gn_model_buffer_elements(model), bytes, space;
	enum gn_status status = gn_free_bytes(t->directory, &space, err);

	bytes = sizeof(float) * ((average ? 2 : 1) * (params + buffers) + (uint64_t)gn_optim_slots(info->optimizer) * params);
	if (!status && space < bytes)
		status = gn_err_errno(err, ENOSPC, "%s has %.1f MB free, a checkpoint needs %.1f MB", t->directory,
				      (double)space * 1e-6, (double)bytes * 1e-6);
	return status;
}

enum gn_status gn_checkpoint_try(struct gn_comm *comm, const struct gn_checkpoint_target *target,
				 const struct gn_checkpoint_info *info, const struct gn_model *model, int average,
				 struct gn_err *err)
{
	int root = gn_comm_rank(comm) == 0, made;
	char name[32], path[PATH_MAX];
	struct gn_checkpoint_paths p;
	enum gn_status status = gn_checkpoint_name_paths(target, info->state.step, &p, err);

	if (!status && root)
		status = gn_checkpoint_prepare(target, &p, err);
	made = !status && root;
	if (made)
		status = check_space(target, info, model, average, err);
	status = gn_agree_status(comm, status, err);
	if (!status && (root || gn_checkpoint_writes_slots(comm))) {
		snprintf(name, sizeof name, "try-%05d", gn_comm_rank(comm));
		status = gn_path_join(path, sizeof path, p.temporary, name, err);
		if (!status)
			status = gn_file_replace(path, "try\n", 4, err);
	}
	status = gn_agree_status(comm, status, err);
	if (made && gn_remove_tree(p.temporary, NULL))
		gn_log_warn(target->log, "cannot remove %s yet", p.temporary);
	return status;
}

enum gn_status gn_checkpoint_check_shared(struct gn_comm *comm, const struct gn_checkpoint_target *target, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	int root = gn_comm_rank(comm) == 0, tries = gn_checkpoint_writes_slots(comm) ? SHARED_TRIES : 0;
	char path[PATH_MAX];
	enum gn_status status;

	if (gn_world_nodes(w) == 1)
		return GN_OK;
	/* no node has looked for this name before: NFS remembers for a while what was not there */
	status = name_temporary(target, "owner.seen", path, err);
	if (!status && root)
		status = gn_file_replace(path, "", 0, err);
	status = gn_agree_status(comm, status, err);
	while (!status && tries && access(path, F_OK) && --tries)
		gn_clock_sleep_ns(100000000);
	if (!status && gn_checkpoint_writes_slots(comm) && !tries)
		status = gn_err_set(err, GN_ERR_IO, "--checkpoint %s is not the folder that rank 0 on %s has there: checkpoints need "
				    "a file system that all nodes share", target->directory, gn_world_host_of(w, gn_comm_world_rank(comm, 0)));
	status = gn_agree_status(comm, status, err);
	if (root)
		unlink(path);
	return status;
}
