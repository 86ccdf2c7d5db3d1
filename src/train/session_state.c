/* Where a run begins: initial values or a checkpoint; and how its state is saved. */
#include "src/train/session.h"

#include "src/base/clock.h"
#include "src/train/init.h"
#include "src/train/resident.h"
#include "src/train/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum gn_status initial_values(struct gn_session *s, struct gn_err *err)
{
	const char *init = s->options->init;
	char seeded[40];
	enum gn_status status;

	if (!init) {
		snprintf(seeded, sizeof seeded, "seed:%" PRId64, s->options->seed);
		init = seeded;
	}
	if (!strcmp(init, "formula") || !strncmp(init, "seed:", 5))
		status = gn_init_params(s->model, init, s->params, s->buffers, err);
	else
		return gn_weights_load(init, s->model, s->params, s->buffers, err);
	if (!status && s->options->zero_gamma)
		gn_init_zero_gamma(s->model, s->params);
	return status;
}

static struct gn_checkpoint_arrays arrays_of(struct gn_session *s)
{
	struct gn_checkpoint_arrays a = {.params = s->params, .buffers = s->buffers};

	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		a.slots[k] = gn_optimizer_slot(s->optimizer, k);
	if (s->ema) {
		a.average_params = gn_ema_params(s->ema);
		a.average_buffers = gn_ema_buffers(s->ema);
	}
	return a;
}

/* A checkpoint fits when it is of the same model, data and seed: otherwise "the next sample" would mean nothing. */
static enum gn_status check_fit(const struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
				struct gn_err *err)
{
	if (strcmp(info->dataset_digest, s->info.dataset_digest))
		return gn_err_set(err, GN_ERR_DATA,
				  "checkpoint %s was made with another dataset (digest %.16s..., %s has %.16s...)", folder,
				  info->dataset_digest, s->options->data, s->info.dataset_digest);
	if (info->state.seed != (uint64_t)s->options->seed)
		return gn_err_set(err, GN_ERR_USAGE, "checkpoint %s was made with --seed %" PRIu64 ", not %" PRId64, folder,
				  info->state.seed, s->options->seed);
	if (info->optimizer != s->info.optimizer)
		return gn_err_set(err, GN_ERR_USAGE, "checkpoint %s was made with --optimizer %s, not %s", folder,
				  gn_optim_name(info->optimizer), gn_optim_name(s->info.optimizer));
	return GN_OK;
}

/* Going on from an older checkpoint beside newer ones would mix two runs, and the next --resume auto would take the other. */
static enum gn_status check_newest(const struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
				   struct gn_err *err)
{
	const char *directory = s->options->checkpoint;
	struct gn_checkpoint_info newest;
	char found[PATH_MAX];

	if (!directory || !gn_checkpoint_any(directory) || gn_checkpoint_find(directory, s->log, found, &newest, NULL) ||
	    newest.state.step <= info->state.step)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "%s is newer than %s: give --checkpoint another folder, or remove what is newer",
			  found, folder);
}

static enum gn_status load(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info,
			   struct gn_err *err)
{
	struct gn_checkpoint_arrays a = arrays_of(s);
	enum gn_status status = check_fit(s, folder, info, err);

	if (!info->has_average)
		a.average_params = NULL;
	if (!status)
		status = gn_checkpoint_load(folder, info, s->model, &a, err);
	if (status || !s->ema || info->has_average)
		return status;
	gn_log_warn(s->log, "%s holds no moving average: it begins with the parameters of this step", folder);
	gn_ema_set(s->ema, s->params, s->buffers);
	return GN_OK;
}

/* On rank 0. *resumed says whether a checkpoint was taken. */
static enum gn_status read_state(struct gn_session *s, int *resumed, struct gn_err *err)
{
	const char *resume = s->options->resume, *directory = s->options->checkpoint;
	struct gn_checkpoint_info info;
	char folder[PATH_MAX];
	enum gn_status status;

