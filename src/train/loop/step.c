#include "src/train/loop/step.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/train/loop/device_step.h"
#include "src/train/metrics/scaling_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* So many steps in a row without an update, and the parameters themselves are beyond help. */
enum { SKIPS_MAX = 10 };
/* Shorter looks at the sums under way are many, and of no interest in a trace. */
enum { WORTH_TELLING_NS = 5000 };

/* Since the mark, which moves on. */
static double since(const struct gn_session *s, enum gn_span kind, uint64_t *mark)
{
	uint64_t now = gn_clock_ns(), passed = now - *mark;

	gn_trace_add(s->trace, kind, GN_TRACE_MAIN, 0, *mark, now);
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

static void add(float *to, const float *from, size_t count)
{
#pragma omp parallel for simd schedule(static) if (count > 1 << 14)
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
}

/* The last batch's gradient of a parameter is there: those of the batches before it join it, and it may leave. */
static void ready(void *context, int param)
{
	struct gn_session *s = context;
	const struct gn_param *p = gn_model_param(s->model, param);

	uint64_t began;

	if (s->accumulated)
		add(s->flat + p->offset, s->accumulated + p->offset, p->count);
	began = gn_reducer_taken_ns(s->reducer);
	gn_reducer_ready(s->reducer, param);
	began = gn_reducer_taken_ns(s->reducer) - began;
	if (began > WORTH_TELLING_NS) {
		uint64_t now = gn_clock_ns();

		gn_trace_add(s->trace, GN_SPAN_EXCHANGE, GN_TRACE_MAIN, 0, now - began, now);
	}
}

/* The sums of the step that began then, each on a line of the trace that no other takes at that time; one that has not ended, in a
 * step that failed, until now. */
static void trace_buckets(const struct gn_session *s, uint64_t began_ns)
{
	const struct gn_reducer *x = s->device_reducer.reducer ? s->device_reducer.reducer : s->reducer;
	uint64_t busy_until[GN_TRACE_SUMS_MAX] = {0}, now = gn_clock_ns();

	for (size_t b = 0; b < gn_reducer_buckets(x) && gn_trace_is_on(s->trace); b++) {
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
		gn_trace_add(s->trace, GN_SPAN_BUCKET, GN_TRACE_SUMS + line, (uint32_t)b, seen.start_ns, seen.done_ns);
	}
}

/* Gradients of a batch that is not the step's last one. */
static enum gn_status accumulate(struct gn_session *s, int first, struct gn_err *err)
{
	size_t count = gn_model_param_elements(s->model);
	enum gn_status status = gn_plan_backward(s->plan, NULL, NULL, err);

	if (!status && first)
		memcpy(s->accumulated, s->flat, count * sizeof(float));
	else if (!status)
		add(s->accumulated, s->flat, count);
	return status;
}

/* Batch number k of the step, up to its loss. */
static enum gn_status forward(struct gn_session *s, int64_t k, struct gn_interval *sums, uint64_t *mark, double *loss,
			      struct gn_err *err)
{
	uint64_t number = s->state.step * (uint64_t)s->options->accumulate + (uint64_t)k;
	struct gn_batch batch;
	const float *logits;
	enum gn_status status = gn_loader_next(s->loader, &batch, err);

	sums->data += since(s, GN_SPAN_DATA, mark);
	if (!status)
		status = gn_plan_forward(s->plan, gn_batch_input(&batch), number, &logits, err);
	if (!status) {
		struct gn_targets targets = {batch.labels, batch.pair_labels, batch.lambdas};

		status = gn_plan_loss_mixed(s->plan, &targets, loss, err);
	}
	sums->forward += since(s, GN_SPAN_FORWARD, mark);
	return gn_session_alone(s, status);
}

/* All batches; afterwards gradients, buffers and tail are sums over ranks. */
static enum gn_status compute(struct gn_session *s, int stop, struct gn_interval *sums, uint64_t *mark, struct gn_err *err)
{
	int64_t batches = s->options->accumulate;
	double loss, total = 0, taken;
	enum gn_status status = GN_OK;

	for (int64_t k = 0; k < batches && !status; k++) {
		status = forward(s, k, sums, mark, &loss, err);
		if (status)
			return status;
		total += loss;
		if (k + 1 < batches) {
			status = gn_session_alone(s, accumulate(s, k == 0, err));
			sums->backward += since(s, GN_SPAN_BACKWARD, mark);
			continue;
		}
		s->piggyback[GN_PIGGYBACK_LOSS] = (float)(total / (double)batches);
		s->piggyback[GN_PIGGYBACK_STOP] = stop ? 1 : 0;
		s->piggyback[GN_PIGGYBACK_SAVE] = gn_session_wants_save(s) ? 1 : 0;
		gn_reducer_begin(s->reducer);
		status = gn_session_alone(s, gn_plan_backward(s->plan, ready, s, err));
		sums->backward += since(s, GN_SPAN_BACKWARD, mark);
		if (!status)
			status = gn_session_alone(s, gn_reducer_wait(s->reducer, err));
		sums->exposed += since(s, GN_SPAN_WAIT, mark);
		/* What was done for the exchange from within backward is none of it. */
		taken = (double)gn_reducer_taken_ns(s->reducer) * 1e-9;
		sums->backward -= taken;
		sums->exposed += taken;
		sums->within += taken;
	}
	return status;
}

/* The step updates nothing. */
static enum gn_status skip(struct gn_session *s, double lr, struct gn_interval *sums, struct gn_err *err)
{
	memcpy(s->buffers, s->kept_buffers, gn_model_buffer_elements(s->model) * sizeof(float));
	s->state.skipped++;
	sums->skipped++;
	if (++s->skips_in_a_row >= SKIPS_MAX)
		return gn_err_set(err, GN_ERR_FAILED,
				  "gradients or loss are not finite at step %" PRIu64 " (learning rate %g), the %dth in a row: "
				  "lower --lr, lengthen --warmup-epochs or set --clip", s->state.step + 1, lr, SKIPS_MAX);
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "step %" PRIu64 " updates nothing: a gradient is not finite (learning rate %g; %" PRIu64
			    " step%s skipped so far)", s->state.step + 1, lr, s->state.skipped, gn_text_plural(s->state.skipped));
	return GN_OK;
}

