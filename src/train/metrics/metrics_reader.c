#include "src/train/metrics/metrics_reader.h"

#include "src/base/alloc.h"
#include "src/train/metrics/log_event.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* limit of rank numbers */
enum { RANKS_MAX = 1 << 20 };

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static double item(const json_t *object, const char *key, size_t index)
{
	const json_t *value = json_array_get(json_object_get(object, key), index);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Seconds since 1970; 0 if absent. */
static double time_of(const json_t *line)
{
	double time = gn_event_time(line);

	return isnan(time) ? 0 : time;
}

static int add_host(struct gn_curve *c, int rank, const char *host)
{
	if (!host || rank < 0 || rank >= RANKS_MAX)
		return 0;
	if ((size_t)rank >= c->host_count) {
		size_t count = (size_t)rank + 1;
		char **grown = realloc(c->hosts, count * sizeof *grown);

		if (!grown)
			return -1;
		memset(grown + c->host_count, 0, (count - c->host_count) * sizeof *grown);
		c->hosts = grown;
		c->host_count = count;
	}
	if (!c->hosts[rank])
		c->hosts[rank] = strdup(host);
	return c->hosts[rank] ? 0 : -1;
}

static int add_ranks(struct gn_curve *c, struct gn_curve_step *p, const json_t *ranks)
{
	const json_t *each = json_object_get(ranks, "each_compute"), *slowest = json_object_get(ranks, "slowest");
	size_t count = json_array_size(each);

	p->compute_low_ms = item(ranks, "compute", 0);
	p->compute_mean_ms = item(ranks, "compute", 1);
	p->compute_high_ms = item(ranks, "compute", 2);
	p->slowest = json_is_integer(slowest) && json_integer_value(slowest) >= 0 && json_integer_value(slowest) < RANKS_MAX
			     ? (int)json_integer_value(slowest) : -1;
	p->each = c->each_count;
	p->each_count = count;
	for (size_t i = 0; i < count; i++) {
		if (gn_array_grow(&c->each, &c->each_room, c->each_count, sizeof *c->each))
			return -1;
		c->each[c->each_count++] = (float)json_number_value(json_array_get(each, i));
	}
	return add_host(c, p->slowest, json_string_value(json_object_get(ranks, "slowest_host")));
}

/* Only known values. */
static void note_costs(struct gn_curve *c, const char *word)
{
	static const char *const known[] = {"guessed", "measured", "tried"};

	for (size_t i = 0; word && i < sizeof known / sizeof *known; i++)
		if (!strcmp(word, known[i]))
			snprintf(c->costs, sizeof c->costs, "%s", word);
}

static int add_step(struct gn_curve *c, const json_t *line)
{
	static const char *const parts[GN_PARTS] = {"data", "forward", "backward", "communication_exposed", "optimizer"};
	const json_t *times = json_object_get(line, "time_ms"), *efficiency = json_object_get(line, "efficiency");
	const json_t *staleness = json_object_get(line, "staleness");
	double before = c->step_count ? fmax(c->steps[c->step_count - 1].step, c->begin_step) : c->begin_step;
	struct gn_curve_step *p;

	c->skipped += number(line, "skipped");
	if (gn_array_grow(&c->steps, &c->step_room, c->step_count, sizeof *p))
		return -1;
	p = &c->steps[c->step_count++];
	*p = (struct gn_curve_step){
		.time = time_of(line), .step = number(line, "step"), .epoch = number(line, "epoch"),
		.loss = json_is_null(json_object_get(line, "loss")) ? NAN : number(line, "loss"),
		.top1 = gn_event_number(line, "top1"), .lr = number(line, "lr"), .images_per_s = number(line, "images_per_s"),
		.grad_norm = gn_event_number(line, "grad_norm"), .skipped = number(line, "skipped"),
		.sent_mb = gn_event_number(line, "sent_bytes") * 1e-6, .sent_bytes = gn_event_number(line, "sent_bytes"),
		.seconds = fmax(number(line, "step") - before, 0) * number(times, "step") * 1e-3,
		.staleness = gn_event_number(staleness, "mean"), .ahead_most = gn_event_number(staleness, "ahead_most"),
		.workers = gn_event_number(staleness, "workers"),
		.efficiency = gn_event_number(efficiency, "measured"), .predicted = gn_event_number(efficiency, "predicted"),
	};
	for (int i = 0; i < GN_PARTS; i++)
		p->ms[i] = number(times, parts[i]);
	note_costs(c, json_string_value(json_object_get(efficiency, "costs")));
	return add_ranks(c, p, json_object_get(line, "ranks"));
}

static int add_eval(struct gn_curve *c, const json_t *line)
{
	if (gn_array_grow(&c->evals, &c->eval_room, c->eval_count, sizeof *c->evals))
		return -1;
	c->evals[c->eval_count++] = (struct gn_curve_eval){
		time_of(line), number(line, "step"), number(line, "epoch"), number(line, "top1"), number(line, "top5"), number(line, "loss"),
		gn_event_number(json_object_get(line, "ema"), "top1")};
	return 0;
}

static void add_exchange(struct gn_curve *c, const json_t *line)
{
	const json_t *tried = json_object_get(line, "tried");
	size_t count = json_array_size(tried);
	int overlap = json_is_true(json_object_get(line, "overlap"));

	c->way_count = count > GN_CURVE_WAYS ? GN_CURVE_WAYS : (int)count;
	c->chosen = -1;
	for (int i = 0; i < c->way_count; i++) {
		const json_t *way = json_array_get(tried, (size_t)i);
		struct gn_curve_way *w = &c->ways[i];

		*w = (struct gn_curve_way){number(way, "buckets"), number(way, "step_ms"),
					   json_is_true(json_object_get(way, "overlap"))};
		if (w->overlap == overlap && !(w->buckets < number(line, "buckets")) && !(w->buckets > number(line, "buckets")))
			c->chosen = i;
	}
}

/* Of a step's line; each counts since the start. */
static void add_staleness(struct gn_curve *c, const json_t *line)
{
	const json_t *all = json_object_get(line, "staleness"), *histogram = json_object_get(all, "histogram");
	size_t count = json_array_size(histogram);
	struct gn_curve_staleness *s = &c->staleness;

	if (!all)
		return;
	s->count = count > GN_CURVE_STALENESS ? GN_CURVE_STALENESS : (int)count;
	for (int i = 0; i < s->count; i++)
		s->pushes[i] = json_number_value(json_array_get(histogram, (size_t)i));
	s->mean = number(all, "mean");
	s->most = number(all, "most");
	s->ahead_most = number(all, "ahead_most");
}

static void add_lost(struct gn_curve *c, const json_t *line)
{
	struct gn_curve_staleness *s = &c->staleness;

	if (s->lost_count == GN_CURVE_LOST)
		return;
	s->lost[s->lost_count].rank = number(line, "rank");
	s->lost[s->lost_count++].step = number(line, "step");
}

/* Those that are the same as before are no change. */
static void add_mode(struct gn_curve *c, double step, const char *name)
{
	struct gn_curve_mode *m = &c->modes[c->mode_count];

	if (c->mode_count == GN_CURVE_MODES || (c->mode_count && !strncmp(m[-1].name, name, sizeof m->name - 1)))
		return;
	m->step = step;
	snprintf(m->name, sizeof m->name, "%s", name);
	c->mode_count++;
}

static void add_started_mode(struct gn_curve *c, const json_t *line)
{
	const char *method = json_string_value(json_object_get(json_object_get(line, "compress"), "method"));
	const char *local = c->options ? strstr(c->options, "local-steps=") : NULL;

	if (!method)
		method = local && atof(strchr(local, '=') + 1) > 1 ? "local steps" : "none";
	add_mode(c, number(line, "step"), method);
}

/* A resumed run may have other options and ranks. */
static int add_start(struct gn_curve *c, const json_t *line)
{
	const char *options = json_string_value(json_object_get(line, "options"));
	const char *recipe = json_string_value(json_object_get(line, "recipe"));

	snprintf(c->model, sizeof c->model, "%s", json_string_value(json_object_get(line, "model")) ?: "?");
	c->begin_step = number(line, "step");
	c->ranks = number(line, "ranks");
	c->nodes = number(line, "nodes");
	c->global_batch = number(line, "global_batch");
	c->images = number(line, "images");
	c->parameters = number(line, "parameters");
	free(c->options);
	free(c->recipe);
	c->options = options ? strdup(options) : NULL;
	c->recipe = recipe ? strdup(recipe) : NULL;
	add_started_mode(c, line);
	return (options && !c->options) || (recipe && !c->recipe) ? -1 : 0;
}

static void go_back(struct gn_curve *c, double step)
{
	while (c->step_count && c->steps[c->step_count - 1].step > step)
		c->step_count--;
	while (c->eval_count && c->evals[c->eval_count - 1].step > step)
		c->eval_count--;
	while (c->mode_count && c->modes[c->mode_count - 1].step > step)
		c->mode_count--;
	c->skipped = 0;
	for (size_t i = 0; i < c->step_count; i++)
		c->skipped += c->steps[i].skipped;
}

static int end_run(struct gn_curve *c, const char *event, const char *reason)
{
	snprintf(c->ended, sizeof c->ended, "%s", event);
	free(c->reason);
	c->reason = reason ? strdup(reason) : NULL;
	return reason && !c->reason ? -1 : 0;
}

static void add_world(struct gn_curve *c, const json_t *line)
{
	struct gn_curve_world *w = &c->worlds[c->world_count];

	/* processes that have joined are no loss */
	c->losses += !(number(line, "ranks") > number(line, "ranks_before"));
	c->unlogged_s += number(line, "steps_redone") > 0 ? 0 : number(line, "unlogged_seconds");
	if (c->world_count == GN_CURVE_WORLDS)
		return;
	*w = (struct gn_curve_world){number(line, "world"), number(line, "step"), number(line, "ranks"), number(line, "ranks_before"),
				     number(line, "seconds"), number(line, "steps_redone"), ""};
	snprintf(w->after, sizeof w->after, "%s", json_string_value(json_object_get(line, "after")) ?: "");
	c->world_count++;
}

static void add_pipeline(struct gn_curve *c, const json_t *line)
{
	const json_t *stages = json_object_get(line, "stages");
	size_t count = json_array_size(stages);

	c->bubble_formula = number(line, "bubble_formula");
	c->stage_count = count > GN_CURVE_STAGES ? GN_CURVE_STAGES : (int)count;
	for (int i = 0; i < c->stage_count; i++) {
		const json_t *s = json_array_get(stages, (size_t)i);

		c->stages[i] = (struct gn_curve_stage){number(s, "bubble"), number(s, "sent_bytes"), number(s, "parameter_bytes"),
						       number(s, "version_bytes"), number(s, "activation_bytes")};
	}
}

static int add_line(struct gn_curve *c, const json_t *line)
{
	const char *event = json_string_value(json_object_get(line, "event"));

	if (!event)
		return 0;
	if (!strcmp(event, "step")) {
		add_staleness(c, line);
		return add_step(c, line);
	}
	if (!strcmp(event, "worker_lost"))
		add_lost(c, line);
	if (!strcmp(event, "recovered"))
		add_world(c, line);
	if (!strcmp(event, "pipeline"))
		add_pipeline(c, line);
	if (!strcmp(event, "eval"))
		return add_eval(c, line);
	if (!strcmp(event, "exchange"))
		add_exchange(c, line);
	if (!strcmp(event, "compress"))
		add_mode(c, number(line, "step"), json_string_value(json_object_get(line, "method")) ?: "?");
	if (!strcmp(event, "checkpoint")) {
		c->checkpoints++;
		c->checkpoint_s += number(line, json_object_get(line, "blocked_seconds") ? "blocked_seconds" : "seconds");
	}
	if (!strcmp(event, "end") || !strcmp(event, "stop") || !strcmp(event, "failed"))
		return end_run(c, event, json_string_value(json_object_get(line, "reason")));
	if (!strcmp(event, "resume")) {
		c->resumes++;
		go_back(c, number(line, "step"));
	}
	if (!strcmp(event, "start")) {
		c->start_time = time_of(line);
		snprintf(c->label, sizeof c->label, "%.40s, %.0f rank%s, global batch %.0f",
			 json_string_value(json_object_get(line, "model")) ?: "?", number(line, "ranks"),
			 number(line, "ranks") > 1 ? "s" : "", number(line, "global_batch"));
	}
	if (!strcmp(event, "start") || !strcmp(event, "resume")) {
		c->ended[0] = 0;
		return add_start(c, line);
	}
	return 0;
}

static void release(struct gn_curve *c)
{
	free(c->path);
	free(c->steps);
	free(c->evals);
	free(c->each);
	free(c->options);
	free(c->recipe);
	free(c->reason);
	for (size_t r = 0; r < c->host_count; r++)
		free(c->hosts[r]);
	free(c->hosts);
	*c = (struct gn_curve){0};
}

/* The runs of a log while it is read; the last one is current. */
struct runs {
	struct gn_curve *items;
	size_t count, room;
};

/* Starts a new run; replaces a run without steps. */
static struct gn_curve *begin_run(struct runs *r, const char *path)
{
	struct gn_curve *c = r->count ? &r->items[r->count - 1] : NULL;

	if (c && !c->step_count) {
		release(c);
	} else {
		if (gn_array_grow(&r->items, &r->room, r->count, sizeof *c))
			return NULL;
		c = &r->items[r->count++];
		*c = (struct gn_curve){0};
	}
	snprintf(c->label, sizeof c->label, "%.90s", path);
	c->path = strdup(path);
	return c->path ? c : NULL;
}

static int add_text(struct runs *r, const char *text, const char *path)
{
	json_t *line = json_loads(text, 0, NULL);
	struct gn_curve *c = r->count && !gn_event_is(line, "start") ? &r->items[r->count - 1] : begin_run(r, path);
	int failed = !c;

	if (c && line)
		failed = add_line(c, line);
	else if (c)
		c->bad_lines++;
	json_decref(line);
	return failed ? -1 : 0;
}

enum gn_status gn_curves_read(const char *path, struct gn_curve **out, size_t *count, struct gn_err *err)
{
	struct runs runs = {0};
	char *text = NULL;
	size_t room = 0;
	int failed = 0;
	FILE *file = fopen(path, "re");

	if (!file)
		return gn_err_errno(err, errno, "cannot open %s", path);
	while (!failed && getline(&text, &room, file) > 0)
		failed = add_text(&runs, text, path);
	free(text);
	fclose(file);
	if (runs.count && !runs.items[runs.count - 1].step_count)
		release(&runs.items[--runs.count]);
	if (failed || !runs.count) {
		gn_curves_free(runs.items, runs.count);
		return failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path)
			      : gn_err_set(err, GN_ERR_DATA, "%s has no training step: is it a log of gannet train?", path);
	}
	for (size_t i = 0; i < runs.count; i++) {
		runs.items[i].run = i + 1;
		runs.items[i].runs = runs.count;
	}
	*out = runs.items;
	*count = runs.count;
	return GN_OK;
}

void gn_curves_free(struct gn_curve *curves, size_t count)
{
	for (size_t i = 0; i < count; i++)
		release(&curves[i]);
	free(curves);
}