	*resumed = 0;
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
	status = gn_checkpoint_find(resume, s->log, folder, &info, err);
	if (!status)
		status = load(s, folder, &info, err);
	if (!status && resume != directory)
		status = check_newest(s, folder, &info, err);
	if (status)
		return status;
	s->state = info.state;
	*resumed = 1;
	if (info.global_batch != s->info.global_batch)
		gn_log_warn(s->log, "the checkpoint was made with a global batch of %" PRId64 ", this run has %" PRId64
			    ": the samples go on in order, the updates differ", info.global_batch, s->info.global_batch);
	gn_log_info(s->log, "resumed from %s: step %" PRIu64 ", epoch %" PRIu64 ", sample %" PRIu64, folder,
		    s->state.step, s->state.epoch, s->state.sample);
	return GN_OK;
}

void gn_session_arrange(struct gn_session *s, int to_plain)
{
	void (*change)(struct gn_arrange *, float *) = to_plain ? gn_arrange_out : gn_arrange_in;

	change(s->arrange, s->params);
	for (int k = 0; k < gn_optim_slots(s->info.optimizer); k++)
		change(s->arrange, gn_optimizer_slot(s->optimizer, k));
	if (s->ema)
		change(s->arrange, gn_ema_params(s->ema));
}

/* After parameters and buffers. Only rank 0 has read the average of a resumed run. */
static enum gn_status share_average(struct gn_session *s, int resumed, struct gn_err *err)
{
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(s->model) * sizeof(float);
	enum gn_status status;

	if (!resumed) {
		gn_ema_set(s->ema, s->params, s->buffers);
		return GN_OK;
	}
	status = gn_comm_broadcast(s->comm, gn_ema_params(s->ema), params, 0, err);
	if (!status && buffers)
		status = gn_comm_broadcast(s->comm, gn_ema_buffers(s->ema), buffers, 0, err);
	return status;
}

enum gn_status gn_session_restore(struct gn_session *s, int *resumed, struct gn_err *err)
{
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(s->model) * sizeof(float);
	struct {
		struct gn_run_state state;
		int32_t resumed;
	} shared = {.state = {.seed = (uint64_t)s->options->seed}};
	enum gn_status status = GN_OK;
	int found = 0;

	s->state = shared.state;
	if (gn_comm_rank(s->comm) == 0)
		status = read_state(s, &found, err);
	status = gn_agree_status(s->comm, status, err);
	shared.state = s->state;
	shared.resumed = found;
	if (!status)
		status = gn_comm_broadcast(s->comm, &shared, sizeof shared, 0, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, s->params, params, 0, err);
	for (int k = 0; !status && shared.resumed && k < gn_optim_slots(s->info.optimizer); k++)
		status = gn_comm_broadcast(s->comm, gn_optimizer_slot(s->optimizer, k), params, 0, err);
	if (!status && buffers)
		status = gn_comm_broadcast(s->comm, s->buffers, buffers, 0, err);
	if (!status && s->ema)
		status = share_average(s, shared.resumed, err);
	if (status)
		return status;
	gn_session_arrange(s, 0);
	s->state = shared.state;
	s->saved_step = shared.resumed ? s->state.step : UINT64_MAX;
	*resumed = shared.resumed;
	return GN_OK;
}

enum gn_status gn_session_save(struct gn_session *s, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	struct gn_checkpoint_arrays arrays = arrays_of(s);
	struct gn_json *j;
	enum gn_status status;

	if (!s->options->checkpoint || s->saved_step == s->state.step)
		return GN_OK;
	s->info.state = s->state;
	status = gn_session_alone(s, gn_resident_fetch(s, err));
	if (status)
		return status;
	gn_session_arrange(s, 1);
	status = gn_checkpoint_save(s->comm, s->options->checkpoint, &s->info, s->model, &arrays,
				    (int)s->options->keep, err);
	gn_session_arrange(s, 0);
	if (status)
		return gn_err_prefix(err, "checkpoint of step %" PRIu64, s->state.step);
	s->saved_step = s->state.step;
	j = gn_runlog_begin(s->runlog, "checkpoint");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_string(j, "path", s->options->checkpoint);
		gn_json_fixed(j, "seconds", (double)(gn_clock_ns() - began) * 1e-9, 3);
	}
	status = gn_runlog_end(s->runlog, err);
	return gn_session_alone(s, status);
}
