/* Evaluation between the steps of a run. */
#include "src/train/loop/session.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/train/metrics/metrics.h"

#include <inttypes.h>
#include <math.h>

int gn_session_evaluation_due(const struct gn_session *s)
{
	const struct gn_train_options *o = s->options;

	if (!s->data.val)
		return 0;
	if (!s->state.step && o->eval_first)
		return 1;
	if (s->state.step && o->eval_steps && s->state.step % (uint64_t)o->eval_steps == 0)
		return 1;
	/* no sample of an epoch is done: the one before it has just ended */
	return gn_session_is_done(s) ||
	       (s->state.epoch && !s->state.sample && s->state.epoch % (uint64_t)o->eval_every == 0);
}

static void put_score(struct gn_json *j, const struct gn_metrics *score)
{
	double images = (double)score->images;

	gn_json_double(j, "top1", (double)score->top1 / images);
	gn_json_double(j, "top5", (double)score->top5 / images);
	gn_json_double(j, "loss", score->loss_sum / images);
	gn_json_uint(j, "nonfinite", score->nonfinite);
}

static void log_score_text(const struct gn_session *s, const char *of, const struct gn_metrics *score)
{
	double images = (double)score->images, loss = score->loss_sum / images;

	if (gn_comm_rank(s->comm))
		return;
	gn_metrics_warn(score, s->log);
	gn_log_info(s->log, "epoch %.2f evaluation%s: top-1 %.2f %% top-5 %.2f %% loss %.4f of %" PRIu64 " image%s",
		    gn_session_epoch(s), of, 100 * (double)score->top1 / images, 100 * (double)score->top5 / images,
		    isnan(loss) ? fabs(loss) : loss /* not -nan */, score->images, gn_text_plural(score->images));
}

static int is_writing(void *session)
{
	return gn_checkpoint_writer_is_busy(((struct gn_session *)session)->checkpoint.writer);
}

/* A checkpoint that is being written does not wait for the evaluation to end. */
static enum gn_status advance_save(void *session, struct gn_err *err)
{
	return gn_session_advance_save(session, err);
}

static enum gn_status score(struct gn_session *s, int average, const volatile sig_atomic_t *stop, int *stopping,
			    struct gn_metrics *out, struct gn_err *err)
{
	const struct gn_metrics_beside beside = {is_writing, advance_save, s};
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);
	const int is_part = s->replica.options.pipe != NULL;
	const int slices = s->replica.options.tensor && !is_part ? gn_tensor_group_size(s->replica.options.tensor) : 1;
	float *params = slices > 1 ? s->replica.params.host : whole.params, *buffers = slices > 1 ? s->replica.buffers.host : whole.buffers;
	struct gn_ema ema;
	enum gn_status status = average && !is_part ? gn_replica_whole_average(&s->replica, &ema, err) : GN_OK;
	int swaps = average && !status;

	if (is_part)
		gn_session_whole_average(s, &ema);
	if (swaps)
		gn_ema_swap(&ema, params, buffers);
	if (!status)
		status = gn_metrics_run(s->val_plan, s->data.val_loader, s->comm, gn_model_classes(s->model), NULL, NULL, stop, stopping,
					&beside, out, err);
	if (swaps)
		gn_ema_swap(&ema, params, buffers);
	/* each slice has counted the images of its tensor group */
	out->images /= (uint64_t)slices;
	out->top1 /= (uint64_t)slices;
	out->top5 /= (uint64_t)slices;
	out->nonfinite /= (uint64_t)slices;
	out->loss_sum /= slices;
	/* that another run has taken the checkpoint's folder is known to all ranks */
	if (status && status != GN_ERR_EXISTS)
		gn_session_alone(s, status);
	if (status)
		return gn_err_prefix(err, average ? "evaluation of the average" : "evaluation");
	return GN_OK;
}

static enum gn_status put_scores(struct gn_session *s, const struct gn_metrics *plain, const struct gn_metrics *average,
				 double seconds, struct gn_err *err)
{
	struct gn_json *j = gn_metrics_log_begin(s->metrics.log, "eval");

	s->metrics.last_top1 = (double)plain->top1 / (double)plain->images;
	s->metrics.best_top1 = fmax(s->metrics.best_top1, s->metrics.last_top1);
	s->metrics.evaluations++;
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_uint(j, "images", plain->images);
		put_score(j, plain);
		gn_json_fixed(j, "seconds", seconds, 3);
		if (gn_replica_has_average(&s->replica)) {
			gn_json_object(j, "ema");
			put_score(j, average);
			gn_json_end(j);
		}
	}
	return gn_session_alone(s, gn_metrics_log_end(s->metrics.log, err));
}

static enum gn_status evaluate(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopping, uint64_t began_ns,
			       struct gn_err *err)
{
	struct gn_metrics plain = {0}, average = {0};
	enum gn_status status = GN_OK;
	double seconds;

	if (!*stopping)
		status = gn_replica_average(&s->replica, err);
	if (!status && !*stopping)
		status = gn_session_fetch(s, err);
	if (!status && !*stopping && (!s->replica.options.tensor || s->replica.options.pipe))
		status = gn_session_gather(s, 1, err);
	if (!status && !*stopping)
		status = score(s, 0, stop, stopping, &plain, err);
	if (!status && !*stopping && gn_replica_has_average(&s->replica))
		status = score(s, 1, stop, stopping, &average, err);
	if (status)
		return status;
	s->unevaluated = !plain.images || (gn_replica_has_average(&s->replica) && !average.images);
	if (s->unevaluated) {
		if (gn_comm_rank(s->comm) == 0)
			gn_log_info(s->log, "epoch %.2f: no evaluation, because the run is to stop; it comes first when the run goes on",
				    gn_session_epoch(s));
		return GN_OK;
	}
	log_score_text(s, "", &plain);
	if (gn_replica_has_average(&s->replica))
		log_score_text(s, " of the average", &average);
	/* without the best one's checkpoint, whose line has its own */
	seconds = (double)(gn_clock_ns() - began_ns) * 1e-9;
	/* before the log has the evaluation: a start that finds it there does not repeat it */
	status = gn_session_note_best(s, &plain, &average, err);
	return status ? status : put_scores(s, &plain, &average, seconds, err);
}

enum gn_status gn_session_evaluate(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopping, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	enum gn_status status;

	gn_world_set_phase(gn_comm_world(s->comm), "evaluating", GN_TRAIN_STALL_MS);
	gn_session_tell_status(s, "evaluating");
	status = evaluate(s, stop, stopping, began, err);
	gn_trace_add(s->metrics.trace, GN_SPAN_EVALUATE, GN_TRACE_MAIN, 0, began, gn_clock_ns());
	return status;
}

enum gn_status gn_session_evaluate_missed(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopping,
					  struct gn_err *err)
{
	const int only = !s->options->epochs && !s->options->steps;
	int32_t missed = 0;
	enum gn_status status;

	if (!gn_session_evaluation_due(s))
		return GN_OK;
	if (gn_comm_rank(s->comm) == 0)
		missed = only || !gn_metrics_log_has_eval(s->options->log, s->state.step);
	status = gn_comm_broadcast(s->comm, &missed, sizeof missed, 0, err);
	if (!status && missed)
		status = gn_session_evaluate(s, stop, stopping, err);
	gn_world_set_phase(gn_comm_world(s->comm), "training", GN_TRAIN_STALL_MS);
	gn_session_tell_status(s, "training");
	return status;
}
