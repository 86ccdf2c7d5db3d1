#include "src/cmd/info.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/cmd.h"
#include "src/train/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int gn_info_is_checkpoint(const char *path)
{
	char manifest[PATH_MAX];

	if (gn_checkpoint_any(path))
		return 1;
	return !gn_path_join(manifest, sizeof manifest, path, "manifest.json", NULL) && access(manifest, F_OK) == 0;
}

static void print_json(const char *folder, const struct gn_checkpoint_info *info,
		       const struct gn_checkpoint_file *files, size_t count)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "checkpoint %s model %s classes %ld channels %ld side %ld step %lu epoch %lu sample %lu seed %lu skipped %lu "
		    "optimizer %s world_size %ld ranks %ld global_batch %ld dataset %s encrypted? %d", folder, info->model, info->classes,
		    info->channels, info->side, info->state.step, info->state.epoch, info->state.sample, info->state.seed,
		    info->state.skipped, gn_optim_name(info->optimizer), info->world_size, info->ranks, info->global_batch,
		    info->dataset_digest, info->is_encrypted);
	gn_checkpoint_files_json(&j, files, count);
	gn_cmd_print_json(&j);
}

static void print_text(const char *folder, const struct gn_checkpoint_info *info,
		       const struct gn_checkpoint_file *files, size_t count)
{
	char name[PATH_MAX];

	printf("checkpoint %s, sizes and digests verified\n", gn_text_visible(folder, name, sizeof name));
	printf("model      %s, %" PRId64 " classes, input %" PRId64 "x%" PRId64 "x%" PRId64 "\n",
	       gn_text_visible(info->model, name, sizeof name), info->classes, info->channels, info->side, info->side);
	printf("state      step %" PRIu64 ", epoch %" PRIu64 ", sample %" PRIu64 " of it, seed %" PRIu64 "\n",
	       info->state.step, info->state.epoch, info->state.sample, info->state.seed);
	printf("written by %" PRId64 " rank%s", info->ranks, gn_text_plural((uint64_t)info->ranks));
	if (info->ranks > info->world_size)
		printf(" in %" PRId64 " group%s, each with a whole network", info->world_size, gn_text_plural((uint64_t)info->world_size));
	printf(", global batch %" PRId64 ", optimizer %s\n", info->global_batch, gn_optim_name(info->optimizer));
	printf("dataset    %s\n", info->dataset_digest);
	if (info->is_encrypted)
		printf("encrypted  AES-256-GCM\n");
	for (size_t i = 0; i < count; i++)
		printf("%12" PRIu64 "  %s\n", files[i].len_bytes, gn_text_visible(files[i].name, name, sizeof name));
}

int gn_info_checkpoint(const char *path, const char *key_file, int json)
{
	struct gn_checkpoint_file *files;
	struct gn_checkpoint_info info;
	struct gn_log *log = gn_cmd_log();
	char folder[PATH_MAX];
	size_t count;
	struct gn_data_key key;
	struct gn_err err;
	enum gn_status status = key_file ? gn_data_key_read(key_file, &key, &err) : GN_OK;

	if (!status)
		status = gn_checkpoint_find(path, key_file ? &key : NULL, log, folder, &info, &err);
	gn_data_key_wipe(&key);
	if (!status)
		status = gn_checkpoint_manifest_read(folder, &info, &files, &count, &err);
	gn_log_destroy(log);
	if (status)
		return gn_cmd_fail("info", &err);
	if (json)
		print_json(folder, &info, files, count);
	else
		print_text(folder, &info, files, count);
	free(files);
	return GN_EXIT_DONE;
}
