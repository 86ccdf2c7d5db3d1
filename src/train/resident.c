#include "src/train/resident.h"

#include "src/base/clock.h"

#include <math.h>

/* A device that is through sooner than this after the next batch came has waited for it. */
enum { AT_ONCE_NS = 100000 };

enum gn_status gn_resident_begin(struct gn_session *s, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;
	enum gn_status status;

	gn_optimizer_terms(s->optimizer, &terms);
	if (!gn_plan_manner(s->plan)[0] || gn_comm_size(s->comm) > 1 || s->options->accumulate > 1 || s->ema || s->sync ||
	    terms.clip > 0)
		return GN_OK;
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all};
	for (int k = 0; k < gn_optim_slots(terms.rule->kind); k++)
		update.slots[k] = gn_optimizer_slot(s->optimizer, k);
	status = gn_plan_reside(s->plan, &update, err);
	if (!status)
		status = gn_plan_push(s->plan, err);
	s->resident = !status;
	return status;
}

enum gn_status gn_resident_fetch(struct gn_session *s, struct gn_err *err)
{
	return s->resident ? gn_plan_pull(s->plan, err) : GN_OK;
}

enum gn_status gn_resident_end(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_resident_fetch(s, err);

	s->resident = 0;
	s->staged = 0;
	return status;
}

static enum gn_status stage(struct gn_session *s, struct gn_err *err)
{
	struct gn_targets targets;
	struct gn_batch batch;
	enum gn_status status = gn_loader_next(s->loader, &batch, err);

	if (status)
		return status;
	targets = (struct gn_targets){batch.labels, batch.mates, batch.shares};
	status = gn_plan_stage(s->plan, gn_batch_input(&batch), &targets, err);
	s->staged = !status;
	return status;
}

static double seconds(uint64_t from, uint64_t to)
{
	return (double)(to - from) * 1e-9;
}

/* Launches the step, and gets the next one's batch meanwhile. */
static enum gn_status run(struct gn_session *s, const struct gn_optim_update *u, struct gn_plan_result *result,
			  struct gn_interval *sums, uint64_t *mark, struct gn_err *err)
{
	int more = s->state.sample + s->global_batch < s->epoch_samples;
	uint64_t launched, loaded, now;
	enum gn_status status = GN_OK;

	if (!s->staged)
		status = stage(s, err);
	launched = gn_clock_ns();
	sums->data += seconds(*mark, launched);
	gn_trace_add(s->trace, GN_SPAN_DATA, GN_TRACE_MAIN, 0, *mark, launched);
	if (!status)
		status = gn_plan_launch(s->plan, s->state.step, u, err);
	s->staged = 0;
	if (!status && more)
		status = stage(s, err);
	loaded = gn_clock_ns();
	if (!status)
		status = gn_plan_result(s->plan, result, err);
	now = gn_clock_ns();
	/* how long before that it stood still is not known: this is the most that it can have been */
	if (now - loaded < AT_ONCE_NS)
		sums->data += seconds(launched, loaded);
	else
		sums->forward += seconds(launched, now);
	gn_trace_add(s->trace, GN_SPAN_FORWARD, GN_TRACE_MAIN, 0, launched, now);
	*mark = now;
	return status;
}

enum gn_status gn_resident_step(struct gn_session *s, double lr, int stop, struct gn_interval *sums, uint64_t *mark,
				struct gn_err *err)
{
	struct gn_optim_update u = {.lr = lr, .grad_scale = 1, .step = s->state.step + 1 - s->state.skipped};
	struct gn_plan_result result;
	enum gn_status status = gn_session_alone(s, run(s, &u, &result, sums, mark, err));

	if (status)
		return status;
	s->tail[GN_TAIL_LOSS] = (float)result.loss;
	s->tail[GN_TAIL_STOP] = stop ? 1 : 0;
	if (result.skipped)
		return gn_step_skip(s, lr, sums, err);
	s->skips_in_a_row = 0;
	sums->loss_sum += result.loss;
	sums->norm_sum += result.norm;
	return GN_OK;
}
