#include "src/train/trainer.h"

#include "kernels/optim.h"
#include "src/base/clock.h"
#include "src/base/progress.h"
#include "src/base/sha256.h"
#include "src/train/score.h"
#include "src/train/session.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Seconds of the interval, and what was learned in it. */
struct interval {
	double step, data, forward, backward, exposed, optimizer;
	double loss_sum, lr;
	uint64_t steps;
};

static double since(uint64_t *mark)
{
	uint64_t now = gn_clock_ns(), passed = now - *mark;

	*mark = now;
	return (double)passed * 1e-9;
}

/* Gradients and buffers come as sums over ranks. */
static void average_buffers(struct gn_session *s)
{
	size_t count = gn_model_buffer_elements(s->model);
	float share = 1.0f / (float)gn_comm_size(s->comm);

	for (size_t i = 0; i < count; i++)
		s->buffers[i] *= share;
}

/* One SGD update, tensor by tensor, because weight decay may differ between them. */
static void update(struct gn_session *s, double lr)
{
	const struct gn_train_options *o = s->options;
	int count = gn_model_param_count(s->model);

	for (int i = 0; i < count; i++) {
		const struct gn_param *p = gn_model_param(s->model, i);
		struct gn_sgd sgd = {
			.lr = lr, .momentum = o->momentum, .nesterov = o->nesterov,
			.weight_decay = p->kind == GN_PARAM_WEIGHT || o->decay_all ? o->weight_decay : 0,
			.grad_scale = 1.0 / gn_comm_size(s->comm),
		};

		gn_sgd_step(&sgd, s->params + p->offset, s->flat + p->offset, s->momentum + p->offset, p->count);
	}
}

/* Marks a failure that happened to this rank alone: the others must be told, or they would wait for it. */
static enum gn_status alone(struct gn_session *s, enum gn_status status)
{
	s->failed_alone |= status != GN_OK && status != GN_ERR_PEER_LOST;
	return status;
}

static enum gn_status run_step(struct gn_session *s, const volatile sig_atomic_t *stop, struct interval *sums,
			       int *stopping, struct gn_err *err)
{
	uint64_t mark = gn_clock_ns();
	const uint64_t began = mark;
	double lr = gn_lr_at(&s->lr, (double)s->global_batch, gn_session_epoch(s)), loss;
	struct gn_batch batch;
	const float *logits;
	enum gn_status status = alone(s, gn_loader_next(s->loader, &batch, err));

	sums->data += since(&mark);
	if (!status)
		status = alone(s, gn_plan_forward(s->plan, batch.images, s->state.step, &logits, err));
	if (!status)
		status = alone(s, gn_plan_loss(s->plan, batch.labels, &loss, err));
	sums->forward += since(&mark);
	if (status)
		return status;
	s->tail[GN_TAIL_LOSS] = (float)loss;
	s->tail[GN_TAIL_STOP] = *stop ? 1 : 0;
	gn_exchange_begin(s->exchange);
	status = alone(s, gn_plan_backward(s->plan, gn_exchange_ready, s->exchange, err));
	sums->backward += since(&mark);
	if (!status)
		status = gn_exchange_wait(s->exchange, err);
	sums->exposed += since(&mark);
	if (status)
		return status;
	loss = (double)s->tail[GN_TAIL_LOSS] / gn_comm_size(s->comm);
	if (!isfinite(loss))
		return gn_err_set(err, GN_ERR_FAILED,
				  "the loss is not finite at step %" PRIu64 " (learning rate %g): lower --lr or lengthen "
				  "--warmup-epochs", s->state.step + 1, lr);
	average_buffers(s);
	update(s, lr);
	sums->optimizer += since(&mark);
	*stopping = s->tail[GN_TAIL_STOP] > 0;
	sums->loss_sum += loss;
	sums->lr = lr;
	sums->steps++;
	sums->step += (double)(mark - began) * 1e-9;
	s->state.step++;
	s->state.sample += s->global_batch;
	return GN_OK;
}

static enum gn_status log_interval(struct gn_session *s, struct interval *sums, struct gn_err *err)
{
	double steps = (double)sums->steps, ms = 1e3 / steps;
	struct gn_json *j = gn_runlog_begin(s->runlog, "step");

	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_double(j, "loss", sums->loss_sum / steps);
		gn_json_double(j, "lr", sums->lr);
		gn_json_fixed(j, "images_per_s", steps * (double)s->global_batch / sums->step, 1);
		gn_json_object(j, "time_ms");
		gn_json_fixed(j, "step", sums->step * ms, 3);
		gn_json_fixed(j, "data", sums->data * ms, 3);
		gn_json_fixed(j, "forward", sums->forward * ms, 3);
		gn_json_fixed(j, "backward", sums->backward * ms, 3);
		gn_json_fixed(j, "communication_exposed", sums->exposed * ms, 3);
		gn_json_fixed(j, "optimizer", sums->optimizer * ms, 3);
		gn_json_end(j);
	}
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "step %" PRIu64 " epoch %.2f loss %.4f lr %.4g %.0f images/s, data %.0f %% exposed "
			    "communication %.0f %%", s->state.step, gn_session_epoch(s), sums->loss_sum / steps, sums->lr,
			    steps * (double)s->global_batch / sums->step, 100 * sums->data / sums->step,
			    100 * sums->exposed / sums->step);
	*sums = (struct interval){0};
	return alone(s, gn_runlog_end(s->runlog, err));
}

