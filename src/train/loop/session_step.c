/* A step of a run: what comes before and after it. */
#include "src/train/loop/session.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/train/loop/carried.h"

#include "transport/bootstrap/regroup.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/* So many steps in a row without an update, and the parameters themselves are no longer usable. */
enum { SKIPS_MAX = 10 };

/* The sums of the step that began then, each on a line of the trace that no other takes at that time; one that has not ended, in a
 * step that failed, until now. */
static void trace_buckets(const struct gn_session *s, uint64_t began_ns)
{
	const struct gn_reducer *x = s->replica.reducer;
	uint64_t busy_until[GN_TRACE_SUMS_MAX] = {0}, now = gn_clock_ns();

	for (size_t b = 0; b < gn_reducer_buckets(x) && gn_trace_is_on(s->metrics.trace); b++) {
		struct gn_reducer_bucket seen;
		int line = 0;

		gn_reducer_bucket(x, b, &seen);
		if (seen.start_ns < began_ns)
			continue;
		if (seen.done_ns < seen.start_ns)
			seen.done_ns = now;
		while (line < GN_TRACE_SUMS_MAX && busy_until[line] > seen.start_ns)
			line++;
		if (line == GN_TRACE_SUMS_MAX)
			continue;
		busy_until[line] = seen.done_ns;
		gn_trace_add(s->metrics.trace, GN_SPAN_BUCKET, GN_TRACE_SUMS + line, (uint32_t)b, seen.start_ns, seen.done_ns);
	}
}

static enum gn_status note_skipped(struct gn_session *s, double lr, struct gn_interval *sums, struct gn_err *err)
{
	s->state.skipped++;
	sums->skipped++;
	if (++s->skips_in_a_row >= SKIPS_MAX)
		return gn_err_set(err, GN_ERR_FAILED,
				  "gradients or loss are not finite at step %" PRIu64 " (learning rate %g), the %dth in a row: "
				  "lower --lr, lengthen --warmup-epochs%s", s->state.step + 1, lr, SKIPS_MAX,
				  s->options->served || s->options->freeze.count ? "" :
				  s->replica.compressor ? ", set --clip, which powersgd and topk need more often, or compress less" :
				  " or set --clip");
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "step %" PRIu64 " updates nothing: a gradient is not finite (learning rate %g; %" PRIu64
			    " step%s skipped so far)", s->state.step + 1, lr, s->state.skipped, gn_text_plural(s->state.skipped));
	return GN_OK;
}

/* A step that is left out for its gradients is nothing unusual in fp16: that is how the scale of the loss is found. */
int gn_session_has_diverged(const struct gn_session *s)
{
	const char *precision = s->options->precision;

	return !isfinite(s->last.loss) || (s->skips_in_a_row && (!precision || strcmp(precision, "fp16")));
}

static enum gn_status note_result(struct gn_session *s, double lr, struct gn_interval *sums, struct gn_err *err)
{
	if (s->last.skipped)
		return note_skipped(s, lr, sums, err);
	s->skips_in_a_row = 0;
	sums->unknown += (uint64_t)s->last.is_unknown;
	sums->missed += s->last.missed;
	sums->wanted += s->last.wanted;
	sums->loss_sum += s->last.loss;
	sums->correct_sum += s->last.correct;
	sums->norm_sum += s->last.norm;
	return GN_OK;
}

/* Whether gradients of the whole network are summed on the hosts, in every step. */
static int sums_all(const struct gn_session *s)
{
	return !s->pipeline && !gn_replica_sums_on_gpus(&s->replica) && s->replica.local.every <= 1 && !s->replica.shard && !s->options->served;
}

static void predict_sums(struct gn_session *s)
{
	if (sums_all(s) && !s->autotune && !s->replica.compressor)
		gn_step_forecast_sums(&s->forecast, s->comm, s->log);
}

static uint64_t sent_bytes(const struct gn_session *s)
{
	uint64_t same_node, other_node;

	gn_comm_sent_bytes(s->comm, &same_node, &other_node);
	return same_node + other_node;
}

/* The reducer may change with each step that is measured. */
static enum gn_status note_autotune(struct gn_session *s, struct gn_err *err)
{
	struct gn_reducer *before = s->replica.reducer;
	enum gn_status status;

