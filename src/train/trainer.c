#include "src/train/trainer.h"

#include "src/base/clock.h"
#include "src/base/progress.h"
#include "src/base/sha256.h"
#include "src/train/device.h"
#include "src/train/score.h"
#include "src/train/session.h"
#include "src/train/resident.h"
#include "src/train/split.h"
#include "src/train/step.h"
#include "src/train/trial.h"

#include <inttypes.h>
#include <string.h>

static void put_interval(const struct gn_session *s, const struct gn_interval *sums, const struct gn_split *split,
			 struct gn_json *j)
{
	double steps = (double)sums->steps, ms = 1e3 / steps, updates = (double)(sums->steps - sums->skipped);

	gn_json_uint(j, "step", s->state.step);
	gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
	gn_json_double(j, "loss", sums->loss_sum / updates);
	gn_json_double(j, "lr", sums->lr);
	gn_json_double(j, "grad_norm", sums->norm_sum / updates);
	gn_json_uint(j, "skipped", sums->skipped);
	gn_json_fixed(j, "images_per_s", steps * (double)s->global_batch / sums->step, 1);
	gn_json_object(j, "time_ms");
	gn_json_fixed(j, "step", sums->step * ms, 3);
	gn_json_fixed(j, "data", sums->data * ms, 3);
	gn_json_fixed(j, "forward", sums->forward * ms, 3);
	gn_json_fixed(j, "backward", sums->backward * ms, 3);
	gn_json_fixed(j, "communication_exposed", sums->exposed * ms, 3);
	gn_json_fixed(j, "communication_in_backward", sums->within * ms, 3);
	gn_json_fixed(j, "optimizer", sums->optimizer * ms, 3);
	gn_json_end(j);
	if (split)
		gn_split_json(split, gn_comm_world(s->comm), gn_split_source(s), j);
}

static void tell_interval(const struct gn_session *s, const struct gn_interval *sums, const struct gn_split *split)
{
	struct gn_strbuf more;

	if (gn_comm_rank(s->comm))
		return;
	gn_strbuf_init(&more);
	if (split)
		gn_split_text(split, gn_comm_world(s->comm), gn_split_source(s), &more);
	gn_log_info(s->log, "step %" PRIu64 " epoch %.2f loss %.4f lr %.4g %.0f images/s, data %.0f %% exposed communication %.0f %%%s",
		    s->state.step, gn_session_epoch(s), sums->loss_sum / (double)(sums->steps - sums->skipped), sums->lr,
		    (double)sums->steps * (double)s->global_batch / sums->step, 100 * sums->data / sums->step,
		    100 * sums->exposed / sums->step, gn_strbuf_text(&more));
	gn_strbuf_release(&more);
}

static enum gn_status log_interval(struct gn_session *s, struct gn_interval *sums, struct gn_err *err)
{
	struct gn_split gathered = {.compute = NULL}, *split = gn_comm_size(s->comm) > 1 ? &gathered : NULL;
	enum gn_status status = split ? gn_split_gather(s->comm, sums, split, err) : GN_OK;
	struct gn_json *j;

	if (status)
		return status;
	j = gn_runlog_begin(s->runlog, "step");
	if (j)
		put_interval(s, sums, split, j);
	tell_interval(s, sums, split);
	gn_split_release(&gathered);
	*sums = (struct gn_interval){0};
	return gn_session_alone(s, gn_runlog_end(s->runlog, err));
}

/* What this rank does between collectives, for the others who wait: a slow disk is no reason to end a run, a process that
 * hangs is. */
static void announce(const struct gn_session *s, const char *what)
{
	gn_world_announce(gn_comm_world(s->comm), what, GN_TRAIN_STALL_MS);
}

static void put_score(struct gn_json *j, const struct gn_score *score)
{
	double images = (double)score->images;

	gn_json_double(j, "top1", (double)score->top1 / images);
	gn_json_double(j, "top5", (double)score->top5 / images);
	gn_json_double(j, "loss", score->loss_sum / images);
}

