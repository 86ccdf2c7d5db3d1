#include "src/train/loop/trainer.h"

#include "src/base/clock.h"
#include "src/base/progress_bar.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/base/version.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan_cost.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/session.h"
#include "src/train/metrics/scaling_report.h"
#include "src/train/loop/summary.h"
#include "transport/bootstrap/library_versions.h"
#include "transport/bootstrap/regroup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* usage: NULL when it was not gathered. */
static void put_interval(const struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report,
			 const struct gn_usage *usage, struct gn_json *j)
{
	double ms = 1e3 / (double)sums->steps, updates = (double)(sums->steps - sums->skipped - sums->unknown);

	gn_json_put(j, "step %lu epoch %.4f loss %g top1 %.6f lr %g grad_norm %g skipped %lu", s->state.step, gn_session_epoch(s),
		    sums->loss_sum / updates, sums->correct_sum / updates, sums->lr, sums->norm_sum / updates, sums->skipped);
	if (sums->wanted > 0)
		gn_json_double(j, "synthetic_error", sums->missed / sums->wanted);
	gn_json_put(j, "sent_bytes %lu images_per_s %.1f time_ms { step %.3f data %.3f forward %.3f backward %.3f "
		    "communication_exposed %.3f communication_in_backward %.3f optimizer %.3f", sums->sent_bytes / sums->steps,
		    (double)sums->images / sums->step, sums->step * ms, sums->data * ms, sums->forward * ms, sums->backward * ms,
		    sums->exposed * ms, sums->within * ms, sums->optimizer * ms);
	if (s->replica.options.undoes)
		gn_json_fixed(j, "state_copies", sums->copies * ms, 3);
	gn_json_end(j);
	gn_session_put_staleness(s, j);
	if (report)
		gn_scaling_report_json(report, gn_comm_world(s->comm), gn_step_forecast_source(&s->forecast), j);
	if (usage)
		gn_usage_write(usage, j);
}

static void log_interval_text(const struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report)
{
	double updates = (double)(sums->steps - sums->skipped - sums->unknown), loss = sums->loss_sum / updates;
	struct gn_strbuf more = {0};

	if (gn_comm_rank(s->comm))
		return;
	if (report)
		gn_scaling_report_text(report, gn_comm_world(s->comm), gn_step_forecast_source(&s->forecast), &more);
	gn_session_put_staleness_text(s, &more);
	gn_log_info(s->log, "step %" PRIu64 " epoch %.2f loss %.4f top-1 %.2f %% lr %.4g %.0f images/s, data %.0f %% exposed communication %.0f %%%s",
		    s->state.step, gn_session_epoch(s), isnan(loss) ? fabs(loss) : loss /* not -nan */,
		    100 * sums->correct_sum / fmax(updates, 1), sums->lr,
		    (double)sums->images / sums->step, 100 * sums->data / sums->step,
		    100 * sums->exposed / sums->step, gn_strbuf_text(&more));
	gn_strbuf_release(&more);
}

static enum gn_status log_interval(struct gn_session *s, struct gn_interval *sums, struct gn_err *err)
{
	struct gn_scaling_report gathered = {.compute = NULL}, *report = gn_comm_size(s->comm) > 1 ? &gathered : NULL;
	const uint64_t began = gn_clock_ns();
	enum gn_status status = report ? gn_scaling_report_gather(s->comm, sums, &s->forecast.processors, report, err) : GN_OK;
	struct gn_json *j;
	int used;

	if (!status)
		status = gn_session_interval_status(s, sums, report, &used, err);
	if (!status && report)
		status = gn_session_alone(s, gn_session_note_slow(s, sums, report, err));
	if (status) {
		gn_scaling_report_release(&gathered);
		return status;
	}
	s->metrics.agreed_ns = report ? began : s->metrics.agreed_ns;
	j = gn_metrics_log_begin(s->metrics.log, "step");
	if (j)
		put_interval(s, sums, report, used ? gn_usage_last(s->status.usage) : NULL, j);
	log_interval_text(s, sums, report);
	gn_scaling_report_release(&gathered);
	*sums = (struct gn_interval){0};
	s->metrics.unlogged_steps = 0;
	s->metrics.unlogged_s = 0;
	return gn_session_alone(s, gn_metrics_log_end(s->metrics.log, err));
}

