#include "src/train/checkpoint.h"

#include "src/base/file.h"
#include "src/train/safetensors.h"
#include "src/train/weights.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANK_FILES = 3 };

struct paths {
	char folder[PATH_MAX];	  /* DIR/step-N */
	char temporary[PATH_MAX]; /* DIR/step-N.tmp */
	char leaf[32];		  /* step-N */
};

static enum gn_status name_paths(const char *directory, uint64_t step, struct paths *p, struct gn_err *err)
{
	snprintf(p->leaf, sizeof p->leaf, "step-%08llu", (unsigned long long)step);
	if ((size_t)snprintf(p->folder, sizeof p->folder, "%s/%s", directory, p->leaf) + 8 >= sizeof p->folder)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", directory);
	snprintf(p->temporary, sizeof p->temporary, "%.*s.tmp", (int)sizeof p->temporary - 8, p->folder);
	return GN_OK;
}

static int is_step_name(const char *name, int temporary)
{
	size_t digits = strspn(name + (strncmp(name, "step-", 5) ? 0 : 5), "0123456789");

	if (strncmp(name, "step-", 5) || digits < 8)
		return 0;
	return !strcmp(name + 5 + digits, temporary ? ".tmp" : "");
}

static int is_finished(const struct dirent *entry)
{
	return is_step_name(entry->d_name, 0);
}

static int is_temporary(const struct dirent *entry)
{
	return is_step_name(entry->d_name, 1);
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

/* Removes the oldest folders that filter accepts until at most keep up to newest (NULL: up to the last) are left. What is newer
 * than newest was passed over on resume: not whole, so it must not push out what is. */
static enum gn_status prune(const char *directory, int (*filter)(const struct dirent *), const char *newest, int keep,
			    struct gn_err *err)
{
	struct dirent **names;
	enum gn_status status = GN_OK;
	int count = scandir(directory, &names, filter, versionsort), known = 0;

	if (count < 0)
		return gn_err_errno(err, errno, "cannot list %s", directory);
	while (known < count && (!newest || strverscmp(names[known]->d_name, newest) <= 0))
		known++;
	for (int i = 0; i < count; i++) {
		char path[PATH_MAX];

		if (i < known - keep && !status)
			status = gn_path_join(path, sizeof path, directory, names[i]->d_name, err);
		if (i < known - keep && !status)
			status = gn_remove_tree(path, err);
		free(names[i]);
	}
	free(names);
	return status;
}

static enum gn_status prepare(const char *directory, const struct paths *p, struct gn_err *err)
{
	enum gn_status status = gn_make_dirs(directory, err);

	if (!status)
		status = prune(directory, is_temporary, NULL, 0, err);
	if (!status && mkdir(p->temporary, 0777))
		status = gn_err_errno(err, errno, "cannot make folder %s", p->temporary);
	return status;
}

/* One slot from begin to end, cut at tensor borders into pieces that say where they begin. Returns how many. */
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
		e->data = values + from;
		count++;
	}
	return count;
}

/* This rank's share of the optimizer's slots. */
static enum gn_status write_share(const char *path, const struct gn_model *model, enum gn_optim_kind optimizer,
				  float *const *slots, size_t begin, size_t end, struct gn_checkpoint_file *file,
				  struct gn_err *err)
{
	static const char *const metadata[] = {"format", "gannet-optimizer"};
	size_t params = (size_t)gn_model_param_count(model), count = 0;
	struct gn_tensor_entry *pieces = calloc(GN_OPTIM_SLOTS_MAX * params + 1, sizeof *pieces);
	enum gn_status status;

	if (!pieces)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (int k = 0; k < gn_optim_slots(optimizer); k++)
		count += cut_slot(model, k, slots[k], begin, end, pieces + count);
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

/* Files of this rank: [0] its optimizer share, [1] the model, [2] its average (rank 0; elsewhere the names stay empty). */
static enum gn_status write_files(struct gn_comm *comm, const struct paths *p, const struct gn_checkpoint_info *info,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *a,
				  struct gn_checkpoint_file files[RANK_FILES], struct gn_err *err)
{
	size_t elements = gn_model_param_elements(model), ranks = (size_t)gn_comm_size(comm);
	size_t rank = (size_t)gn_comm_rank(comm), each = elements / ranks + 1, begin = rank * each;
	char path[PATH_MAX];
	enum gn_status status;

