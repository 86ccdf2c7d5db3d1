/* The files of a checkpoint that a rank writes. */
#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
static enum gn_status write_slots(const char *path, const struct gn_checkpoint_info *info, const struct gn_model *model,
				  const struct gn_checkpoint_arrays *a, size_t begin, size_t end, struct gn_checkpoint_file *file,
				  struct gn_err *err)
{
	static const char *const metadata[] = {"format", "gannet-optimizer"};
	size_t params = (size_t)gn_model_param_count(model), count = 0;
	struct gn_tensor_entry *pieces = calloc(GN_OPTIM_SLOTS_MAX * params + 1, sizeof *pieces);
	enum gn_status status;

	if (!pieces)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (int k = 0; k < gn_optim_slots(info->optimizer); k++)
		count += cut_slot(model, k, a->is_split ? a->slots[k] : a->slots[k] + begin, begin, end, pieces + count);
	status = gn_safetensors_write(path, info->key, pieces, count, metadata, 1, file->sha256, &file->len_bytes, err);
	free(pieces);
	return status;
}

/* A file of an earlier attempt goes. */
static enum gn_status name_file(const char *folder, const char *name, struct gn_checkpoint_file *file, char path[PATH_MAX],
				struct gn_err *err)
{
	enum gn_status status = gn_path_join(path, PATH_MAX, folder, name, err);

	snprintf(file->name, sizeof file->name, "%s", name);
	if (!status)
		unlink(path);
	return status;
}

static enum gn_status write_weights(const char *folder, const struct gn_checkpoint_info *info,
				    const struct gn_model *model, const char *name, const float *params,
				    const float *buffers, struct gn_checkpoint_file *file, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = name_file(folder, name, file, path, err);

	if (!status)
		status = gn_weights_save(path, info->key, model, params, buffers, info->state.step, file->sha256, &file->len_bytes, err);
	return status;
}

int gn_checkpoint_node(const struct gn_comm *c, int rank)
{
	return gn_world_node_of(gn_comm_world(c), gn_comm_world_rank(c, rank));
}

int gn_checkpoint_writes_slots(const struct gn_comm *c)
{
	int rank = gn_comm_rank(c);

	for (int r = rank + 1; r < gn_comm_size(c); r++)
		if (gn_checkpoint_node(c, r) == gn_checkpoint_node(c, rank))
			return 0;
	return 1;
}

enum gn_status gn_checkpoint_write_files(struct gn_comm *comm, const char *folder, const struct gn_checkpoint_info *info,
					 const struct gn_model *model, const struct gn_checkpoint_arrays *a,
					 struct gn_checkpoint_file files[GN_CHECKPOINT_RANK_FILES], struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	int rank = gn_comm_rank(comm);
	size_t elements = gn_model_param_elements(model), node = (size_t)gn_checkpoint_node(comm, rank);
	size_t each = elements / (size_t)gn_world_nodes(w) + 1, begin = a->is_split ? a->begin : node * each;
	size_t end = a->is_split ? a->end : begin + each;
	char path[PATH_MAX], name[64];
	enum gn_status status = GN_OK;

	if (a->is_split ? a->begin < a->end : gn_checkpoint_writes_slots(comm)) {
		snprintf(name, sizeof name, "optimizer-%05zu.safetensors", a->is_split ? (size_t)rank : node);
		status = name_file(folder, name, &files[0], path, err);
		if (!status)
			status = write_slots(path, info, model, a, begin < elements ? begin : elements,
					     end < elements ? end : elements, &files[0], err);
	}
	if (!status && !rank)
		status = write_weights(folder, info, model, "model.safetensors", a->params, a->buffers, &files[1], err);
	if (!status && !rank && a->average_params)
		status = write_weights(folder, info, model, "ema.safetensors", a->average_params, a->average_buffers,
				       &files[2], err);
	return status ? status : gn_checkpoint_rank_write(folder, rank, info->key, a->own, &files[3], err);
}

enum gn_status gn_checkpoint_write_manifest_of(const char *folder, const struct gn_checkpoint_info *info,
					       const struct gn_checkpoint_file *all, size_t count, struct gn_err *err)
{
	struct gn_checkpoint_file *named = calloc(count, sizeof *named);
	size_t used = 0;
	enum gn_status status;

	if (!named)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the manifest of %s", folder);
	for (size_t i = 0; i < count; i++)
		if (all[i].name[0])
			named[used++] = all[i];
	status = gn_checkpoint_manifest_write(folder, info, named, used, err);
	free(named);
	return status;
}
