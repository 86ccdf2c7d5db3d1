/* What each rank keeps for itself, in a file of its own: compress-RANK.safetensors. */
#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/train/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char shared_name[] = "shared";

static void name_file(int64_t rank, char name[64])
{
	snprintf(name, 64, "compress-%05lld.safetensors", (long long)rank);
}

static int has_state(const struct gn_checkpoint_rank_state *s)
{
	return s && (s->count || s->shared_count);
}

enum gn_status gn_checkpoint_rank_write(const char *folder, int rank, const struct gn_data_key *key,
					const struct gn_checkpoint_rank_state *s, struct gn_checkpoint_file *file, struct gn_err *err)
{
	const char *const metadata[] = {"format", "gannet-compress", "part", s ? s->part : NULL};
	size_t params, count = 0;
	struct gn_tensor_entry *entries;
	char path[PATH_MAX];
	enum gn_status status;

	if (!has_state(s))
		return GN_OK;
	params = (size_t)gn_model_param_count(s->model);
	name_file(rank, file->name);
	status = gn_path_join(path, sizeof path, folder, file->name, err);
	if (!status)
		unlink(path); /* of an earlier attempt */
	entries = calloc((size_t)s->count * params + 1, sizeof *entries);
	if (!status && !entries)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (int k = 0; !status && k < s->count; k++)
		for (size_t i = 0; i < params; i++) {
			const struct gn_param *p = gn_model_param(s->model, (int)i);
			struct gn_tensor_entry *e = &entries[count++];

			*e = (struct gn_tensor_entry){.type = GN_TENSOR_F32, .dims = 1, .shape = {(int64_t)p->count},
						      .len_bytes = p->count * sizeof(float), .data = s->arrays[k] + p->offset};
			snprintf(e->name, sizeof e->name, "%s/%s", s->names[k], p->name);
		}
	if (!status && s->shared_count) {
		entries[count] = (struct gn_tensor_entry){.type = GN_TENSOR_F32, .dims = 1, .shape = {(int64_t)s->shared_count},
							  .len_bytes = s->shared_count * sizeof(float), .data = s->shared};
		memcpy(entries[count++].name, shared_name, sizeof shared_name);
	}
	if (!status)
		status = gn_safetensors_write(path, key, entries, count, metadata, s->part ? 2 : 1, file->sha256, &file->len_bytes, err);
	free(entries);
	return status;
}

static enum gn_status read_tensor(const struct gn_safetensors *f, const char *path, const char *name, size_t count, float *to,
				  struct gn_err *err)
{
	const struct gn_tensor_entry *e = gn_safetensors_find(f, name);

	if (!e || e->type != GN_TENSOR_F32 || e->len_bytes != count * sizeof(float))
		return gn_err_set(err, GN_ERR_DATA, "%s has no tensor '%s' of %zu numbers", path, name, count);
	return gn_safetensors_read(f, e, to, err);
}

/* Adds scale times what the file has; the scratch is of the largest parameter. */
static enum gn_status add_arrays(const struct gn_safetensors *f, const char *path, const struct gn_checkpoint_rank_state *s, float scale,
				 float *scratch, struct gn_err *err)
{
	char name[GN_TENSOR_NAME_MAX];
	enum gn_status status = GN_OK;

	for (int k = 0; k < s->count; k++)
		for (int i = 0; i < gn_model_param_count(s->model) && !status; i++) {
			const struct gn_param *p = gn_model_param(s->model, i);

			snprintf(name, sizeof name, "%s/%s", s->names[k], p->name);
			status = read_tensor(f, path, name, p->count, scratch, err);
			for (size_t e = 0; e < p->count && !status; e++)
				s->arrays[k][p->offset + e] += scale * scratch[e];
		}
	return status;
}

static int is_of(const struct gn_safetensors *f, const char *part)
{
	const char *was = gn_safetensors_metadata(f, "part");

	return was && part ? !strcmp(was, part) : was == part;
}

/* The file of a rank of the run that wrote it. */
static enum gn_status load_file(const char *folder, int64_t was, const struct gn_data_key *key, int with_arrays,
				const struct gn_checkpoint_rank_state *s, float scale, float *scratch, int *fits, struct gn_err *err)
{
	char name[64], path[PATH_MAX];
	struct gn_safetensors *f;
	enum gn_status status;

	name_file(was, name);
	status = gn_path_join(path, sizeof path, folder, name, err);
	if (!status)
		status = gn_safetensors_open(path, key, &f, err);
	if (status)
		return status;
	*fits = is_of(f, s->part);
	if (with_arrays && *fits)
		status = add_arrays(f, path, s, scale, scratch, err);
	if (!status && s->shared_count && *fits)
		status = read_tensor(f, path, shared_name, s->shared_count, s->shared, err);
	gn_safetensors_close(f);
	return status;
}

enum gn_status gn_checkpoint_load_rank(const char *folder, int64_t was_ranks, const struct gn_data_key *key, int rank, int ranks,
				       const struct gn_checkpoint_rank_state *s, int *fits, struct gn_err *err)
{
	float *scratch, scale = (float)ranks / (float)was_ranks;
	size_t elements = has_state(s) ? gn_model_param_elements(s->model) : 0;
	enum gn_status status = GN_OK;

	*fits = !has_state(s) || !s->part || was_ranks == ranks;
	if (!has_state(s) || !*fits)
		return GN_OK;
	scratch = malloc(elements * sizeof *scratch + 1);
	if (!scratch)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to load %s", folder);
	for (int k = 0; k < s->count; k++)
		memset(s->arrays[k], 0, elements * sizeof(float));
	for (int64_t was = rank; was < was_ranks && !status && *fits; was += ranks)
		status = load_file(folder, was, key, 1, s, scale, scratch, fits, err);
	if (rank >= was_ranks && !status)
		status = load_file(folder, 0, key, 0, s, scale, scratch, fits, err);
	free(scratch);
	return status;
}
