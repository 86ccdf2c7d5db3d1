/* The learning-rate schedule of a run: its length in epochs, and the rate of each step. */
#include "src/train/loop/session.h"

#include "src/base/text.h"
#include "src/train/loop/carried.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of an asynchronous pipeline, between two pauses: so many micro-batches at most, and steps while a checkpoint is being written. */
enum { MICRO_BATCHES_MAX = 1 << 24, STEPS_WHILE_WRITING = 16 };

/* A run that is a trial of a sweep stops at a rung where others are better: successive halving. */

enum gn_status gn_session_begin_halving(struct gn_session *s, uint64_t total_steps, struct gn_err *err)
{
	const char *text = s->options->halving;
	struct gn_session_halving *h = &s->halving;
	int end = 0;

	s->status.now.total_steps = total_steps;
	if (!text)
		return GN_OK;
	if (sscanf(text, "%d:%d%n", &h->factor, &h->rungs, &end) != 2 || text[end] || h->factor < 2 || h->factor > 100 || h->rungs < 1 || h->rungs > 5)
		return gn_err_set(err, GN_ERR_USAGE, "--halving %s: not FACTOR:RUNGS, with a factor of 2 to 100 and 1 to 5 rungs", text);
	if (!s->options->log || !strcmp(s->options->log, "-"))
		return gn_err_set(err, GN_ERR_USAGE, "--halving needs --log FILE, beside the ledger of gannet sweep");
	return GN_OK;
}

int gn_session_rung(const struct gn_session *s)
{
	uint64_t step = s->status.now.total_steps;

	for (int k = 1; s->halving.factor && k <= s->halving.rungs; k++) {
		step /= (uint64_t)s->halving.factor;
		if (s->state.step == (step ? step : 1))
			return k;
	}
	return 0;
}

/* The steps after which the next rung is due; UINT64_MAX: none. */
static uint64_t next_rung(const struct gn_session *s)
{
	uint64_t step = s->status.now.total_steps, next = UINT64_MAX;

	for (int k = 1; s->halving.factor && k <= s->halving.rungs; k++) {
		step /= (uint64_t)s->halving.factor;
		if ((step ? step : 1) > s->state.step)
			next = step ? step : 1;
	}
	return next;
}

enum gn_status gn_session_halve(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_halving *h = &s->halving;
	int32_t stop = 0;
	struct gn_err why;
	enum gn_status status;

	if (gn_comm_rank(s->comm) == 0) {
		int behind = 0;

		/* a ledger that cannot be read is no reason to lose the run */
		if (s->options->is_behind(s->options->log, h->factor, gn_session_rung(s), &behind, h->why, &why))
			gn_log_warn(s->log, "%s: the run goes on", why.text);
		else
			gn_log_info(s->log, "step %" PRIu64 ": %s", s->state.step, h->why);
		stop = behind;
	}
	status = gn_comm_broadcast(s->comm, &stop, sizeof stop, 0, err);
	h->behind = stop;
	return status;
}

