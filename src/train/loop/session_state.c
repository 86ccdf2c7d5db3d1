/* Where a run begins: initial values or a checkpoint. */
#include "src/train/loop/session.h"
#include "src/train/loop/carried.h"

#include "data/sample/augment.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/option.h"
#include "src/base/trust.h"
#include "src/train/model/init.h"
#include "src/train/loop/input.h"
#include "src/train/loop/network.h"
#include "src/train/model/weights.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As many classes under other names: the last layer's outputs would change their meaning silently. The names are in the file, or in the
 * manifest of the checkpoint that it belongs to. */
static void warn_of_classes(const struct gn_session *s, const char *path)
{
	char difference[300] = "", folder[PATH_MAX], *names = NULL;

	gn_path_parent(path, folder);
	if (!gn_weights_class_names(path, &names, NULL) && !names)
		gn_checkpoint_class_names(folder, &names, NULL);
	if (names)
		gn_network_classes_differ(s->data.train, names, difference, sizeof difference);
	if (difference[0])
		gn_log_warn(s->log, "%s has other class names than %s%s: its last layer is taken for them all the same; start that anew with "
			    "--init-head skip", s->options->data, path, difference);
	free(names);
}

/* On rank 0. */
static enum gn_status import_weights(struct gn_session *s, const char *path, struct gn_err *err)
{
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);
	struct gn_strbuf ignored = {0};
	enum gn_status status = gn_weights_import(path, s->model, !strcmp(s->options->init_head, "skip"), whole.params, whole.buffers, s->log,
						  &ignored, err);

	gn_strbuf_release(&ignored);
	if (!status && strcmp(s->options->init_head, "skip"))
		warn_of_classes(s, path);
	return status;
}

static enum gn_status initial_values(struct gn_session *s, struct gn_err *err)
{
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);
	const char *init = s->options->init;
	char seeded[40];
	int is_file = gn_init_is_file(init);
	enum gn_status status = gn_input_check(s->options->mean, s->options->deviation, &s->checkpoint.info.input, err);

	snprintf(seeded, sizeof seeded, "seed:%" PRId64, s->options->seed);
	/* before a file, which may leave the last layer to it */
	if (!status)
		status = gn_init_params(s->model, init && !is_file ? init : seeded, whole.params, whole.buffers, err);
	if (!status && is_file)
		return import_weights(s, init, err);
	if (!status && s->options->zero_gamma)
		gn_init_zero_gamma(s->model, whole.params);
	return status;
}

struct gn_checkpoint_arrays gn_session_arrays(struct gn_session *s)
{
	const struct gn_replica *r = &s->replica;
	struct gn_checkpoint_arrays a = {.params = r->params.host, .buffers = r->buffers.host};

	if (s->pipeline)
		return (struct gn_checkpoint_arrays){.params = s->pipeline->params, .buffers = s->pipeline->buffers,
						     .average_params = s->pipeline->average_params,
						     .average_buffers = s->pipeline->average_buffers};
	/* parts: session_shard.c */
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX && !r->shard; k++)
		a.slots[k] = gn_optimizer_slot(r->optimizer, k)->host;
	if (gn_replica_has_average(r) && !r->shard) {
		a.average_params = r->ema.params.host;
		a.average_buffers = r->ema.buffers.host;
	}
	return a;
}

/* To parameters that were trained with images made in one way, images made in another are of another kind. */
static enum gn_status check_input(const struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
				  struct gn_err *err)
{
	const struct gn_input_spec *was = &info->input, *is = &s->checkpoint.info.input;