	if (!s->autotune)
		return GN_OK;
	status = gn_bucket_autotune_note(&s->autotune, s->step_s, s->state.step, &s->replica.reducer, err);
	if (!status && s->replica.reducer != before)
		status = gn_replica_cut(&s->replica, err);
	if (!status)
		predict_sums(s);
	return gn_session_alone(s, status);
}

/* Averages when it is time; that counts as communication. */
static enum gn_status after_local_step(struct gn_session *s, struct gn_interval *sums, double *took, struct gn_err *err)
{
	struct gn_local_steps *local = &s->replica.local;
	uint64_t began = gn_clock_ns(), now;
	enum gn_status status = GN_OK;

	local->has_drifted |= !s->last.skipped;
	if ((s->state.step + 1) % local->every == 0)
		status = gn_replica_average(&s->replica, err);
	now = gn_clock_ns();
	gn_trace_add(s->metrics.trace, GN_SPAN_WAIT, GN_TRACE_MAIN, 0, began, now);
	sums->exposed += (double)(now - began) * 1e-9;
	*took += (double)(now - began) * 1e-9;
	return status;
}

/* For gn_step. */
static int regroup_wish(const struct gn_session *s)
{
	if (gn_comm_rank(s->comm) || !s->options->regroup)
		return 0;
	if (s->slow.steps && s->slow.replaced >= 0)
		return 2 + s->slow.replaced;
	return gn_regroup_candidates(s->options->regroup) > 0;
}

/* What this rank asks of the step after the state. stops, leaves: of this process alone. */
static struct gn_train_step next_step(const struct gn_session *s, int stops, int leaves)
{
	return (struct gn_train_step){
		.number = s->state.step,
		.updates = s->state.step + 1 - s->state.skipped,
		.state = &s->state,
		.lr = gn_session_rate(s),
		.stop = stops && !leaves,
		.leaves = leaves,
		.save = gn_session_wants_save(s),
		.regroup = regroup_wish(s),
		.writing = gn_checkpoint_writer_is_busy(s->checkpoint.writer),
		.pause = s->replica.options.async_batches && !s->replica.async.is_open ? gn_session_next_pause(s) : 0,
		.has_next = gn_session_has_batch(s, s->state.sample + s->schedule.global_batch),
	};
}

/* *took: with what follows a local step. */
static enum gn_status run_step(struct gn_session *s, const struct gn_train_step *step, struct gn_interval *sums, double *took, struct gn_err *err)
{
	enum gn_status status;

	if (s->replica.compressor)
		gn_compressor_begin(s->replica.compressor, s->state.step, s->state.epoch);
	s->replica.local.is_active = s->replica.local.every > 1 && s->state.epoch >= s->replica.local.from_epoch;
	s->is_within_step = 1;
	status = gn_session_alone(s, gn_step_run(&s->replica, step, sums, &s->last, err));
	s->is_within_step = status != GN_OK;
	if (!status)
		status = gn_session_note_losses(s, err);
	if (!status)
		status = note_result(s, step->lr, sums, err);
	*took = s->last.took_s;
	return !status && s->replica.local.is_active ? after_local_step(s, sums, took, err) : status;
}

/* Whether the run stops, or goes on in a new world. leaves: as in next_step(). */
static void note_wishes(struct gn_session *s, int leaves, int *stopping)
{
	/* several that leave at once and are too many: as if the last of them had asked when it could not leave any more */
	*stopping = s->last.stop || (s->last.leaves && gn_comm_size(s->comm) - s->last.leaves < gn_elastic_least(s->options));
	s->grows = s->last.regroup ? s->last.regroup : s->last.leaves > 0;
	if (s->options->carried)
		s->options->carried->leaves = leaves;
}

/* A step that took so long, of which it waited for data. */
static void note_times(struct gn_session *s, double took, double waited, struct gn_interval *sums)
{
	sums->steps++;
	sums->images += gn_session_step_images(s);
	sums->step += took;
	s->step_s = took - waited;
	s->metrics.images += gn_session_step_images(s);
	s->metrics.steps_s += took;
	s->metrics.unlogged_s += took;
	s->metrics.unlogged_steps++;
	s->metrics.last_ns = gn_clock_ns();
	s->metrics.waited_s += waited;
	if (gn_session_reads_images(s))
		gn_loader_threads_note(s, took, waited);
}

