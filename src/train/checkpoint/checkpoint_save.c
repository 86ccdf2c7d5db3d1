#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/train/checkpoint/owner.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANK_FILES = 4 };

struct paths {
	char folder[PATH_MAX];	  /* DIR/step-N */
	char temporary[PATH_MAX]; /* DIR/step-N.NONCE.tmp */
	char leaf[32];		  /* step-N */
};

/* DIR/NAME.NONCE.tmp */
static enum gn_status name_temporary(const struct gn_checkpoint_target *t, const char *name, char path[PATH_MAX],
				     struct gn_err *err)
{
	if ((size_t)snprintf(path, PATH_MAX, "%s/%s.%s.tmp", t->directory, name, t->nonce) >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", t->directory);
	return GN_OK;
}

static enum gn_status name_paths(const struct gn_checkpoint_target *t, uint64_t step, struct paths *p, struct gn_err *err)
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

/* Includes step-N.tmp, the name of earlier versions. */
static int is_temporary(const struct dirent *entry)
{
	const char *rest = after_step(entry->d_name);
	size_t len = rest ? strlen(rest) : 0;

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

/* Removes the oldest checkpoints until at most t->keep up to newest remain beside those that stay; without newest, all unfinished ones.
 * Continues after failures and reports the first. Checkpoints newer than newest were rejected on resume; they are damaged and must not count. */
static enum gn_status prune(const struct gn_checkpoint_target *t, const char *newest, struct gn_err *err)
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
		if (i < known - (newest ? t->keep : 0) && !(newest && stays(t, names[i]->d_name, best))) {
			status = remove_one(t, names[i]->d_name, newest != NULL, first ? NULL : err);
			first = first ? first : status;
		}
		free(names[i]);
	}
	free(names);
	return first;
}

static enum gn_status prepare(const struct gn_checkpoint_target *t, const struct paths *p, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = gn_owner_check(t->owner, err);

	if (!status && prune(t, NULL, &why))
		gn_log_warn(t->log, "cannot remove an unfinished checkpoint yet: %s", why.text);
	if (!status && mkdir(p->temporary, 0777))
		status = gn_err_errno(err, errno, "cannot make folder %s", p->temporary);
	return status;
}

/* Splits elements begin .. end of a slot, which are at values, at tensor boundaries into pieces named with their first element. Returns
 * their number. */
static size_t cut_slot(const struct gn_model *model, int slot, const float *values, size_t begin, size_t end,
		       struct gn_tensor_entry *pieces)
{
	size_t count = 0;

	for (int i = 0; i < gn_model_param_count(model); i++) {
		const struct gn_param *t = gn_model_param(model, i);
		size_t from = begin > t->offset ? begin : t->offset;
		size_t to = end < t->offset + t->count ? end : t->offset + t->count;
		struct gn_tensor_entry *e = &pieces[count];

		if (from >= to)
			continue;
		snprintf(e->name, sizeof e->name, "%s/%s@%zu", gn_optim_slot_name(slot), t->name, from - t->offset);
		e->type = GN_TENSOR_F32;
		e->dims = 1;
		e->shape[0] = (int64_t)(to - from);
		e->len_bytes = (to - from) * sizeof(float);
		e->data = values + (from - begin);
		count++;
	}
	return count;
}

/* Writes this node's or rank's part of the optimizer's slots: elements begin to end of each. */
static enum gn_status write_slots(const char *path, const struct gn_model *model, enum gn_optim_kind optimizer,
				  const struct gn_checkpoint_arrays *a, size_t begin, size_t end, struct gn_checkpoint_file *file,
				  struct gn_err *err)
{
	static const char *const metadata[] = {"format", "gannet-optimizer"};
	size_t params = (size_t)gn_model_param_count(model), count = 0;
	struct gn_tensor_entry *pieces = calloc(GN_OPTIM_SLOTS_MAX * params + 1, sizeof *pieces);
	enum gn_status status;

	if (!pieces)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (int k = 0; k < gn_optim_slots(optimizer); k++)
		count += cut_slot(model, k, a->is_split ? a->slots[k] : a->slots[k] + begin, begin, end, pieces + count);
	status = gn_safetensors_write(path, pieces, count, metadata, 1, file->sha256, &file->len_bytes, err);
	free(pieces);
	return status;
}

static enum gn_status write_weights(const struct paths *p, const struct gn_checkpoint_info *info,
				    const struct gn_model *model, const char *name, const float *params,
				    const float *buffers, struct gn_checkpoint_file *file, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, p->temporary, name, err);

	snprintf(file->name, sizeof file->name, "%s", name);
	if (!status)
		status = gn_weights_save(path, model, params, buffers, info->state.step, file->sha256, &file->len_bytes,
					 err);
	return status;
}

/* Where every rank holds all slots one per node writes, on the first node not rank 0, which writes the model. */
static int writes_slots(const struct gn_world *w, int rank)
{
	for (int r = rank + 1; r < gn_world_size(w); r++)
		if (gn_world_node_of(w, r) == gn_world_node_of(w, rank))
			return 0;
	return 1;
}

/* Files of this rank: [0] its node's or its own part of the optimizer, [1] the model, [2] its average (rank 0), [3] what this rank alone
 * has. Names of files that it does not write are empty. */