	/* another network has other usual values: gn_checkpoint_load says what is the matter */
	if (strcmp(info->model, s->checkpoint.info.model))
		return GN_OK;
	for (int c = 0; c < gn_model_channels(s->model); c++) {
		const char *name = was->mean[c] != is->mean[c] ? "mean" : was->deviation[c] != is->deviation[c] ? "deviation" : NULL;
		int mean = name && *name == 'm';

		if (name)
			return gn_err_set(err, GN_ERR_USAGE,
					  "checkpoint %s was made with --%s %.15g for channel %d, not %.15g: give the same, or begin "
					  "another run with --init FILE of its weights", folder, name,
					  mean ? was->mean[c] : was->deviation[c], c, mean ? is->mean[c] : is->deviation[c]);
	}
	if (info->side == s->checkpoint.info.side && gn_crop_resize_evaluation(info->side, was->resize_shorter) !=
							     gn_crop_resize_evaluation(info->side, is->resize_shorter))
		return gn_err_set(err, GN_ERR_USAGE,
				  "checkpoint %s was made with --resize %" PRId64 ", not %" PRId64 " (0: the usual): give the same",
				  folder, was->resize_shorter, is->resize_shorter);
	if (was->interpolation != is->interpolation)
		return gn_err_set(err, GN_ERR_USAGE, "checkpoint %s was made with --interpolation %s, not %s: give the same", folder,
				  gn_interpolation_name(was->interpolation), gn_interpolation_name(is->interpolation));
	return GN_OK;
}

/* A checkpoint fits when it is of the same model, data, seed and input: otherwise "the next sample" would mean nothing. */
static enum gn_status check_fit(const struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
				struct gn_err *err)
{
	if (strcmp(info->dataset_digest, s->checkpoint.info.dataset_digest))
		return gn_err_set(err, GN_ERR_DATA,
				  "checkpoint %s was made with another dataset (digest %.16s..., %s has %.16s...)", folder,
				  info->dataset_digest, s->options->data, s->checkpoint.info.dataset_digest);
	if (info->state.seed != (uint64_t)s->options->seed)
		return gn_err_set(err, GN_ERR_USAGE, "checkpoint %s was made with --seed %" PRIu64 ", not %" PRId64, folder,
				  info->state.seed, s->options->seed);
	if (info->optimizer != s->checkpoint.info.optimizer)
		return gn_err_set(err, GN_ERR_USAGE, "checkpoint %s was made with --optimizer %s, not %s", folder,
				  gn_optim_name(info->optimizer), gn_optim_name(s->checkpoint.info.optimizer));
	return GN_OK;
}

/* The other options may change on purpose (a longer run, another device); that they did is logged once. */
static enum gn_status log_changed_options(const struct gn_session *s, const char *folder, struct gn_err *err)
{
	/* where things are, what is of no consequence for the result, and what has been compared by its value */
	static const char *const skip[] = {
		"options", "data", "val", "stage", "init", "key-file", "checkpoint", "checkpoint-local", "checkpoint-key", "resume", "log", "log-every", "log-samples",
		"metrics", "trace", "trace-steps", "threads", "loader-threads", "prefetch", "tuning", "progress", "mean", "deviation", "resize", "side", "channels",
		"join-timeout", "convolution", "heartbeat-timeout", "stall-timeout", "socket-ifname", NULL,
	};
	struct gn_strbuf text = {0};
	char *options;
	enum gn_status status = gn_checkpoint_options(folder, &options, err);

	if (status || !options)
		return status;
	gn_options_compare(options, s->options->options_text, skip, ", now ", &text);
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options of %s", folder);
	else if (text.len)
		gn_log_warn(s->log, "%s was made with other options: %s", folder, gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	free(options);
	return status;
}

/* Going on from an older checkpoint beside newer ones would mix two runs, and the next --resume auto would take the other. */
static enum gn_status check_newest(const struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
				   struct gn_err *err)
{
	const char *directory = s->options->checkpoint;
	struct gn_checkpoint_info newest;
	char found[PATH_MAX];
	enum gn_status status;

	if (!directory || !gn_checkpoint_any(directory))
		return GN_OK;
	status = gn_checkpoint_find(directory, gn_session_key(s), s->log, found, &newest, err);
	if (status == GN_ERR_UNSUPPORTED || status == GN_ERR_USAGE)
		return status;
	if (status || newest.state.step <= info->state.step)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "%s is newer than %s: give --checkpoint another folder, or remove what is newer",
			  found, folder);
}