/* What this rank does between collectives, for the others who wait: a slow disk is no reason to end a run, a process that
 * hangs is. */
static void announce(const struct gn_session *s, const char *what)
{
	gn_world_announce(gn_comm_world(s->comm), what, GN_TRAIN_STALL_MS);
}

static enum gn_status evaluate(struct gn_session *s, struct gn_err *err)
{
	struct gn_score score;
	struct gn_json *j;
	double images;
	enum gn_status status = gn_score_run(s->val_plan, s->val_loader, s->comm, gn_model_classes(s->model), &score, err);

	if (alone(s, status))
		return gn_err_prefix(err, "evaluation");
	images = (double)score.images;
	j = gn_runlog_begin(s->runlog, "eval");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_uint(j, "images", score.images);
		gn_json_double(j, "top1", (double)score.top1 / images);
		gn_json_double(j, "top5", (double)score.top5 / images);
		gn_json_double(j, "loss", score.loss_sum / images);
	}
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "epoch %.2f evaluation: top-1 %.2f %% top-5 %.2f %% loss %.4f of %" PRIu64 " images",
			    gn_session_epoch(s), 100 * (double)score.top1 / images, 100 * (double)score.top5 / images,
			    score.loss_sum / images, score.images);
	return alone(s, gn_runlog_end(s->runlog, err));
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

/* What is due after a step: a line, the end of an epoch with evaluation and checkpoint, a checkpoint in between. */
static enum gn_status after_step(struct gn_session *s, struct interval *sums, int stopping, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int over = close_epoch(s), last = is_done(s);
	enum gn_status status = GN_OK;

	if (s->state.step % (uint64_t)o->log_every == 0 || over || last || stopping)
		status = log_interval(s, sums, err);
	/* Whoever asks for a stop may not wait for an evaluation: safety first. */
	if (!status && stopping) {
		announce(s, "writing a checkpoint");
		status = gn_session_save(s, err);
	}
	announce(s, "evaluating");
	if (!status && s->val && (last || (over && s->state.epoch % (uint64_t)o->eval_every == 0)))
		status = evaluate(s, err);
	announce(s, "writing a checkpoint");
	if (!status && (over || last || stopping ||
			(o->checkpoint_every && s->state.step % (uint64_t)o->checkpoint_every == 0)))
		status = gn_session_save(s, err);
	announce(s, "training");
	if (!status && over && !last)
		status = gn_loader_start(s->loader, (uint32_t)s->state.epoch, 0, err);
	return status;
}

static enum gn_status train(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopped, struct gn_err *err)
{
	struct interval sums = {0};
	struct gn_progress progress;
	int stopping = 0;
	enum gn_status status = GN_OK;

	gn_progress_begin(&progress, "training", "images", steps_left(s) * s->global_batch);
	progress.terminal = progress.terminal && gn_comm_rank(s->comm) == 0;
	while (!status && !is_done(s) && !stopping) {
		status = run_step(s, stop, &sums, &stopping, err);
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
	struct gn_json *j = gn_runlog_begin(s->runlog, resumed ? "resume" : "start");

	if (j) {
		gn_json_string(j, "model", gn_model_name(s->model));
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
	}
	return gn_runlog_end(s->runlog, err);
}

static enum gn_status log_end(struct gn_session *s, int stopped, struct gn_err *err)
{
	char hex[GN_SHA256_HEX];
	enum gn_status status = gn_sha256_buffer(s->params, gn_model_param_elements(s->model) * sizeof(float), hex, err);
	struct gn_json *j = status ? NULL : gn_runlog_begin(s->runlog, stopped ? "stop" : "end");

	if (status)
		return status;
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_fixed(j, "epoch", gn_session_epoch(s), 4);
		gn_json_string(j, "params_sha256", hex);
	}
	return gn_runlog_end(s->runlog, err);
}

enum gn_status gn_train_run(const struct gn_train_options *options, const char *options_text,
			    const volatile sig_atomic_t *stop, struct gn_comm *comm, struct gn_log *log, int *agreed,
			    struct gn_err *err)
{
	struct gn_session *s;
	int resumed, stopped = 0;
	enum gn_status status;

	gn_world_announce(gn_comm_world(comm), "starting to train", GN_TRAIN_STALL_MS);
	status = gn_session_create(options, options_text, comm, log, &s, err);

	*agreed = status != GN_ERR_PEER_LOST;
	if (status)
		return status;
	status = gn_session_restore(s, &resumed, err);
	if (!status)
		status = gn_agree_status(comm, log_start(s, options_text, resumed, err), err);
	if (!status) {
		close_epoch(s);
		status = gn_loader_start(s->loader, (uint32_t)s->state.epoch, s->state.sample, err);
	}
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
	*agreed = !s->failed_alone && status != GN_ERR_PEER_LOST;
	if (s->failed_alone)
		gn_world_give_up(gn_comm_world(comm), err->text);
	gn_session_destroy(s);
	return status;
}