	snprintf(files[0].name, sizeof files[0].name, "optimizer-%05zu.safetensors", rank);
	status = gn_path_join(path, sizeof path, p->temporary, files[0].name, err);
	if (!status)
		status = write_share(path, model, info->optimizer, a->slots, begin < elements ? begin : elements,
				     begin + each < elements ? begin + each : elements, &files[0], err);
	if (!status && !rank)
		status = write_weights(p, info, model, "model.safetensors", a->params, a->buffers, &files[1], err);
	if (!status && !rank && a->average_params)
		status = write_weights(p, info, model, "ema.safetensors", a->average_params, a->average_buffers,
				       &files[2], err);
	return status;
}

/* `latest` is a convenience for people and scripts; it moves by rename so that it always points at something whole. */
static enum gn_status move_latest(const char *directory, const struct paths *p, struct gn_err *err)
{
	char link[PATH_MAX], fresh[PATH_MAX];
	enum gn_status status = gn_path_join(link, sizeof link, directory, "latest", err);

	if (!status)
		status = gn_path_join(fresh, sizeof fresh, directory, "latest.tmp", err);
	if (status)
		return status;
	unlink(fresh);
	if (symlink(p->leaf, fresh) || rename(fresh, link))
		return gn_err_errno(err, errno, "cannot point %s at %s", link, p->leaf);
	return gn_sync_dir(directory, err);
}

/* A folder of that step from an earlier, worse life (it failed verification) makes way. */
static enum gn_status put_in_place(const char *directory, const struct paths *p, struct gn_err *err)
{
	enum gn_status status = gn_sync_dir(p->temporary, err);

	if (!status && access(p->folder, F_OK) == 0)
		status = gn_remove_tree(p->folder, err);
	if (!status && rename(p->temporary, p->folder))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", p->temporary, p->folder);
	if (!status)
		status = gn_sync_dir(directory, err);
	return status;
}

static enum gn_status commit(const char *directory, const struct paths *p, const struct gn_checkpoint_info *info,
			     const struct gn_checkpoint_file *all, size_t count, int keep, struct gn_err *err)
{
	struct gn_checkpoint_file *named = calloc(count, sizeof *named);
	size_t used = 0;
	enum gn_status status;

	if (!named)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the manifest of %s", p->folder);
	for (size_t i = 0; i < count; i++)
		if (all[i].name[0])
			named[used++] = all[i];
	status = gn_checkpoint_manifest_write(p->temporary, info, named, used, err);
	free(named);
	if (!status)
		status = put_in_place(directory, p, err);
	if (!status)
		status = move_latest(directory, p, err);
	if (!status)
		status = prune(directory, is_finished, p->leaf, keep, err);
	return status;
}

enum gn_status gn_checkpoint_save(struct gn_comm *comm, const char *directory, const struct gn_checkpoint_info *info,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *arrays, int keep,
				  struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(comm);
	struct gn_checkpoint_file mine[RANK_FILES] = {0}, *all = calloc(RANK_FILES * ranks, sizeof *all);
	int root = gn_comm_rank(comm) == 0;
	struct paths p;
	enum gn_status status = name_paths(directory, info->state.step, &p, err);

	if (!all)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to save a checkpoint");
	if (!status && root)
		status = prepare(directory, &p, err);
	status = gn_agree_status(comm, status, err);
	if (!status) {
		status = write_files(comm, &p, info, model, arrays, mine, err);
		status = gn_agree_status(comm, status, err);
		if (!status)
			status = gn_agree_gather(comm, mine, sizeof mine, all, err);
		if (!status) {
			if (root)
				status = commit(directory, &p, info, all, RANK_FILES * ranks, keep, err);
			status = gn_agree_status(comm, status, err);
		}
		if (status && root)
			gn_remove_tree(p.temporary, NULL);
	}
	free(all);
	return status;
}