/* What this rank does between collectives, for the others who wait: a slow disk is no reason to end a run, a process that
 * hangs is. */
static void announce(struct gn_session *s, const char *what)
{
	gn_world_set_phase(gn_comm_world(s->comm), what, GN_TRAIN_STALL_MS);
	gn_session_tell_status(s, what);
}

/* Steps still to come. */
static uint64_t steps_left(const struct gn_session *s)
{
	uint64_t an_epoch = s->schedule.epoch_samples / s->schedule.global_batch;

	if (gn_session_is_done(s))
		return 0;
	if (s->options->steps)
		return (uint64_t)s->options->steps - s->state.step;
	return ((uint64_t)s->options->epochs - s->state.epoch - 1) * an_epoch +
	       (gn_dataset_count(s->data.train) - s->state.sample) / s->schedule.global_batch;
}

/* Moves to the next epoch when this one has no whole global batch left; says whether it did. */
static int close_epoch(struct gn_session *s)
{
	if (gn_session_has_batch(s, s->state.sample))
		return 0;
	s->state.epoch++;
	s->state.sample = 0;
	return 1;
}

/* A span of the program's own thread that ends now; the next one's begin. */
static uint64_t trace_since(const struct gn_session *s, enum gn_span kind, uint64_t mark)
{
	uint64_t now = gn_clock_ns();

	gn_trace_add(s->metrics.trace, kind, GN_TRACE_MAIN, 0, mark, now);
	return now;
}

static enum gn_status write_trace(struct gn_session *s, struct gn_err *err)
{
	uint64_t spans = 0;
	enum gn_status status;

	if (!s->metrics.trace || gn_trace_is_written(s->metrics.trace))
		return GN_OK;
	announce(s, "writing a trace");
	status = gn_trace_write(s->metrics.trace, s->comm, s->model, &spans, err);
	/* Known to all ranks, and no reason to end what may have run for days. */
	if (status == GN_ERR_IO || status == GN_ERR_NO_SPACE || status == GN_ERR_NOT_FOUND || status == GN_ERR_NO_MEMORY) {
		if (gn_comm_rank(s->comm) == 0)
			gn_log_warn(s->log, "there is no trace: %s", err->text);
		return GN_OK;
	}
	if (!status && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "trace of %" PRIu64 " span%s in %s: open it in Perfetto", spans, gn_text_plural(spans), s->options->trace);
	return status;
}

/* The run has failed: what this rank did until then, for whoever wants to know why. */
static void write_trace_part(struct gn_session *s, const char *failure)
{
	char path[4096 + 32];
	uint64_t spans = 0;
	struct gn_err err;

	if (!s->metrics.trace || gn_trace_is_written(s->metrics.trace))
		return;
	if (gn_trace_write_part(s->metrics.trace, s->comm, s->model, failure, path, sizeof path, &spans, &err))
		gn_log_warn(s->log, "there is no trace: %s", err.text);
	else if (spans)
		gn_log_info(s->log, "trace of %" PRIu64 " span%s of this rank alone in %s", spans, gn_text_plural(spans), path);
}

static enum gn_status save(struct gn_session *s, uint64_t *mark, struct gn_err *err)
{
	enum gn_status status;

	if (s->options->checkpoint)
		announce(s, "writing a checkpoint");
	status = gn_session_save(s, err);
	*mark = trace_since(s, GN_SPAN_CHECKPOINT, *mark);
	return status;
}

/* Alike on all ranks. */
static int is_save_due(const struct gn_session *s, int over)
{
	const struct gn_train_options *o = s->options;

	return (over && s->state.epoch % (uint64_t)o->checkpoint_epochs == 0) || s->last.save ||
	       (o->checkpoint_every && s->state.step % (uint64_t)o->checkpoint_every == 0);
}

/* A checkpoint of a network that has diverged would push out good ones: there is none until steps update it again, unless the run
 * is to stop. */
static enum gn_status save_if_due(struct gn_session *s, int over, int last, int stopping, uint64_t *mark, struct gn_err *err)
{
	int diverged = gn_session_has_diverged(s);

