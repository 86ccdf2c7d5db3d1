/* The best evaluation of a run: its checkpoint kept as `best`, and the end of a run that no longer improves. */
#include "src/train/loop/session.h"

#include "src/base/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *metric_of(const struct gn_session *s)
{
	const char *name = s->options->keep_best;

	return name && strcmp(name, "none") ? name : "top1";
}

static int is_kept(const struct gn_session *s)
{
	return s->options->keep_best && strcmp(s->options->keep_best, "none") != 0;
}

static int is_watched(const struct gn_session *s)
{
	return is_kept(s) || s->options->patience;
}

static enum gn_status name_file(const struct gn_session *s, char path[PATH_MAX], struct gn_err *err)
{
	return gn_path_join(path, PATH_MAX, s->options->checkpoint, "best.json", err);
}

/* On rank 0. A file that is missing, damaged or of another metric is none. What it says of later steps than this state, from which the
 * run goes on, has not happened. */
static void read_best(const struct gn_session *s, struct gn_session_best *b)
{
	char path[PATH_MAX];
	json_t *root = name_file(s, path, NULL) ? NULL : json_load_file(path, 0, NULL);
	const json_t *value = json_object_get(root, "value"), *worse = json_object_get(root, "worse");
	const char *metric = json_string_value(json_object_get(root, "metric"));

	if (metric && strcmp(metric, metric_of(s)))
		gn_log_warn(s->log, "%s has the best %s, this start asks for %s: the next evaluation counts as the best%s; give --keep-best %s to go "
			    "on with it", path, metric, metric_of(s), is_kept(s) ? ", and `best` will name its checkpoint" : "", metric);
	b->step = (uint64_t)json_integer_value(json_object_get(root, "step"));
	b->value = json_number_value(value);
	b->is_known = metric && !strcmp(metric, metric_of(s)) && json_is_number(value) && b->step && b->step <= s->state.step;
	for (size_t i = 0; b->is_known && i < json_array_size(worse) && b->worse_count < GN_PATIENCE_MAX; i++) {
		uint64_t step = (uint64_t)json_integer_value(json_array_get(worse, i));

		if (step && step <= s->state.step)
			b->worse[b->worse_count++] = step;
	}
	json_decref(root);
}

/* On rank 0. A file that cannot be written is a warning, as an old checkpoint that cannot be removed is one. */
static void write_best(const struct gn_session *s)
{
	const struct gn_session_best *b = &s->best;
	char path[PATH_MAX];
	struct gn_json j;
	struct gn_err err;
	enum gn_status status = name_file(s, path, &err);

	gn_json_begin(&j);
	gn_json_string(&j, "metric", metric_of(s));
	gn_json_double(&j, "value", b->value);
	gn_json_uint(&j, "step", b->step);
	gn_json_array(&j, "worse");
	for (size_t i = 0; i < b->worse_count; i++)
		gn_json_uint(&j, NULL, b->worse[i]);
	gn_json_end(&j);
	gn_json_end(&j);
	if (!status)
		status = gn_json_save(&j, path, &err);
	if (status)
		gn_log_warn(s->log, "the best evaluation is not kept over a resume: %s", err.text);
	gn_json_release(&j);
}

static void check_patience(struct gn_session *s)
{
	struct gn_session_best *b = &s->best;
	uint64_t patience = (uint64_t)s->options->patience;

	b->is_over = patience && b->worse_count >= patience;
	if (!b->is_over)
		return;
	snprintf(b->why, sizeof b->why, "%zu evaluations without a better %s than %.6g at step %" PRIu64, b->worse_count, metric_of(s), b->value,
		 b->step);
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "step %" PRIu64 ": %s: stopping (--patience %" PRIu64 ")", s->state.step, b->why, patience);
}

enum gn_status gn_session_begin_best(struct gn_session *s, struct gn_err *err)
{
	int goes_on = gn_comm_rank(s->comm) == 0 && s->state.step;
	enum gn_status status;

	s->metrics.best_top1 = goes_on ? gn_metrics_log_best_top1(s->options->log) : -1;
	if (!is_watched(s))
		return GN_OK;
	if (goes_on && s->options->checkpoint)
		read_best(s, &s->best);
	if (s->best.is_known && !strcmp(metric_of(s), "top1"))
		s->metrics.best_top1 = fmax(s->metrics.best_top1, s->best.value);
	status = gn_comm_broadcast(s->comm, &s->best, sizeof s->best, 0, err);
	if (!status)
		check_patience(s);
	return status;
}

/* A value that is larger is better. */
static double value_of(const struct gn_session *s, const struct gn_metrics *plain, const struct gn_metrics *average)
{
	const char *metric = metric_of(s);

	if (!strcmp(metric, "loss"))
		return -plain->loss_sum / (double)plain->images;
	return !strcmp(metric, "ema-top1") ? (double)average->top1 / (double)average->images : (double)plain->top1 / (double)plain->images;
}

/* Collective. *saved: the checkpoint of this step is there, and the link names it. */
static enum gn_status keep(struct gn_session *s, int *saved, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = gn_session_save(s, err);

	if (!status)
		status = gn_session_drain(s, err);
	*saved = !status && s->checkpoint.saved_step == s->state.step;
	if (!*saved || gn_comm_rank(s->comm))
		return status;
	if (gn_session_mark_best(s, &why))
		gn_log_warn(s->log, "%s", why.text);
	return GN_OK;
}

enum gn_status gn_session_note_best(struct gn_session *s, const struct gn_metrics *plain, const struct gn_metrics *average, struct gn_err *err)
{
	struct gn_session_best *b = &s->best;
	double sign = !strcmp(metric_of(s), "loss") ? -1 : 1, value = value_of(s, plain, average);
	int better = isfinite(value) && !plain->nonfinite && !gn_session_has_diverged(s) && (!b->is_known || value > sign * b->value), kept = 1;
	enum gn_status status = GN_OK;

	/* an evaluation may be repeated after a resume */
	if (!is_watched(s) || !s->state.step || (b->is_known && b->step == s->state.step))
		return GN_OK;
	if (better && is_kept(s))
		status = keep(s, &kept, err);
	if (status || !kept)
		return status;
	if (better) {
		b->is_known = 1;
		b->value = sign * value;
		b->step = s->state.step;
		b->worse_count = 0;
	} else if (b->worse_count < GN_PATIENCE_MAX && (!b->worse_count || b->worse[b->worse_count - 1] < s->state.step)) {
		b->worse[b->worse_count++] = s->state.step;
	}
	if (s->options->checkpoint && gn_comm_rank(s->comm) == 0)
		write_best(s);
	check_patience(s);
	return GN_OK;
}
