#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/train/checkpoint.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct export_options {
	const char *checkpoint, *out;
	int average;
};

static const struct gn_option options[] = {
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = offsetof(struct export_options, checkpoint),
	 .value_name = "DIR", .required = 1, .help = "a checkpoint, or a folder of them, whose newest whole one is taken"},
	{.name = "out", .letter = 'o', .kind = GN_OPTION_TEXT, .offset = offsetof(struct export_options, out),
	 .value_name = "FILE.safetensors", .required = 1, .help = "file to write; must not exist"},
	{.name = "ema", .kind = GN_OPTION_FLAG, .offset = offsetof(struct export_options, average),
	 .help = "write the moving average of the weights, of a run with train --ema"},
};

static const struct gn_command command = {
	.name = "export",
	.summary = "write a checkpoint's weights as one safetensors file",
	.positional = "",
	.description = "The file has torchvision's parameter names: load it with safetensors.torch.load_file and "
		       "load_state_dict(strict=True). The checkpoint is verified first.",
	.examples = "  gannet export --checkpoint run1 --out resnet50.safetensors\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

static enum gn_status export_weights(const struct export_options *o, struct gn_log *log, struct gn_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX], *bytes;
	struct gn_checkpoint_info info;
	size_t len;
	enum gn_status status;

	if (access(o->out, F_OK) == 0)
		return gn_err_set(err, GN_ERR_EXISTS, "%s is there already", o->out);
	status = gn_checkpoint_find(o->checkpoint, log, folder, &info, err);
	if (!status)
		status = gn_checkpoint_weights(folder, &info, o->average, path, err);
	if (!status)
		status = gn_file_load(path, SIZE_MAX - 1, &bytes, &len, err);
	if (status)
		return status;
	status = gn_file_replace(o->out, bytes, len, err);
	free(bytes);
	if (!status)
		gn_log_info(log, "wrote %s: %s of step %llu, %zu bytes", o->out, info.model,
			    (unsigned long long)info.state.step, len);
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

const struct gn_cmd gn_cmd_export = {&command, run, sizeof(struct export_options)};