	if (last && diverged)
		return gn_err_set(err, GN_ERR_FAILED, "loss or gradients are not finite at the last step, %" PRIu64 ": lower --lr, lengthen "
				  "--warmup-epochs%s; no checkpoint is written of it, and those before it stay", s->state.step,
				  s->options->served || s->options->freeze.count ? "" : " or set --clip");
	if (!last && !stopping && !is_save_due(s, over))
		return GN_OK;
	if (!diverged || stopping)
		return save(s, mark, err);
	if (s->options->checkpoint && gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "no checkpoint of step %" PRIu64 ", at which loss or gradients are not finite; those before it stay",
			    s->state.step);
	return GN_OK;
}

/* The run ends before its last step because others, or its own evaluations, are better. Alike on all ranks. */
static int is_cut_short(const struct gn_session *s)
{
	return s->halving.behind || s->best.is_over;
}

/* What is due after a step: a log line, a checkpoint, the end of an epoch with its evaluation. The checkpoint comes first, for an
 * evaluation may take longer than whoever asked for a stop waits. */
static enum gn_status after_step(struct gn_session *s, struct gn_interval *sums, const volatile sig_atomic_t *stop, int *stopping,
				 struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int over = close_epoch(s), last = gn_session_is_done(s), rung = gn_session_rung(s);
	uint64_t mark = gn_clock_ns();
	enum gn_status status = last || *stopping ? gn_session_drain_servers(s, err) : GN_OK;

	if (!status && (s->state.step % (uint64_t)o->log_every == 0 || over || last || *stopping || rung)) {
		status = log_interval(s, sums, err);
		mark = trace_since(s, GN_SPAN_LOG, mark);
	}
	if (!status && !s->last.writing)
		status = gn_session_advance_save(s, err);
	if (!status)
		status = save_if_due(s, over, last, *stopping, &mark, err);
	if (!status && gn_session_evaluation_due(s))
		status = gn_session_evaluate(s, stop, stopping, err);
	if (!status && rung && !last && !*stopping)
		status = gn_session_halve(s, err);
	/* it ends at a step that nobody knew to be the last */
	if (!status && is_cut_short(s) && sums->steps)
		status = log_interval(s, sums, err);
	if (!status && (last || *stopping || is_cut_short(s) || gn_trace_is_full(s->metrics.trace, s->state.step)))
		status = write_trace(s, err);
	announce(s, "training");
	if (!status && over && !last && !*stopping && !is_cut_short(s))
		status = gn_session_begin_epoch(s, err);
	return status;
}

static enum gn_status train(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopped, struct gn_err *err)
{
	struct gn_interval sums = {0};
	const uint64_t first = s->state.step;
	struct gn_progress_bar progress;
	/* one that has joined leaves after a step, and does not stop the others within an evaluation */
	const volatile sig_atomic_t never = 0, *stop_all = s->options->join ? &never : stop;
	int stopping = 0;
	enum gn_status status = gn_session_evaluate_missed(s, stop_all, &stopping, err);

	gn_progress_bar_begin(&progress, "training", "images", steps_left(s) * s->schedule.global_batch);
	progress.terminal = progress.terminal && s->worker == 0 && gn_comm_rank(s->comm) == 0;
	while (!status && !gn_session_is_done(s) && !stopping && !is_cut_short(s) && !s->grows) {
		status = gn_session_step(s, stop, &sums, &stopping, err);
		if (!status)
			status = after_step(s, &sums, stop_all, &stopping, err);
		gn_progress_bar_add(&progress, s->schedule.global_batch);
	}
	gn_progress_bar_end(&progress);
	if (gn_session_is_done(s) || stopping || is_cut_short(s))
		s->grows = 0;
	if (!status && s->grows)
		return gn_session_drain(s, err);
	/* a failure to save was a warning until here */
	if (!status && s->state.step != first)
		status = gn_session_save_last(s, err);
	*stopped = stopping && (!gn_session_is_done(s) || s->unevaluated);
	return status;
}

