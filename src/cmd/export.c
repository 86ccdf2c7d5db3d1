#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/model/safetensors.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct export_options {
	const char *checkpoint, *out;
	int average;
};

static const struct gn_option options[] = {
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = offsetof(struct export_options, checkpoint),
	 .value_name = "DIR", .required = 1, .help = "a checkpoint, or a folder of checkpoints, of which the newest valid one is "
		 "used"},
	{.name = "out", .letter = 'o', .kind = GN_OPTION_TEXT, .offset = offsetof(struct export_options, out),
	 .value_name = "FILE.safetensors", .required = 1, .help = "file to write; must not exist"},
	{.name = "ema", .kind = GN_OPTION_FLAG, .offset = offsetof(struct export_options, average),
	 .help = "write the exponential moving average of the weights (train --ema)"},
};

static const struct gn_command command = {
	.name = "export",
	.summary = "write a checkpoint's weights as one safetensors file",
	.positional = "",
	.description = "The file has torchvision's parameter names: load it with safetensors.torch.load_file and "
		       "load_state_dict(strict=True). Its metadata holds the network's name, and the preprocessing and the class "
		       "names as JSON texts. The checkpoint is verified first.",
	.examples = "  gannet export --checkpoint run1 --out resnet50.safetensors\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

/* Copies all tensors of from into the new file to, with the network's metadata beside PyTorch's "format" entry. */
static enum gn_status copy_tensors(const struct gn_safetensors *from, const char *to, const char *const *metadata,
				   size_t count_metadata, uint64_t *len_bytes, struct gn_err *err)
{
	size_t count = gn_safetensors_count(from), at = 0, total = 0;
	struct gn_tensor_entry *entries = calloc(count + 1, sizeof *entries);
	enum gn_status status = GN_OK;
	char *bytes;

	for (size_t i = 0; i < count; i++)
		total += gn_safetensors_entry(from, i)->len_bytes;
	bytes = malloc(total + 1);
	if (!entries || !bytes)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes of weights", total);
	for (size_t i = 0; i < count && !status; i++) {
		entries[i] = *gn_safetensors_entry(from, i);
		entries[i].data = bytes + at;
		status = gn_safetensors_read(from, gn_safetensors_entry(from, i), bytes + at, err);
		at += entries[i].len_bytes;
	}
	if (!status)
		status = gn_safetensors_write(to, entries, count, metadata, count_metadata, NULL, len_bytes, err);
	free(entries);
	free(bytes);
	return status;
}

/* Writes to a temporary name beside out and renames it, so that out is complete or absent. */
static enum gn_status write_file(const struct gn_safetensors *from, const char *out, const char *const *metadata,
				 size_t count_metadata, uint64_t *len_bytes, struct gn_err *err)
{
	char temporary[PATH_MAX];
	enum gn_status status;

	if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp-%ld", out, (long)getpid()) >= sizeof temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", out);
	status = copy_tensors(from, temporary, metadata, count_metadata, len_bytes, err);
	if (status)
		return status;
	if (rename(temporary, out)) {
		status = gn_err_errno(err, errno, "cannot rename %s to %s", temporary, out);
		unlink(temporary);
		return status;
	}
	return gn_sync_parent(out, err);
}

static enum gn_status describe_and_write(const char *folder, const struct gn_checkpoint_info *info, const char *path,
					 const char *out, uint64_t *len_bytes, struct gn_err *err)
{
	struct gn_safetensors *file = NULL;
	struct gn_json preprocessing;
	char *names = NULL;
	enum gn_status status = gn_checkpoint_class_names(folder, &names, err);

	gn_json_init(&preprocessing);
	gn_checkpoint_put_preprocessing(&preprocessing, NULL, info);
	if (!status && gn_json_failed(&preprocessing))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to describe %s", path);
	if (!status)
		status = gn_safetensors_open(path, &file, err);
	if (!status) {
		const char *const metadata[] = {"format", "pt", "model", info->model, "preprocessing",
						gn_json_text(&preprocessing), "class_names", names};

		status = write_file(file, out, metadata, names ? 4 : 3, len_bytes, err);
	}
	gn_safetensors_close(file);
	gn_json_release(&preprocessing);
	free(names);
	return status;
}

static enum gn_status export_weights(const struct export_options *o, struct gn_log *log, struct gn_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct gn_checkpoint_info info;
	uint64_t len;
	enum gn_status status;

	if (access(o->out, F_OK) == 0)
		return gn_err_set(err, GN_ERR_EXISTS, "%s exists already", o->out);
	status = gn_checkpoint_find(o->checkpoint, log, folder, &info, err);
	if (!status)
		status = gn_checkpoint_weights(folder, &info, o->average, path, err);
	if (!status)
		status = describe_and_write(folder, &info, path, o->out, &len, err);
	if (!status)
		gn_log_info(log, "wrote %s: %s of step %llu, %llu bytes", o->out, info.model,
			    (unsigned long long)info.state.step, (unsigned long long)len);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	struct gn_log *log = gn_cmd_log();
	struct gn_err err;
	enum gn_status status = export_weights(target, log, &err);

	(void)positional;
	gn_log_destroy(log);
	return status ? gn_cmd_fail("export", &err) : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_export = {.command = &command, .run = run, .options_size = sizeof(struct export_options)};