static void tell_score(const struct gn_session *s, const char *of, const struct gn_score *score)
{
	double images = (double)score->images;

	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "epoch %.2f evaluation%s: top-1 %.2f %% top-5 %.2f %% loss %.4f of %" PRIu64 " images",
			    gn_session_epoch(s), of, 100 * (double)score->top1 / images, 100 * (double)score->top5 / images,
			    score->loss_sum / images, score->images);
}

static enum gn_status score(struct gn_session *s, int average, struct gn_score *out, struct gn_err *err)
{
	enum gn_status status;

	if (average)
		gn_ema_swap(s->ema, s->params, s->buffers);
	status = gn_score_run(s->val_plan, s->val_loader, s->comm, gn_model_classes(s->model), NULL, out, err);
	if (average)
		gn_ema_swap(s->ema, s->params, s->buffers);
	if (gn_session_alone(s, status))
		return gn_err_prefix(err, average ? "evaluation of the average" : "evaluation");
	return GN_OK;
}

/* The network as it is, and its moving average when there is one. */
static enum gn_status evaluate(struct gn_session *s, struct gn_err *err)
{
	struct gn_score plain, average;
	struct gn_json *j;
	enum gn_status status = gn_session_alone(s, gn_resident_fetch(s, err));

	if (!status)
		status = score(s, 0, &plain, err);
	if (!status && s->ema)
		status = score(s, 1, &average, err);
	if (status)
		return status;
	j = gn_runlog_begin(s->runlog, "eval");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_uint(j, "images", plain.images);
		put_score(j, &plain);
		if (s->ema) {
			gn_json_object(j, "ema");
			put_score(j, &average);
			gn_json_end(j);
		}
	}
	tell_score(s, "", &plain);
	if (s->ema)
		tell_score(s, " of the average", &average);
	return gn_session_alone(s, gn_runlog_end(s->runlog, err));
}

/* Steps when --steps counts them, else epochs: after a resume at another world size an epoch has another number of steps. */
static int is_done(const struct gn_session *s)
{
	return s->options->steps ? s->state.step >= (uint64_t)s->options->steps
				 : s->state.epoch >= (uint64_t)s->options->epochs;
}

/* Steps still to come. */
static uint64_t steps_left(const struct gn_session *s)
{
	uint64_t an_epoch = s->epoch_samples / s->global_batch;

	if (is_done(s))
		return 0;
	if (s->options->steps)
		return (uint64_t)s->options->steps - s->state.step;
	return ((uint64_t)s->options->epochs - s->state.epoch) * an_epoch - s->state.sample / s->global_batch;
}

/* Moves to the next epoch when this one has no whole global batch left; says whether it did. */
static int close_epoch(struct gn_session *s)
{
	if (s->state.sample + s->global_batch <= gn_dataset_count(s->data))
		return 0;
	s->state.epoch++;
	s->state.sample = 0;
	return 1;
}

/* A span of the program's own thread that ends now; the next one's begin. */
static uint64_t trace_since(const struct gn_session *s, enum gn_span kind, uint64_t mark)
{
	uint64_t now = gn_clock_ns();

	gn_trace_add(s->trace, kind, GN_TRACE_MAIN, 0, mark, now);
	return now;
}

static enum gn_status write_trace(struct gn_session *s, struct gn_err *err)
{
	uint64_t spans = 0;
	enum gn_status status;

	if (!s->trace || gn_trace_is_written(s->trace))
		return GN_OK;
	announce(s, "writing a trace");
	status = gn_trace_write(s->trace, s->comm, s->model, &spans, err);
	/* Known to all ranks, and no reason to end what may have run for days. */
	if (status == GN_ERR_IO || status == GN_ERR_NO_SPACE || status == GN_ERR_NOT_FOUND || status == GN_ERR_NO_MEMORY) {
		if (gn_comm_rank(s->comm) == 0)
			gn_log_warn(s->log, "there is no trace: %s", err->text);
		return GN_OK;
	}
	if (!status && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "trace of %" PRIu64 " spans in %s: open it in Perfetto", spans, s->options->trace);
	return status;
}