static enum gn_status write_files(struct gn_comm *comm, const struct paths *p, const struct gn_checkpoint_info *info,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *a,
				  struct gn_checkpoint_file files[RANK_FILES], struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	int rank = gn_comm_rank(comm);
	size_t elements = gn_model_param_elements(model), node = (size_t)gn_world_node_of(w, rank);
	size_t each = elements / (size_t)gn_world_nodes(w) + 1, begin = a->is_split ? a->begin : node * each;
	size_t end = a->is_split ? a->end : begin + each;
	char path[PATH_MAX];
	enum gn_status status = GN_OK;

	if (a->is_split ? a->begin < a->end : writes_slots(w, rank)) {
		snprintf(files[0].name, sizeof files[0].name, "optimizer-%05zu.safetensors", a->is_split ? (size_t)rank : node);
		status = gn_path_join(path, sizeof path, p->temporary, files[0].name, err);
		if (!status)
			status = write_slots(path, model, info->optimizer, a, begin < elements ? begin : elements,
					     end < elements ? end : elements, &files[0], err);
	}
	if (!status && !rank)
		status = write_weights(p, info, model, "model.safetensors", a->params, a->buffers, &files[1], err);
	if (!status && !rank && a->average_params)
		status = write_weights(p, info, model, "ema.safetensors", a->average_params, a->average_buffers,
				       &files[2], err);
	return status ? status : gn_checkpoint_rank_write(p->temporary, rank, model, a->own, &files[3], err);
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
	struct paths p;
	enum gn_status status = name_paths(target, step, &p, err);

	if (!status)
		status = gn_owner_check(target->owner, err);
	if (!status)
		status = move_link(target, "best", p.leaf, err);
	return status ? status : prune(target, p.leaf, err);
}

/* The file that keeps a checkpoint for ever, where it is due. */
static enum gn_status put_keep(const struct gn_checkpoint_target *t, const struct paths *p, int64_t number, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status;

	if (!t->keep_every || number % t->keep_every)
		return GN_OK;
	status = gn_path_join(path, sizeof path, p->temporary, "keep", err);
	return status ? status : gn_file_replace(path, "", 0, err);
}

/* Replaces a damaged checkpoint of the same step. */
static enum gn_status put_in_place(const struct gn_checkpoint_target *t, const struct paths *p, struct gn_err *err)
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

/* Once the folder has its final name the checkpoint exists, even if later steps fail. */
static enum gn_status commit(const struct gn_checkpoint_target *t, const struct paths *p, const struct gn_checkpoint_info *info,
			     const struct gn_checkpoint_file *all, size_t count, struct gn_err *err)
{
	struct gn_checkpoint_file *named = calloc(count, sizeof *named);
	struct gn_err why;
	size_t used = 0;
	enum gn_status status;

	if (!named)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the manifest of %s", p->folder);
	for (size_t i = 0; i < count; i++)
		if (all[i].name[0])
			named[used++] = all[i];
	status = put_keep(t, p, info->number, err);
	if (!status)
		status = gn_checkpoint_manifest_write(p->temporary, info, named, used, err);
	free(named);
	if (!status)
		status = gn_owner_check(t->owner, err);
	if (!status)
		status = put_in_place(t, p, err);
	if (status)
		return status;
	if (move_link(t, "latest", p->leaf, &why))
		gn_log_warn(t->log, "checkpoint %s is saved, but %s", p->folder, why.text);
	if (prune(t, p->leaf, &why))
		gn_log_warn(t->log, "cannot remove an old checkpoint yet: %s", why.text);
	return GN_OK;
}

/* Collective. All ranks have agreed on the destination. */
static enum gn_status write_and_commit(struct gn_comm *comm, const struct gn_checkpoint_target *t, const struct paths *p,
				       const struct gn_checkpoint_info *info, const struct gn_model *model,
				       const struct gn_checkpoint_arrays *arrays, struct gn_checkpoint_file *all,
				       struct gn_err *err)
{
	struct gn_checkpoint_file mine[RANK_FILES] = {0};
	enum gn_status status = gn_agree_status(comm, write_files(comm, p, info, model, arrays, mine, err), err);

	if (status)
		return status;
	status = gn_agree_gather(comm, mine, sizeof mine, all, err);
	/* the ranks did not agree on this failure: the run cannot continue */
	if (status)
		return status == GN_ERR_NO_MEMORY ? gn_err_set(err, GN_ERR_FAILED, "no memory to save a checkpoint") : status;
	if (gn_comm_rank(comm) == 0)
		status = commit(t, p, info, all, RANK_FILES * (size_t)gn_comm_size(comm), err);
	return gn_agree_status(comm, status, err);
}

enum gn_status gn_checkpoint_save(struct gn_comm *comm, const struct gn_checkpoint_target *target,
				  const struct gn_checkpoint_info *info, const struct gn_model *model,
				  const struct gn_checkpoint_arrays *arrays, struct gn_err *err)
{
	struct gn_checkpoint_file *all = calloc(RANK_FILES * (size_t)gn_comm_size(comm), sizeof *all);
	int root = gn_comm_rank(comm) == 0;
	struct paths p;
	enum gn_status status = name_paths(target, info->state.step, &p, err);

	if (!all)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to save a checkpoint");
	if (!status && root)
		status = prepare(target, &p, err);
	status = gn_agree_status(comm, status, err);
	if (!status) {
		status = write_and_commit(comm, target, &p, info, model, arrays, all, err);
		if (status && root)
			gn_remove_tree(p.temporary, NULL);
	}
	free(all);
	return status;
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
	struct paths p;
	enum gn_status status = name_paths(target, info->state.step, &p, err);

	if (!status && root)
		status = prepare(target, &p, err);
	made = !status && root;
	if (made)
		status = check_space(target, info, model, average, err);
	status = gn_agree_status(comm, status, err);
	if (!status && (root || writes_slots(gn_comm_world(comm), gn_comm_rank(comm)))) {
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