/* On the host. Returns whether anything was updated. */
static int update(struct gn_session *s, const struct gn_optim_update *u, double *norm)
{
	if (!isfinite(s->piggyback[GN_PIGGYBACK_LOSS]) || !gn_optimizer_step(s->optimizer, u, s->params, s->flat, norm))
		return 0;
	average_buffers(s);
	if (s->ema)
		gn_ema_update(s->ema, u->step, s->params, s->buffers);
	return 1;
}

/* All batches and the update, on the device of the run. */
static enum gn_status compute_and_update(struct gn_session *s, double lr, int stop, struct gn_interval *sums, uint64_t *mark,
					 struct gn_err *err)
{
	const double ranks = gn_comm_size(s->comm);
	const struct gn_optim_update u = {
		.lr = lr,
		.grad_scale = 1 / (ranks * (double)s->options->accumulate),
		.step = s->state.step + 1 - s->state.skipped,
	};
	double norm = 0;
	int skipped = 0;
	enum gn_status status = s->resident ? gn_device_step_run(s, &u, stop, sums, mark, &norm, &skipped, err)
					    : compute(s, stop, sums, mark, err);

	if (!status && !s->resident)
		skipped = !update(s, &u, &norm);
	if (status || skipped)
		return status ? status : skip(s, lr, sums, err);
	s->skips_in_a_row = 0;
	sums->loss_sum += (double)s->piggyback[GN_PIGGYBACK_LOSS] / ranks;
	sums->norm_sum += norm;
	return GN_OK;
}

enum gn_status gn_step_run(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_interval *sums,
			   int *stopping, struct gn_err *err)
{
	uint64_t mark = gn_clock_ns();
	const uint64_t began = mark;
	const double waited = sums->data, exposed = sums->exposed;
	double lr = gn_lr_at(&s->lr, (double)s->global_batch, gn_session_epoch(s));
	double computed, update_s, predicted;
	enum gn_status status;

	gn_trace_set_step(s->trace, s->state.step + 1);
	memcpy(s->kept_buffers, s->buffers, gn_model_buffer_elements(s->model) * sizeof(float));
	status = compute_and_update(s, lr, *stop != 0, sums, &mark, err);
	if (status) {
		trace_buckets(s, began);
		gn_trace_add(s->trace, GN_SPAN_STEP, GN_TRACE_MAIN, 0, began, gn_clock_ns());
		return status;
	}
	computed = (double)(mark - began) * 1e-9 - (sums->exposed - exposed);
	update_s = since(s, GN_SPAN_OPTIMIZER, &mark);
	sums->optimizer += update_s;
	predicted = gn_step_forecast_step(&s->forecast, s->reducer, began, computed, update_s);
	trace_buckets(s, began);
	gn_trace_add(s->trace, GN_SPAN_STEP, GN_TRACE_MAIN, 0, began, mark);
	sums->predicted += predicted;
	sums->predicted_compute += predicted > 0 ? computed + update_s : 0;
	*stopping = s->piggyback[GN_PIGGYBACK_STOP] > 0;
	sums->lr = lr;
	sums->steps++;
	s->step_s = (double)(mark - began) * 1e-9 - (sums->data - waited);
	sums->step += (double)(mark - began) * 1e-9;
	s->state.step++;
	s->state.sample += s->global_batch;
	return GN_OK;
}