/* The run has failed: what this rank did until then, for whoever wants to know why. */
static void write_trace_part(struct gn_session *s, const char *failure)
{
	char path[4096 + 32];
	uint64_t spans = 0;
	struct gn_err err;

	if (!s->trace || gn_trace_is_written(s->trace))
		return;
	if (gn_trace_write_part(s->trace, s->comm, s->model, failure, path, sizeof path, &spans, &err))
		gn_log_warn(s->log, "there is no trace: %s", err.text);
	else if (spans)
		gn_log_info(s->log, "trace of %" PRIu64 " spans of this rank alone in %s", spans, path);
}

/* What is due after a step: a line, the end of an epoch with evaluation and checkpoint, a checkpoint in between. */
static enum gn_status after_step(struct gn_session *s, struct gn_interval *sums, int stopping, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int over = close_epoch(s), last = is_done(s);
	uint64_t mark = gn_clock_ns();
	enum gn_status status = GN_OK;

	if (s->state.step % (uint64_t)o->log_every == 0 || over || last || stopping) {
		status = log_interval(s, sums, err);
		mark = trace_since(s, GN_SPAN_LOG, mark);
	}
	/* Whoever asks for a stop may not wait for an evaluation: safety first. */
	if (!status && stopping) {
		announce(s, "writing a checkpoint");
		status = gn_session_save(s, err);
		mark = trace_since(s, GN_SPAN_CHECKPOINT, mark);
	}
	announce(s, "evaluating");
	if (!status && s->val && (last || (over && s->state.epoch % (uint64_t)o->eval_every == 0))) {
		status = evaluate(s, err);
		mark = trace_since(s, GN_SPAN_EVALUATE, mark);
	}
	announce(s, "writing a checkpoint");
	if (!status && (over || last || stopping ||
			(o->checkpoint_every && s->state.step % (uint64_t)o->checkpoint_every == 0))) {
		status = gn_session_save(s, err);
		trace_since(s, GN_SPAN_CHECKPOINT, mark);
	}
	if (!status && (last || stopping || gn_trace_is_full(s->trace, s->state.step)))
		status = write_trace(s, err);
	announce(s, "training");
	if (!status && over && !last)
		status = gn_session_begin_epoch(s, err);
	return status;
}

static enum gn_status train(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopped, struct gn_err *err)
{
	struct gn_interval sums = {0};
	struct gn_progress progress;
	int stopping = 0;
	enum gn_status status = GN_OK;

	gn_progress_begin(&progress, "training", "images", steps_left(s) * s->global_batch);
	progress.terminal = progress.terminal && gn_comm_rank(s->comm) == 0;
	while (!status && !is_done(s) && !stopping) {
		status = gn_step_run(s, stop, &sums, &stopping, err);
		if (!status && s->trial)
			status = gn_trial_note(s, err);
		if (!status)
			status = after_step(s, &sums, stopping, err);
		gn_progress_add(&progress, s->global_batch);
	}
	gn_progress_end(&progress);
	*stopped = stopping && !is_done(s);
	return status;
}

static enum gn_status log_start(struct gn_session *s, const char *options_text, int resumed, struct gn_err *err)
{
	struct gn_plan_options po = {0};
	struct gn_json *j;
	enum gn_status status = gn_session_device(s, &po, err);

	if (status)
		return status;
	if (po.bf16 && strcmp(gn_device_precision(&po), "bf16"))
		gn_log_info(s->log, "this processor has no instructions for bfloat16, it emulates them");
	j = gn_runlog_begin(s->runlog, resumed ? "resume" : "start");
	if (s->options->recipe_text && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "recipe %s", s->options->recipe_text);
	if (j) {
		gn_json_string(j, "model", gn_model_name(s->model));
		gn_json_string(j, "precision", gn_device_precision(&po));
		gn_json_uint(j, "step", s->state.step);
		gn_json_uint(j, "epoch", s->state.epoch);
		gn_json_uint(j, "sample", s->state.sample);
		gn_json_uint(j, "total_steps", s->state.step + steps_left(s));
		gn_json_int(j, "ranks", gn_comm_size(s->comm));
		gn_json_int(j, "nodes", gn_world_nodes(gn_comm_world(s->comm)));
		gn_json_uint(j, "global_batch", s->global_batch);
		gn_json_uint(j, "images", gn_dataset_count(s->data));
		gn_json_uint(j, "parameters", gn_model_param_elements(s->model));
		gn_json_uint(j, "buckets", gn_exchange_buckets(s->exchange));
		gn_json_uint(j, "plan_bytes", gn_plan_bytes(s->plan));
		gn_json_string(j, "dataset", gn_dataset_digest(s->data));
		gn_json_string(j, "options", options_text);
		if (s->options->recipe_text)
			gn_json_string(j, "recipe", s->options->recipe_text);
	}
	return gn_runlog_end(s->runlog, err);
}