/* What a report of a problem has to name. */
static void log_software(struct gn_json *j, const struct gn_world *world)
{
	struct gn_strbuf text = {0};
	char job[64];

	gn_json_put(j, "version %s commit %s ucx %s", gn_version(), gn_version_commit(), gn_library_versions_ucx());
	gn_library_versions_pmix(&text);
	gn_json_string(j, "pmix", gn_strbuf_text(&text));
	if (gn_library_versions_job(job))
		gn_json_string(j, "job", job);
	gn_strbuf_clear(&text);
	gn_library_versions_hosts(world, &text);
	gn_json_string(j, "hosts", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

static void log_compressor(const struct gn_compressor *c, struct gn_json *j)
{
	char name[GN_COMPRESS_NAME_MAX];

	gn_compress_name(gn_compressor_spec(c), name);
	gn_json_put(j, "compress { method %s sent_bytes %.0f }", name, gn_compressor_sent_bytes(c));
}

static enum gn_status log_start(struct gn_session *s, int resumed, struct gn_err *err)
{
	const int is_after_loss = s->options->carried && s->options->carried->why;
	struct gn_strbuf resolved = {0};
	struct gn_json *j;

	if (s->device.bf16 && strcmp(gn_device_precision(&s->device), "bf16"))
		gn_log_info(s->log, "this processor has no instructions for bfloat16, it emulates them");
	if (!resumed && !is_after_loss && gn_metrics_log_had_lines(s->metrics.log))
		gn_log_warn(s->log, "the log %s holds an earlier run, this run's lines follow: gannet report draws it as a run of its "
			    "own", s->options->log);
	/* after a loss the run goes on, even from its beginning */
	j = gn_metrics_log_begin(s->metrics.log, resumed || is_after_loss ? "resume" : "start");
	if (s->device.convolution == GN_CONVOLUTION_WINOGRAD && s->replica.plan && !gn_plan_winograd(s->replica.plan) &&
	    gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "--convolution winograd has no effect: no convolution here is of fp32 and 3 x 3, with stride 1 and whole blocks "
				    "of channels");
	if (s->options->recipe_text && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "recipe %s", s->options->recipe_text);
	if (j) {
		gn_json_put(j, "model %s precision %s", gn_model_name(s->model), gn_device_precision(&s->device));
		if (s->device.backend == GN_BACKEND_HOST)
			gn_json_put(j, "convolution %s winograd %d", gn_convolution_name(s->device.convolution),
				    gn_plan_winograd(s->replica.plan));
		gn_json_put(j, "step %lu epoch %lu sample %lu total_steps %lu ranks %d", s->state.step, s->state.epoch, s->state.sample,
			    s->state.step + steps_left(s), s->pipeline ? gn_comm_size(s->comm) : s->workers);
		gn_session_put_mesh(s, j);
		gn_json_put(j, "nodes %d global_batch %lu", gn_world_nodes(gn_comm_world(s->comm)), s->schedule.global_batch);
		if (is_after_loss)
			gn_json_put(j, "world %lu after %s", s->options->carried->world, s->options->carried->why);
		gn_json_put(j, "images %lu parameters %lu buckets %lu", gn_dataset_count(s->data.train), gn_model_param_elements(s->model),
			    gn_reducer_buckets(s->replica.reducer));
		if (s->replica.compressor)
			log_compressor(s->replica.compressor, j);
		gn_json_put(j, "plan_bytes %lu dataset %s", gn_replica_plan_bytes(&s->replica), gn_dataset_digest(s->data.train));
		log_software(j, gn_comm_world(s->comm));
		gn_json_string(j, "options", s->options->options_text);
		gn_summary_resolved(s, &resolved);
		gn_json_string(j, "resolved", gn_strbuf_text(&resolved));
		gn_strbuf_release(&resolved);
		if (s->options->recipe_text)
			gn_json_string(j, "recipe", s->options->recipe_text);
	}
	return gn_metrics_log_end(s->metrics.log, err);
}

static enum gn_status log_end(struct gn_session *s, int stopped, struct gn_err *err)
{
	struct gn_weight_layouts *layouts = s->pipeline ? s->pipeline->plain : s->replica.layouts;
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);
	int has_all = !s->pipeline || gn_comm_rank(s->comm) == 0;
	char hex[GN_SHA256_HEX];
	struct gn_json *j;
	enum gn_status status;

	if (gn_plan_mode(s->replica.plan)[0] && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "trained %s", gn_plan_mode(s->replica.plan));
	status = gn_replica_average(&s->replica, err);
	if (!status)
		status = gn_session_fetch(s, err);
	if (!status)
		status = gn_session_gather(s, 0, err);
	if (status)
		return status;
	/* Of the values in torch's order. */
	gn_weight_layouts_out(layouts, whole.params);
	if (has_all)
		status = gn_sha256_buffer(whole.params, gn_model_param_elements(s->model) * sizeof(float), hex, err);
	gn_weight_layouts_in(layouts, whole.params);
	if (status)
		return status;
	if (has_all)
		gn_log_debug(s->log, "parameters after step %" PRIu64 ": %s", s->state.step, hex);
	status = gn_usage_gather(s->status.usage, err);
	if (status)
		return status;
	j = gn_metrics_log_begin(s->metrics.log, stopped ? "stop" : "end");
	if (j) {
		gn_json_put(j, "step %lu epoch %.4f params_sha256 %s", s->state.step, gn_session_epoch(s), hex);
		gn_usage_write(gn_usage_last(s->status.usage), j);
		if (s->halving.behind)
			gn_json_string(j, "halving", s->halving.why);
		if (s->best.is_over)
			gn_json_string(j, "patience", s->best.why);
	}
	gn_session_end_status(s, stopped ? "stopped" : "done");
	return gn_metrics_log_end(s->metrics.log, err);
}

/* Rank 0 reports what all ranks have, in the end. A rank's own error is reported at once: the launcher may end this process before it has
 * cleaned up. */
static int is_told(struct gn_log *log, struct gn_comm *comm, int agreed, enum gn_status status, const struct gn_err *err)
{
	if (status && !agreed)
		gn_log_error(log, "train: %s", err->text);
	return !agreed || gn_comm_rank(comm) > 0;
}

/* Others find the run by it. Without it they cannot join, and the run goes on. */
static void publish(struct gn_session *s)
{
	struct gn_err why;

	if (gn_elastic_most(s->options) && gn_regroup_publish(s->options->regroup, s->options->checkpoint, &why))
		gn_log_warn(s->log, "nobody can join this run: %s", why.text);
}

/* Until the log says that the run has begun. A start that is refused before that says nothing about the run in the log, which may be
 * another's that goes on. */
static enum gn_status start(struct gn_session *s, const volatile sig_atomic_t *stop, int *is_in_log, struct gn_err *err)
{
	int resumed;
	enum gn_status status = gn_session_claim(s, stop, err);

	if (!status)
		status = gn_session_restore(s, &resumed, err);
	if (!status)
		status = gn_session_open_servers(s, err);
	if (!status)
		status = gn_session_open_ring(s, err);
	if (!status)
		status = gn_agree_status(s->comm, gn_session_fit_schedule(s, err), err);
	if (!status && !gn_session_is_done(s))
		status = gn_session_try_save(s, err);
	if (!status)
		status = gn_agree_status(s->comm, gn_session_is_done(s) ? GN_OK : gn_session_write_options(s, err), err);
	if (!status)
		status = gn_agree_status(s->comm, log_start(s, resumed, err), err);
	*is_in_log = !status;
	if (s->options->carried)
		s->options->carried->has_begun = !status;
	if (!status && s->options->regroup && s->options->checkpoint && gn_comm_rank(s->comm) == 0)
		publish(s);
	return status;
}

/* From there to the first step. */
static enum gn_status begin(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_session_begin_status(s, s->state.step + steps_left(s), err);

	if (!status)
		status = gn_session_begin_halving(s, s->state.step + steps_left(s), err);
	if (!status)
		status = gn_session_begin_best(s, err);
	if (!status) {
		close_epoch(s);
		status = gn_session_begin_epoch(s, err);
	}
	if (!status)
		status = gn_session_begin_autotune(s, steps_left(s), err);
	if (!status && s->metrics.trace)
		status = gn_trace_begin(s->metrics.trace, s->comm, err);
	if (!status && steps_left(s))
		status = gn_session_log_mesh(s, err);
	if (status)
		return status;
	gn_summary_start(s, steps_left(s));
	s->metrics.last_ns = s->metrics.began_ns;
	if (s->options->carried && s->options->carried->why)
		status = gn_session_alone(s, gn_carried_log_recovery(s->options->carried, s, err));
	if (gn_session_is_done(s) && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "nothing left to train: %" PRIu64 " step%s %s done, and the options ask for no more", s->state.step, gn_text_plural(s->state.step),
			    s->state.step == 1 ? "is" : "are");
	return status;
}

/* For the ranks that are left. Returns the loss. */
static enum gn_status keep_state(struct gn_session *s, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = gn_carried_take(s->options->carried, s, &why);

	if (status)
		*err = why;
	return status ? status : GN_ERR_PEER_LOST;
}

/* For the ranks that take in those that wait. Returns what looks like a loss. */
static enum gn_status ask_in(struct gn_session *s, struct gn_err *err)
{
	const int slow = s->grows - 2;

	if (slow < 0 || slow >= gn_comm_size(s->comm))
		return gn_err_set(err, GN_ERR_PEER_LOST, "after step %" PRIu64 " %s", s->state.step,
				  s->last.leaves ? "a process that has joined leaves, as it was asked to" : "processes that wait are taken in");
	gn_regroup_replace(s->options->regroup, slow);
	return gn_err_set(err, GN_ERR_PEER_LOST, "after step %" PRIu64 " rank %d on %s, which is slow, is replaced by a process that waits", s->state.step,
			  slow, gn_world_host_of(gn_comm_world(s->comm), slow));
}

enum gn_status gn_train_run(const struct gn_train_options *options, const char *agreed_text,
			    const volatile sig_atomic_t *stop, struct gn_comm *comm, struct gn_log *log, int *told,
			    struct gn_err *err)
{
	struct gn_session *s;
	int stopped = 0, is_in_log = 0;
	enum gn_status status;

	gn_world_set_phase(gn_comm_world(comm), "starting to train", GN_TRAIN_STALL_MS);
	status = gn_session_create(options, agreed_text, comm, log, &s, err);
	*told = is_told(log, comm, !gn_agree_is_over(comm, status), status, err);
	if (status)
		return status;
	status = start(s, stop, &is_in_log, err);
	if (!status)
		status = begin(s, err);
	if (!status)
		status = train(s, stop, &stopped, err);
	if (!status && s->grows)
		status = ask_in(s, err);
	if (options->carried)
		options->carried->is_planned = status == GN_ERR_PEER_LOST && s->grows;
	if (!status)
		status = gn_session_log_bubble(s, err);
	if (!status)
		status = log_end(s, stopped, err);
	if (!status && !stopped)
		gn_summary_end(s);
	if (!status && stopped)
		status = gn_err_set(err, GN_ERR_STOPPED, "stopped on request after step %" PRIu64 "%s", s->state.step,
				    options->checkpoint ? "; go on with --resume auto" : "; without --checkpoint nothing is "
				    "kept");
	if (options->regroup && options->checkpoint && gn_comm_rank(comm) == 0 && status != GN_ERR_PEER_LOST)
		gn_regroup_unpublish(options->checkpoint);
	if (status == GN_ERR_PEER_LOST && options->carried && !s->failed_alone) {
		status = is_in_log ? keep_state(s, err) : status;
		s->checkpoint.leaves_owner = 1;
		gn_session_destroy(s);
		*told = 0;
		return status;
	}
	if (status == GN_ERR_PEER_LOST)
		gn_session_name_lost(s, err);
	*told = is_told(log, comm, !s->failed_alone && !gn_agree_is_over(comm, status), status, err);
	if (s->failed_alone)
		gn_world_abort(gn_comm_world(comm), status, err->text);
	if (status && status != GN_ERR_STOPPED) {
		if (is_in_log)
			gn_metrics_log_failure(s->metrics.log, s->state.step, gn_session_epoch(s), err);
		gn_session_end_status(s, "failed");
		write_trace_part(s, err->text);
	}
	gn_session_destroy(s);
	return status;
}