static enum gn_status load(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
			   struct gn_err *err)
{
	struct gn_checkpoint_arrays a = gn_session_arrays(s);
	enum gn_status status = check_fit(s, folder, info, err);

	if (!info->has_average)
		a.average_params = NULL;
	if (!status)
		status = gn_checkpoint_load(folder, info, gn_session_key(s), s->model, &a, err);
	/* last, for another model's is another one, too */
	if (!status)
		status = check_input(s, folder, info, err);
	if (status || !gn_replica_has_average(&s->replica) || info->has_average)
		return status;
	gn_log_warn(s->log, "%s holds no moving average: it begins with the parameters of this step", folder);
	return GN_OK;
}

/* Where a run's state is from; what all ranks have to know of it. */
struct origin {
	struct gn_run_state state;
	int32_t resumed;		/* from a checkpoint, with this manifest, in this folder */
	struct gn_checkpoint_info info; /* without pointers */
	char folder[PATH_MAX];
};

/* On rank 0. */
static enum gn_status read_state(struct gn_session *s, struct origin *from, struct gn_err *err)
{
	const char *resume = s->options->resume, *directory = s->options->checkpoint;
	int goes_back = s->options->carried && s->options->carried->goes_back && gn_checkpoint_any(directory);
	struct gn_checkpoint_info info;
	char folder[PATH_MAX];
	enum gn_status status;

	if (goes_back)
		resume = "auto";
	if (!strcmp(resume, "none")) {
		if (directory && gn_checkpoint_any(directory))
			return gn_err_set(err, GN_ERR_USAGE,
					  "%s holds checkpoints already: go on with --resume auto, or name another folder",
					  directory);
		return initial_values(s, err);
	}
	if (!strcmp(resume, "auto")) {
		if (!directory)
			return gn_err_set(err, GN_ERR_USAGE, "--resume auto needs --checkpoint DIR");
		if (!gn_checkpoint_any(directory))
			return initial_values(s, err);
		resume = directory;
	}
	status = gn_checkpoint_find(resume, gn_session_key(s), s->log, folder, &info, err);
	if (status && resume != directory && access(resume, F_OK))
		gn_err_prefix(err, "--resume takes auto, none or the path of a checkpoint");
	if (!status)
		status = gn_trust_check_folder(folder, 0, s->log, err);
	if (!status)
		status = load(s, folder, &info, err);
	if (!status && resume != directory)
		status = check_newest(s, folder, &info, err);
	if (!status && !goes_back)
		status = log_changed_options(s, folder, err);
	if (status)
		return status;
	from->state = info.state;
	from->resumed = 1;
	from->info = info;
	if (*info.convolution && strcmp(info.convolution, gn_convolution_name(gn_convolution_of(info.convolution))))
		gn_log_warn(s->log, "%s: convolutions '%s' are not known to this version, %s is used", folder, info.convolution,
			    gn_convolution_name(GN_CONVOLUTION_AUTO));
	memcpy(from->folder, folder, sizeof folder);
	if (info.global_batch != s->checkpoint.info.global_batch)
		gn_log_warn(s->log, "the checkpoint was made with a global batch of %" PRId64 ", this run has %" PRId64
			    ": the samples go on in order, the updates differ", info.global_batch, s->checkpoint.info.global_batch);
	gn_log_info(s->log, "resumed from %s: step %" PRIu64 ", epoch %" PRIu64 ", sample %" PRIu64 "%s", folder,
		    info.state.step, info.state.epoch, info.state.sample, s->options->init ? "; --init is for the first start and not used" : "");
	return GN_OK;
}