static enum gn_status log_end(struct gn_session *s, int stopped, struct gn_err *err)
{
	char hex[GN_SHA256_HEX];
	struct gn_json *j;
	enum gn_status status;

	if (gn_plan_manner(s->plan)[0] && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "trained %s", gn_plan_manner(s->plan));
	status = gn_session_alone(s, gn_resident_fetch(s, err));
	if (status)
		return status;
	/* Said of the values, not of how they lie. */
	gn_arrange_out(s->arrange, s->params);
	status = gn_sha256_buffer(s->params, gn_model_param_elements(s->model) * sizeof(float), hex, err);
	gn_arrange_in(s->arrange, s->params);
	if (status)
		return status;
	j = gn_runlog_begin(s->runlog, stopped ? "stop" : "end");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_string(j, "params_sha256", hex);
	}
	return gn_runlog_end(s->runlog, err);
}

/* What all ranks have rank 0 tells in the end. A rank's own error is told at once: cleaning up may take longer than whoever started the
 * ranks lets it live. */
static int is_told(struct gn_log *log, struct gn_comm *comm, int agreed, enum gn_status status, const struct gn_err *err)
{
	if (status && !agreed)
		gn_log_error(log, "train: %s", err->text);
	return !agreed || gn_comm_rank(comm) > 0;
}

enum gn_status gn_train_run(const struct gn_train_options *options, const char *options_text,
			    const volatile sig_atomic_t *stop, struct gn_comm *comm, struct gn_log *log, int *told,
			    struct gn_err *err)
{
	struct gn_session *s;
	int resumed, stopped = 0;
	enum gn_status status;

	gn_world_announce(gn_comm_world(comm), "starting to train", GN_TRAIN_STALL_MS);
	status = gn_session_create(options, options_text, comm, log, &s, err);
	*told = is_told(log, comm, !gn_agree_is_over(comm, status), status, err);
	if (status)
		return status;
	status = gn_session_restore(s, &resumed, err);
	if (!status)
		status = gn_agree_status(comm, log_start(s, options_text, resumed, err), err);
	if (!status) {
		close_epoch(s);
		status = gn_session_begin_epoch(s, err);
	}
	if (!status)
		status = gn_trial_begin(s, steps_left(s), err);
	if (!status)
		gn_split_predict_buckets(s);
	if (!status && s->trace)
		status = gn_trace_begin(s->trace, comm, err);
	if (!status && is_done(s) && gn_comm_rank(comm) == 0)
		gn_log_info(log, "nothing left to do: %" PRIu64 " steps are done", s->state.step);
	if (!status)
		status = train(s, stop, &stopped, err);
	if (!status)
		status = log_end(s, stopped, err);
	if (!status && stopped)
		status = gn_err_set(err, GN_ERR_STOPPED, "stopped on request after step %" PRIu64 "%s", s->state.step,
				    options->checkpoint ? "; go on with --resume auto" : "; without --checkpoint nothing is "
				    "kept");
	*told = is_told(log, comm, !s->failed_alone && !gn_agree_is_over(comm, status), status, err);
	if (s->failed_alone)
		gn_world_give_up(gn_comm_world(comm), err->text);
	if (status && status != GN_ERR_STOPPED)
		write_trace_part(s, err->text);
	gn_session_destroy(s);
	return status;
}
