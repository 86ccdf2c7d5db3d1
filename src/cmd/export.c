#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/cmd/key_option.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/loop/network.h"
#include "src/train/model/onnx.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct export_options {
	const char *checkpoint, *key_file, *out;
	int average, fold_batch_norm, pixel_input;
};

static const struct gn_option options[] = {
	GN_OPT_TEXT("checkpoint", offsetof(struct export_options, checkpoint), "DIR", "a checkpoint, or a folder of checkpoints, of which "
		    "the newest valid one is used", .required = 1),
	GN_CMD_CHECKPOINT_KEY_OPTION(offsetof(struct export_options, key_file)),
	GN_OPT_TEXT("out", offsetof(struct export_options, out), "FILE", "file to write, which must not exist: its name ends in "
		    ".safetensors or .onnx", .letter = 'o', .required = 1),
	GN_OPT_FLAG("ema", offsetof(struct export_options, average), "write the exponential moving average of the weights (train --ema)"),
	GN_OPT_FLAG("fold-batch-norm", offsetof(struct export_options, fold_batch_norm), "ONNX: batch norm becomes part of the weights and "
		    "biases of the convolutions before it"),
	GN_OPT_FLAG("pixel-input", offsetof(struct export_options, pixel_input), "ONNX: the input is pixels of 0 to 255 as uint8, which "
		    "the graph normalises"),
};

static const struct gn_command command = {
	.name = "export",
	.summary = "write a checkpoint's network as one safetensors or ONNX file",
	.positional = "",
	.description = "A safetensors file has torchvision's parameter names: load it with safetensors.torch.load_file and "
		       "load_state_dict(strict=True). An ONNX file (operator set 17) holds the network as well, for onnxruntime and others: "
		       "input float [batch][channels][side][side], output logits [batch][classes], any batch. The metadata of both holds "
		       "the network's name, and the preprocessing and the class names as JSON texts. The checkpoint is verified first.",
	.examples = "  gannet export --checkpoint run1 --out resnet50.safetensors\n"
		    "  gannet export --checkpoint run1 --out resnet50.onnx --fold-batch-norm\n",
	GN_OPTIONS(options),
};

/* What is exported, from a checkpoint. */
struct source {
	const struct gn_checkpoint_info *info;
	const char *path; /* of the weights */
	const struct gn_data_key *key; /* NULL: not encrypted */
	const char *const *metadata; /* of both formats: pairs key, value */
	size_t metadata_count;
};

static int is_onnx(const char *path)
{
	return gn_text_ends_with(path, ".onnx");
}

/* A copy of all tensors of the checkpoint's file, with more metadata. */
static enum gn_status write_safetensors(const struct export_options *o, const struct source *s, const char *to, uint64_t *len_bytes,
					struct gn_err *err)
{
	size_t count, at = 0, total = 0;
	struct gn_tensor_entry *entries;
	struct gn_safetensors *from;
	char *bytes;
	enum gn_status status = gn_safetensors_open(s->path, s->key, &from, err);

	(void)o;
	if (status)
		return status;
	count = gn_safetensors_count(from);
	for (size_t i = 0; i < count; i++)
		total += gn_safetensors_entry(from, i)->len_bytes;
	entries = calloc(count + 1, sizeof *entries);
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
		status = gn_safetensors_write(to, NULL, entries, count, s->metadata, s->metadata_count, NULL, len_bytes, err);
	free(entries);
	free(bytes);
	gn_safetensors_close(from);
	return status;
}

static enum gn_status write_onnx(const struct export_options *o, const struct source *s, const char *to, uint64_t *len_bytes,
				 struct gn_err *err)
{
	struct gn_onnx_options onnx = {.fold_batch_norm = o->fold_batch_norm, .pixel_input = o->pixel_input, .metadata = s->metadata,
				       .metadata_count = s->metadata_count};
	struct gn_network n;
	enum gn_status status = gn_network_create(s->info, &n, err);

	if (status)
		return status;
	memcpy(onnx.mean, s->info->input.mean, sizeof onnx.mean);
	memcpy(onnx.deviation, s->info->input.deviation, sizeof onnx.deviation);
	status = gn_weights_load(s->path, s->key, n.model, n.params, n.buffers, err);
	if (!status)
		status = gn_onnx_write(to, n.model, n.params, n.buffers, &onnx, len_bytes, err);
	gn_network_release(&n);
	return status;
}