void gn_session_take_layouts(struct gn_session *s)
{
	struct gn_weight_layouts *layouts = s->replica.layouts;
	struct gn_compress_state kept = {.count = 0};

	gn_weight_layouts_in(layouts, s->replica.params.host);
	if (s->replica.shard)
		return; /* whose parts are in the run's order */
	for (int k = 0; k < gn_optim_slots(s->checkpoint.info.optimizer) && gn_optimizer_slot(s->replica.optimizer, k)->count; k++)
		gn_weight_layouts_in(layouts, gn_optimizer_slot(s->replica.optimizer, k)->host);
	if (gn_replica_has_average(&s->replica))
		gn_weight_layouts_in(layouts, s->replica.ema.params.host);
	if (s->replica.compressor)
		gn_compressor_state(s->replica.compressor, &kept);
	for (int k = 0; k < kept.count; k++)
		gn_weight_layouts_in(layouts, kept.arrays[k]);
}

/* After parameters and buffers. Only rank 0 has read the average of a resumed run that has one. */
static enum gn_status share_average(struct gn_session *s, int has_average, struct gn_err *err)
{
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(s->model) * sizeof(float);
	enum gn_status status;

	if (!has_average) {
		gn_ema_set(&s->replica.ema, s->replica.params.host, s->replica.buffers.host);
		return GN_OK;
	}
	status = gn_comm_broadcast(s->comm, s->replica.ema.params.host, params, 0, err);
	if (!status && buffers)
		status = gn_comm_broadcast(s->comm, s->replica.ema.buffers.host, buffers, 0, err);
	return status;
}

struct gn_checkpoint_rank_state gn_session_own_state(const struct gn_session *s, struct gn_compress_state *arrays)
{
	*arrays = (struct gn_compress_state){.count = 0};
	if (s->replica.compressor)
		gn_compressor_state(s->replica.compressor, arrays);
	return (struct gn_checkpoint_rank_state){.model = gn_session_own_model(s), .part = s->pipeline ? s->pipeline->place : NULL,
						 .count = arrays->count, .names = arrays->names, .arrays = arrays->arrays, .shared = arrays->shared, .shared_count = arrays->shared_count};
}

/* Collective. Each rank reads its own, unless they are of a mesh with other parts. */
static enum gn_status restore_kept_back(struct gn_session *s, const struct origin *from, struct gn_err *err)
{
	struct gn_compress_state arrays;
	const struct gn_checkpoint_rank_state own = gn_session_own_state(s, &arrays);
	const struct gn_compress_spec spec = s->compress;
	const struct gn_reducer_config config = *gn_reducer_config(s->replica.reducer);
	int fits = 1;
	int32_t all;
	enum gn_status status = gn_agree_status(s->comm, gn_checkpoint_load_rank(from->folder, from->info.ranks, gn_session_key(s),
					gn_comm_rank(s->comm), gn_comm_size(s->comm), &own, &fits, err), err);

	all = fits;
	if (!status)
		status = gn_comm_allreduce(s->comm, &all, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);
	if (status || all)
		return status;
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "the checkpoint was made in another mesh: gradients that --compress kept back there are dropped");
	return gn_replica_compress(&s->replica, &spec, &config, err);
}

/* Collective. Another method than the checkpoint's begins with nothing kept back. */
static enum gn_status restore_compressor(struct gn_session *s, const struct origin *from, struct gn_err *err)
{
	char name[GN_COMPRESS_NAME_MAX];
	enum gn_status status = GN_OK;

	/* what auto has chosen before */
	if (gn_session_chooses_compression(s) && from->info.compress[0]) {
		if (gn_comm_rank(s->comm) == 0)
			gn_log_info(s->log, "--compress auto: %s, which the run before the checkpoint had; nothing is measured again",
				    from->info.compress);
		status = gn_session_take_compression(s, from->info.compress, err);
	}
	if (status)
		return status;
	gn_compress_name(s->replica.compressor ? gn_compressor_spec(s->replica.compressor) : &s->compress, name);
	if (!strcmp(name, from->info.compress))
		return restore_kept_back(s, from, err);
	if (gn_session_chooses_compression(s))
		return GN_OK;
	/* without a method that keeps something back there is nothing to drop */
	if (gn_comm_rank(s->comm) == 0 && gn_compress_keeps_back(from->info.compress))
		gn_log_warn(s->log, "the checkpoint was made with --compress %s, this run has %s: gradients that were kept back are dropped",
			    from->info.compress, name);
	return GN_OK;
}