/* How a recipe's schedule is scaled to a run that is shorter than the recipe's. */
static void log_shorter_schedule(const struct gn_session *s)
{
	const struct gn_train_options *o = s->options;
	const struct gn_lr *lr = &s->schedule.lr;
	struct gn_strbuf text = {0};

	if (gn_comm_rank(s->comm) || (lr->epochs >= o->warmup_of && lr->epochs >= o->milestones_of) || lr->epochs <= 0)
		return;
	if (lr->epochs < o->warmup_of)
		gn_strbuf_printf(&text, ", warm-up over %.4g epochs for %g", lr->warmup_epochs, o->warmup_epochs);
	for (size_t i = 0; lr->shape == GN_LR_STEP && i < lr->milestone_count && lr->epochs < o->milestones_of; i++)
		gn_strbuf_printf(&text, "%s%.4g", i ? "," : ", milestones ", lr->milestones[i]);
	gn_log_info(s->log, "recipe %s: its schedule is scaled from %g to %.4g epochs%s", o->recipe,
		    o->warmup_of > o->milestones_of ? o->warmup_of : o->milestones_of, lr->epochs, gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* Whether steps of the run so far had another global batch than this world's. */
static int has_changed(const struct gn_session *s)
{
	return s->state.step && s->state.epoch * s->schedule.epoch_samples + s->state.sample != s->state.step * s->schedule.global_batch;
}

/* In epochs. With --steps the share of the run that has passed is that of its steps. Where the batch has changed, the length is therefore
 * that of a run of as many steps with the mean batch so far: no change moves the place in the schedule, and the last step is at its end. */
static double length(const struct gn_session *s)
{
	const double steps = (double)s->options->steps;

	if (!s->options->steps)
		return (double)s->options->epochs;
	return has_changed(s) ? gn_session_epoch(s) * (steps / (double)s->state.step)
			      : steps / (double)(s->schedule.epoch_samples / s->schedule.global_batch);
}

static struct gn_lr fitted(const struct gn_session *s)
{
	struct gn_lr lr = s->schedule.published;

	lr.epochs = length(s);
	gn_lr_shrink(&lr, s->options->warmup_of, s->options->milestones_of);
	return lr;
}

static enum gn_status check_warmup(const struct gn_session *s, struct gn_err *err)
{
	struct gn_lr lr = s->schedule.published;

	lr.epochs = length(s);
	return gn_lr_fit(&lr, s->options->warmup_of, s->options->milestones_of, err);
}

enum gn_status gn_session_make_schedule(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_lr *lr = &s->schedule.published;
	uint64_t steps = gn_dataset_count(s->data.train) / s->schedule.global_batch;
	int goes_on = o->carried || strcmp(o->resume, "none");
	enum gn_status status = gn_lr_shape_parse(o->schedule, &lr->shape, err);

	s->schedule.epoch_samples = steps * s->schedule.global_batch;
	if (!status && !steps)
		return gn_err_set(err, GN_ERR_DATA, "%s has %llu sample%s, fewer than a step takes: %d batch%s of %lld image%s on %d rank%s",
				  o->data, (unsigned long long)gn_dataset_count(s->data.train), gn_text_plural(gn_dataset_count(s->data.train)),
				  s->schedule.batches, s->schedule.batches == 1 ? "" : "es", (long long)o->batch,
				  gn_text_plural((uint64_t)o->batch), s->workers, gn_text_plural((uint64_t)s->workers));
	s->checkpoint.info.global_batch = (int64_t)s->schedule.global_batch;
	s->checkpoint.info.world_size = s->workers;
	s->checkpoint.info.ranks = s->pipeline ? gn_comm_size(s->comm) : s->workers;
	lr->lr = o->lr;
	lr->start = o->lr_start;
	lr->reference_batch = o->lr_batch;
	lr->warmup_epochs = o->warmup_epochs;
	lr->final_lr = o->final_lr;
	lr->power = o->lr_power;
	lr->factor = o->lr_factor;
	if (!status && o->milestones)
		status = gn_lr_milestones_parse(o->milestones, lr, err);
	/* the length in epochs of a run that goes on depends on where that is */
	return status || (o->steps && goes_on) ? status : check_warmup(s, err);
}

enum gn_status gn_session_fit_schedule(struct gn_session *s, struct gn_err *err)
{
	/* a run that goes on with other ranks was checked with those that it began with */
	enum gn_status status = has_changed(s) ? GN_OK : check_warmup(s, err);

	if (status)
		return status;
	s->schedule.lr = fitted(s);
	log_shorter_schedule(s);
	return GN_OK;
}

double gn_session_rate(const struct gn_session *s)
{
	struct gn_lr lr = fitted(s);

	return gn_lr_at(&lr, (double)s->schedule.global_batch, gn_session_epoch(s));
}

/* Steps from now to the next multiple. */
static uint64_t steps_to(const struct gn_session *s, int64_t every)
{
	return every ? (uint64_t)every - s->state.step % (uint64_t)every : UINT64_MAX;
}

uint64_t gn_session_next_pause(const struct gn_session *s)
{
	const struct gn_train_options *o = s->options;
	const uint64_t most = MICRO_BATCHES_MAX / (uint64_t)s->schedule.own_batches;
	const uint64_t due[] = {
		(gn_dataset_count(s->data.train) - s->state.sample) / s->schedule.global_batch,
		o->steps ? (uint64_t)o->steps - s->state.step : UINT64_MAX,
		s->data.val ? steps_to(s, o->eval_steps) : UINT64_MAX,
		steps_to(s, o->checkpoint_every),
		next_rung(s) - s->state.step,
		/* all ranks meet between its stages */
		gn_session_is_saving(s) ? STEPS_WHILE_WRITING : UINT64_MAX,
	};
	uint64_t steps = most ? most : 1;

	for (size_t i = 0; i < sizeof due / sizeof *due; i++)
		if (due[i] < steps)
			steps = due[i] ? due[i] : 1;
	return s->state.step + steps - 1;
}