/* Writes to a temporary name beside out and renames it, so that out is complete or absent. */
static enum gn_status write_file(const struct export_options *o, const struct source *s, uint64_t *len_bytes, struct gn_err *err)
{
	char temporary[PATH_MAX];
	enum gn_status status = gn_file_check_replaceable(o->out, err);

	if (status)
		return status;
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp-%ld", o->out, (long)getpid()) >= sizeof temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", o->out);
	status = (is_onnx(o->out) ? write_onnx : write_safetensors)(o, s, temporary, len_bytes, err);
	if (status)
		return status;
	if (rename(temporary, o->out)) {
		status = gn_err_errno(err, errno, "cannot rename %s to %s", temporary, o->out);
		unlink(temporary);
		return status;
	}
	return gn_sync_parent(o->out, err);
}

static enum gn_status describe_and_write(const struct export_options *o, const char *folder, const struct gn_checkpoint_info *info,
					 const struct gn_data_key *key, const char *path, uint64_t *len_bytes, struct gn_err *err)
{
	struct gn_json preprocessing;
	char *names = NULL;
	enum gn_status status = gn_checkpoint_class_names(folder, &names, err);

	gn_json_init(&preprocessing);
	gn_checkpoint_put_preprocessing(&preprocessing, NULL, info);
	if (!status && gn_json_failed(&preprocessing))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to describe %s", path);
	if (!status) {
		const char *const metadata[] = {"format", "pt", "model", info->model, "preprocessing",
						gn_json_text(&preprocessing), "class_names", names};
		int skip = is_onnx(o->out); /* "format" is for PyTorch's loader */
		struct source s = {info, path, key, metadata + 2 * skip, (names ? 4 : 3) - (size_t)skip};

		status = write_file(o, &s, len_bytes, err);
	}
	gn_json_release(&preprocessing);
	free(names);
	return status;
}

static enum gn_status check(const struct export_options *o, struct gn_err *err)
{
	if (!is_onnx(o->out) && !gn_text_ends_with(o->out, ".safetensors"))
		return gn_err_set(err, GN_ERR_USAGE, "--out %s: the file's name says its format: give FILE.safetensors or FILE.onnx", o->out);
	if (!is_onnx(o->out) && (o->fold_batch_norm || o->pixel_input))
		return gn_err_set(err, GN_ERR_USAGE, "--%s is of ONNX files: give --out FILE.onnx, not %s",
				  o->fold_batch_norm ? "fold-batch-norm" : "pixel-input", o->out);
	if (access(o->out, F_OK) == 0)
		return gn_err_set(err, GN_ERR_EXISTS, "%s exists already: remove it, or give another --out", o->out);
	return GN_OK;
}

static enum gn_status export_weights(const struct export_options *o, const struct gn_data_key *key, struct gn_log *log, struct gn_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct gn_checkpoint_info info;
	uint64_t len;
	enum gn_status status = gn_checkpoint_find(o->checkpoint, key, log, folder, &info, err);

	if (!status)
		status = gn_checkpoint_needs_key(folder, &info, key, err);
	if (!status)
		status = gn_checkpoint_weights(folder, &info, o->average, path, err);
	if (!status)
		status = describe_and_write(o, folder, &info, key, path, &len, err);
	if (!status)
		gn_log_info(log, "wrote %s: %s of step %llu, %llu bytes", o->out, info.model,
			    (unsigned long long)info.state.step, (unsigned long long)len);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	struct gn_log *log = gn_cmd_log();
	const struct export_options *o = target;
	struct gn_data_key key;
	struct gn_err err;
	enum gn_status status = check(o, &err);

	(void)positional;
	if (!status && o->key_file)
		status = gn_data_key_read(o->key_file, &key, &err);
	if (!status)
		status = export_weights(o, o->key_file ? &key : NULL, log, &err);
	gn_data_key_wipe(&key);
	gn_log_destroy(log);
	return status ? gn_cmd_fail("export", &err) : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_export = {.command = &command, .run = run, .options_size = sizeof(struct export_options)};