/* What rank 0 has read. */
static enum gn_status share_slots(struct gn_session *s, const struct origin *from, struct gn_err *err)
{
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	enum gn_status status = GN_OK;

	/* servers have them, and the first worker until it has given them */
	for (int k = 0; !status && from->resumed && !s->options->served && k < gn_optim_slots(s->checkpoint.info.optimizer); k++)
		status = gn_comm_broadcast(s->comm, gn_optimizer_slot(s->replica.optimizer, k)->host, params, 0, err);
	if (!status && gn_replica_has_average(&s->replica))
		status = share_average(s, from->resumed && from->info.has_average, err);
	return status;
}

/* Collective. What ranks had before a loss; those that have just joined do not know. */
static enum gn_status carry_convolution(struct gn_session *s, struct gn_err *err)
{
	int32_t was = s->options->carried->convolution;
	enum gn_status status = gn_comm_allreduce(s->comm, &was, 1, GN_I32, gn_reduce_of(GN_I32, GN_MAX), err);

	return status || !was ? status : gn_session_take_convolution(s, (enum gn_convolution)(was - 1), err);
}

enum gn_status gn_session_restore(struct gn_session *s, int *resumed, struct gn_err *err)
{
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(s->model) * sizeof(float);
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);
	struct origin shared = {.state = {.seed = (uint64_t)s->options->seed}};
	int is_carried = 0;
	enum gn_status status = s->options->carried ? gn_carried_give(s->options->carried, s, &is_carried, err) : GN_OK;

	*resumed = is_carried;
	if (status || is_carried)
		return status ? status : carry_convolution(s, err);
	if (s->checkpoint.local && !strcmp(s->options->resume, "auto"))
		status = gn_session_recover_local(s, err);
	if (status)
		return status;
	if (gn_comm_rank(s->comm) == 0)
		status = read_state(s, &shared, err);
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, &shared, sizeof shared, 0, err);
	if (!status)
		status = s->pipeline ? gn_session_restore_stage(s, shared.resumed ? shared.folder : NULL, &shared.info, err)
				     : gn_comm_broadcast(s->comm, whole.params, params, 0, err);
	if (!status && !s->pipeline && buffers)
		status = gn_comm_broadcast(s->comm, whole.buffers, buffers, 0, err);
	if (!status && !s->pipeline && !s->replica.shard)
		status = share_slots(s, &shared, err);
	if (!status && shared.resumed)
		status = restore_compressor(s, &shared, err);
	/* versions that do not say had direct ones */
	if (!status && shared.resumed)
		status = gn_session_take_convolution(s, shared.info.convolution[0] ? gn_convolution_of(shared.info.convolution)
										   : GN_CONVOLUTION_DIRECT, err);
	if (!status && shared.resumed)
		status = gn_replica_compress_from(&s->replica, shared.state.step, shared.state.epoch, err);
	if (status)
		return status;
	gn_session_take_layouts(s);
	if (s->replica.shard && !s->pipeline && gn_replica_has_average(&s->replica))
		gn_ema_set(&s->replica.ema, s->replica.params.host, s->replica.buffers.host);
	if (s->replica.shard && !s->pipeline && shared.resumed)
		status = gn_session_restore_parts(s, shared.folder, &shared.info, err);
	if (!status)
		status = gn_agree_status(s->comm, gn_replica_send(&s->replica, err), err);
	if (status)
		return status;
	s->state = shared.state;
	s->checkpoint.number = shared.info.number;
	s->checkpoint.saved_step = shared.resumed ? s->state.step : UINT64_MAX;
	s->checkpoint.begun_ns = gn_clock_ns();
	*resumed = shared.resumed;
	return GN_OK;
}