enum gn_status gn_session_step(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_interval *sums, int *stopping,
			       struct gn_err *err)
{
	const uint64_t began = gn_clock_ns(), sent = sent_bytes(s);
	const double waited = sums->data, exposed = sums->exposed, copies = sums->copies;
	/* a process that has joined leaves the others, while they are enough without it */
	const int stops = *stop, leaves = stops && s->options->join && gn_comm_size(s->comm) > gn_elastic_least(s->options);
	const struct gn_train_step step = next_step(s, stops, leaves);
	double predicted, took;
	enum gn_status status;

	gn_trace_set_step(s->metrics.trace, s->state.step + 1);
	status = run_step(s, &step, sums, &took, err);
	sums->sent_bytes += sent_bytes(s) - sent;
	trace_buckets(s, began);
	gn_trace_add(s->metrics.trace, GN_SPAN_STEP, GN_TRACE_MAIN, 0, began, gn_clock_ns());
	if (status)
		return status;
	predicted = gn_step_forecast_step(&s->forecast, s->replica.reducer, began, s->last.computed_s, s->last.update_s);
	sums->predicted += predicted;
	sums->predicted_compute += predicted > 0 ? s->last.computed_s + s->last.update_s : 0;
	sums->lr = step.lr;
	s->metrics.agreed_ns = began;
	s->metrics.copies_s += sums->copies - copies;
	note_wishes(s, leaves, stopping);
	note_times(s, took, sums->data - waited, sums);
	s->state.step++;
	s->state.sample += s->schedule.global_batch;
	status = gn_session_note_compression(s, sums->exposed - exposed, err);
	return status ? status : note_autotune(s, err);
}

/* Under other conditions the bucket size and overlap that were measured say nothing. */
static void describe_conditions(const struct gn_session *s, struct gn_strbuf *out)
{
	const struct gn_train_options *o = s->options;

	gn_strbuf_printf(out, "%s of %zu parameters, %d ranks on %d nodes, %" PRId64 " x %" PRId64 " images, transport %s, algo %s, "
			 "progress %s, threads %" PRId64 ", bucket %" PRId64 ", overlap %d%s, side %" PRId64 ", %s", gn_model_name(s->model),
			 gn_model_param_elements(s->model), gn_comm_size(s->comm), gn_world_nodes(gn_comm_world(s->comm)),
			 (int64_t)s->schedule.own_batches, o->batch, o->transport ? o->transport : "auto", o->algo ? o->algo : "auto",
			 o->progress ? o->progress : "caller", o->threads, o->bucket, o->overlap, o->any_order ? ", any order" : "", o->side,
			 o->precision ? o->precision : "fp32");
}

static enum gn_status begin_autotune(struct gn_session *s, uint64_t steps_left, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_strbuf conditions = {0};
	struct gn_bucket_autotune_options ao = {
		.reducer = gn_replica_sharing_options(&s->replica), .bucket_bytes = (size_t)o->bucket, .overlap = (enum gn_overlap)o->overlap,
		.any_order = o->any_order, .folder = o->checkpoint, .log = s->log, .metrics_log = s->metrics.log,
	};
	enum gn_status status;

	describe_conditions(s, &conditions);
	ao.conditions = gn_strbuf_text(&conditions);
	status = gn_bucket_autotune_begin(&ao, steps_left, &s->replica.reducer, &s->autotune, err);
	gn_strbuf_release(&conditions);
	return status ? status : gn_agree_status(s->comm, gn_replica_cut(&s->replica, err), err);
}

enum gn_status gn_session_begin_autotune(struct gn_session *s, uint64_t steps_left, struct gn_err *err)
{
	const char *progress = s->options->progress;
	/* A rank whose GPU computes has one thread that feeds it. */
	int threads = gn_device_is_queued(s->replica.device.device) ? 1 : omp_get_max_threads();
	enum gn_status status;

	gn_session_begin_compression(s, steps_left);
	status = sums_all(s) && !s->compress.method && !gn_elastic_least(s->options) ? begin_autotune(s, steps_left, err) : GN_OK;

	if (!status)
		status = gn_step_forecast_init(&s->forecast, s->comm, threads, progress && !strcmp(progress, "thread"), err);
	if (!status)
		predict_sums(s);
	return status;
}
