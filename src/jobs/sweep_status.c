#include "src/jobs/sweep_status.h"

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/jobs/account.h"
#include "src/jobs/submit.h"
#include "src/train/metrics/log_event.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_MAX (64u << 20)

/* A trial at a rung. NaN: no evaluation; no finite loss. */
struct result {
	int reached;
	double loss, top1;
};

static void describe(const json_t *parameters, char *out, size_t size)
{
	char all[1024] = "";
	const char *name;
	json_t *value;
	size_t len = 0;

	json_object_foreach((json_t *)(uintptr_t)parameters, name, value)
		if (len < sizeof all)
			len += (size_t)snprintf(all + len, sizeof all - len, "%s%s=%s", len ? " " : "", name,
						json_string_value(value) ? json_string_value(value) : "?");
	gn_text_visible(all, out, size);
}

static int read_line(const char *text, size_t len, double now, struct gn_sweep_state *s)
{
	json_t *line = json_loadb(text, len, 0, NULL);
	const char *log = json_string_value(json_object_get(line, "log")), *checkpoint = json_string_value(json_object_get(line, "checkpoint"));
	const json_t *trial = json_object_get(line, "trial"), *parameters = json_object_get(line, "parameters");
	struct gn_account a;
	struct gn_err err;

	*s = (struct gn_sweep_state){.loss = NAN, .top1 = NAN, .state = "pending"};
	if (!log || strlen(log) >= sizeof s->log || !json_is_integer(trial) || json_integer_value(trial) < 1 ||
	    json_integer_value(trial) > 1000000 || !json_is_object(parameters)) {
		json_decref(line);
		return 0;
	}
	s->trial = (int)json_integer_value(trial);
	snprintf(s->log, sizeof s->log, "%s", log);
	snprintf(s->checkpoint, sizeof s->checkpoint, "%s", checkpoint ? checkpoint : "");
	describe(parameters, s->parameters, sizeof s->parameters);
	json_decref(line);
	if (gn_account_read(s->log, &a, &err))
		return 1;
	snprintf(s->state, sizeof s->state, "%s", a.state);
	s->step = a.step;
	s->total_steps = a.total_steps;
	s->loss = a.loss;
	s->top1 = a.top1;
	s->silent_s = now - a.last_time;
	return 1;
}

enum gn_status gn_sweep_read(const char *directory, double now, struct gn_sweep_state **out, size_t *count, struct gn_err *err)
{
	char path[4200], *text = NULL;
	struct gn_sweep_state *all;
	size_t lines = 0, n = 0;
	enum gn_status status = gn_path_join(path, sizeof path, directory, "ledger.jsonl", err);

	if (!status)
		status = gn_file_load(path, LEDGER_MAX, &text, NULL, err);
	if (status)
		return status;
	for (const char *at = text; *at; at++)
		lines += *at == '\n';
	all = calloc(lines + 1, sizeof *all);
	for (const char *at = text; all && *at && !status; at += strcspn(at, "\n") + 1) {
		if (n == lines || !read_line(at, strcspn(at, "\n"), now, &all[n++]))
			status = gn_err_set(err, GN_ERR_DATA, "%s: line %zu is no trial: is this the folder of a sweep?", path, n);
		if (!at[strcspn(at, "\n")])
			break;
	}
	if (!all)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu trials", lines);
	else if (!status && !n)
		status = gn_err_set(err, GN_ERR_DATA, "%s has no trial", path);
	free(text);
	if (status) {
		free(all);
		return status;
	}
	*out = all;
	*count = n;
	return GN_OK;
}

static int higher_first(double a, double b)
{
	return isfinite(a) && isfinite(b) ? (a < b) - (a > b) : !isfinite(a) - !isfinite(b);
}

int gn_sweep_compare(const struct gn_sweep_state *a, const struct gn_sweep_state *b)
{
	int order = higher_first(a->top1, b->top1);

	order = order ? order : higher_first(-a->loss, -b->loss);
	return order ? order : a->trial - b->trial;
}

size_t gn_sweep_best(const struct gn_sweep_state *s, size_t count)
{
	size_t best = count;

	for (size_t i = 0; i < count; i++)
		if (!strcmp(s[i].state, "end") && (isfinite(s[i].top1) || isfinite(s[i].loss)) &&
		    (best == count || gn_sweep_compare(&s[i], &s[best]) < 0))
			best = i;
	return best;
}

/* --- successive halving --- */

int gn_halving_rungs(size_t trials, int factor)
{
	int rungs = 0;

	for (size_t left = trials; left >= (size_t)factor && rungs < 5; left /= (size_t)factor)
		rungs++;
	return rungs ? rungs : 1;
}

static double rung_step(double total, int factor, int rung)
{
	double step = floor(total / pow(factor, rung));

	return step < 1 ? 1 : step;
}

static void add_line(const json_t *line, int factor, int rung, double *total, struct result *r)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	double step = gn_event_number(line, "step");

	if (!event)
		return;
	if (!strcmp(event, "start")) {
		*r = (struct result){0, NAN, NAN};
		*total = gn_event_number(line, "total_steps");
	}
	/* an evaluation after the step of the rung belongs to it */
	if (!strcmp(event, "eval") && (!r->reached || step <= rung_step(*total, factor, rung)))
		r->top1 = gn_event_number(line, "top1");
	if (!strcmp(event, "step") && !r->reached && step >= rung_step(*total, factor, rung)) {
		r->reached = 1;
		r->loss = gn_event_number(line, "loss");
	}
}

/* A log that cannot be read has reached nothing: its trial has not begun. */
static struct result read_result(const char *path, int factor, int rung)
{
	struct result r = {0, NAN, NAN};
	FILE *file = fopen(path, "re");
	double total = INFINITY;
	char *text = NULL;
	size_t room = 0;

	while (file && getline(&text, &room, file) > 0) {
		json_t *line = json_loads(text, 0, NULL);

		add_line(line, factor, rung, &total, &r);
		json_decref(line);
	}
	free(text);
	if (file)
		fclose(file);
	return r;
}

static int is_better(const struct result *a, const struct result *b, int by_top1)
{
	double left = by_top1 ? a->top1 : -a->loss, right = by_top1 ? b->top1 : -b->loss;

	if (!isfinite(left) || !isfinite(right))
		return isfinite(left);
	return left > right;
}

static enum gn_status load_ledger(const char *log, char **text, struct gn_err *err)
{
	char path[PATH_MAX];
	const char *slash = strrchr(log, '/');

	snprintf(path, sizeof path, "%.*sledger.jsonl", slash ? (int)(slash - log) + 1 : 0, log);
	return gn_file_load(path, LEDGER_MAX, text, NULL, err);
}

enum gn_status gn_halving_place(const char *log, int factor, int rung, size_t *place, size_t *of, struct gn_err *err)
{
	struct result own = read_result(log, factor, rung), *all = NULL;
	int by_top1 = isfinite(own.top1), listed = 0, failed = 0;
	const char *base = strrchr(log, '/') ? strrchr(log, '/') + 1 : log;
	char *text = NULL;
	size_t count = 0, room = 0, better = 0;
	enum gn_status status = load_ledger(log, &text, err);

	if (status)
		return gn_err_prefix(err, "--halving: %s is no trial of gannet sweep", log);
	for (const char *at = text; *at && !failed; at += strcspn(at, "\n"), at += *at == '\n') {
		json_t *line = json_loadb(at, strcspn(at, "\n"), 0, NULL);
		const char *path = json_string_value(json_object_get(line, "log"));
		struct result r = path ? read_result(path, factor, rung) : (struct result){0, NAN, NAN};

		listed |= path && strrchr(path, '/') && !strcmp(strrchr(path, '/') + 1, base);
		if (r.reached) {
			by_top1 &= isfinite(r.top1) != 0;
			failed = gn_array_grow(&all, &room, count, sizeof *all);
			if (!failed)
				all[count++] = r;
		}
		json_decref(line);
	}
	free(text);
	for (size_t i = 0; i < count; i++)
		better += is_better(&all[i], &own, by_top1);
	free(all);
	if (failed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the trials of a sweep");
	if (!own.reached || !listed)
		return gn_err_set(err, GN_ERR_DATA, "--halving: %s is not in its sweep's ledger, or has not come to that step", log);
	*place = better + 1;
	*of = count;
	return GN_OK;
}

int gn_halving_goes_on(size_t place, size_t of, int factor)
{
	return place <= (of + (size_t)factor - 1) / (size_t)factor;
}

enum kind { VALUES, LOG, UNIFORM, INT };

struct axis {
	enum kind kind;
	const char *values; /* behind the = */
	size_t count;	    /* of values */
	double low, high;
};

static enum gn_status add_name(struct gn_sweep *s, const char *text, const char *what, const char **values, struct gn_err *err)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_");

	if (!len || *text == '-' || text[len] != '=' || !text[len + 1])
		return gn_err_set(err, GN_ERR_USAGE, "%s '%s': not NAME=..., with the name of an option of train without the leading dashes, such as "
				  "weight-decay=...", what, text);
	for (int i = 0; i < s->parameters; i++)
		if (strlen(s->names[i]) == len && !strncmp(s->names[i], text, len))
			return gn_err_set(err, GN_ERR_USAGE, "%s '%s': --%s is given twice", what, text, s->names[i]);
	if (s->parameters == GN_SWEEP_PARAMETERS)
		return gn_err_set(err, GN_ERR_USAGE, "more than %d parameters", GN_SWEEP_PARAMETERS);
	s->names[s->parameters] = strndup(text, len);
	if (!s->names[s->parameters])
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a name");
	s->parameters++;
	*values = text + len + 1;
	return GN_OK;
}

static size_t count_values(const char *text)
{
	size_t n = 1;

	for (; *text; text++)
		n += *text == ',';
	return n;
}

static enum gn_status read_random(const char *text, const char *values, struct axis *a, size_t *count, struct gn_err *err)
{
	static const struct {
		const char *name;
		enum kind kind;
	} kinds[] = {{"log", LOG}, {"uniform", UNIFORM}, {"int", INT}};
	char name[16] = "";
	long draws = 0;
	int end = 0;

	if (sscanf(values, "%15[a-z](%lf,%lf):%ld%n", name, &a->low, &a->high, &draws, &end) != 4 || values[end])
		return gn_err_set(err, GN_ERR_USAGE, "--random '%s': not NAME=log(LOW,HIGH):COUNT; uniform and int are there, too", text);
	a->kind = VALUES;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(name, kinds[i].name))
			a->kind = kinds[i].kind;
	if (a->kind == VALUES || !isfinite(a->low) || !isfinite(a->high) || !(a->low < a->high) || (a->kind == LOG && !(a->low > 0)) ||
	    fabs(a->low) > 1e15 || fabs(a->high) > 1e15)
		return gn_err_set(err, GN_ERR_USAGE, "--random '%s': log, uniform or int of two numbers, the lower one first%s", text,
				  a->kind == LOG ? ", above 0" : "");
	if (draws < 1 || draws > GN_SWEEP_TRIALS || (*count && *count != (size_t)draws))
		return gn_err_set(err, GN_ERR_USAGE, "--random '%s': the count is from 1 to %d, and the same for all", text, GN_SWEEP_TRIALS);
	*count = (size_t)draws;
	return GN_OK;
}

/* The value of an axis at a point of the grid and a draw. */
static char *value_of(const struct axis *a, size_t index, struct gn_rng *rng)
{
	const char *text = a->values;
	char *out = NULL;
	double u;
	int n;

	if (a->kind == VALUES) {
		for (; index; index--)
			text += strcspn(text, ",") + 1;
		return strndup(text, strcspn(text, ","));
	}
	u = gn_rng_uniform(rng);
	if (a->kind == LOG)
		n = asprintf(&out, "%.6g", exp(log(a->low) + u * (log(a->high) - log(a->low))));
	else if (a->kind == UNIFORM)
		n = asprintf(&out, "%.6g", a->low + u * (a->high - a->low));
	else
		n = asprintf(&out, "%.0f", floor(a->low + u * (a->high - a->low + 1)));
	return n < 0 ? NULL : out;
}

static enum gn_status fill(struct gn_sweep *s, const struct axis *axes, size_t points, size_t draws, uint64_t seed, struct gn_err *err)
{
	s->trials = calloc(points * draws, sizeof *s->trials);
	for (size_t t = 0; s->trials && t < points * draws; t++) {
		size_t point = t / draws, left = point;
		struct gn_rng rng;

		gn_rng_init(&rng, seed, GN_RNG_SWEEP, (uint32_t)point, (uint32_t)(t % draws));
		s->count = t + 1;
		/* the last one of the grid changes fastest */
		for (int p = s->parameters - 1; p >= 0; p--) {
			size_t n = axes[p].kind == VALUES ? axes[p].count : 1;

			s->trials[t].values[p] = value_of(&axes[p], left % n, &rng);
			left /= n;
			if (!s->trials[t].values[p])
				return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for trials");
		}
	}
	return s->trials ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for trials");
}

enum gn_status gn_sweep_plan(const char *const *grid, size_t grid_count, const char *const *random, size_t random_count, uint64_t seed,
			     struct gn_sweep *out, struct gn_err *err)
{
	struct axis axes[GN_SWEEP_PARAMETERS] = {{VALUES, NULL, 0, 0, 0}};
	size_t points = 1, draws = 0;
	enum gn_status status = GN_OK;

	*out = (struct gn_sweep){.count = 0};
	if (!grid_count && !random_count)
		status = gn_err_set(err, GN_ERR_USAGE, "a sweep needs --grid or --random");
	for (size_t i = 0; i < grid_count && !status; i++) {
		struct axis *a = &axes[out->parameters < GN_SWEEP_PARAMETERS ? out->parameters : 0];

		status = add_name(out, grid[i], "--grid", &a->values, err);
		if (status)
			break;
		a->count = count_values(a->values);
		points = points > GN_SWEEP_TRIALS ? points : points * a->count;
	}
	for (size_t i = 0; i < random_count && !status; i++) {
		struct axis *a = &axes[out->parameters < GN_SWEEP_PARAMETERS ? out->parameters : 0];

		status = add_name(out, random[i], "--random", &a->values, err);
		if (!status)
			status = read_random(random[i], a->values, a, &draws, err);
	}
	draws = draws ? draws : 1;
	if (!status && (points > GN_SWEEP_TRIALS || points * draws > GN_SWEEP_TRIALS))
		status = gn_err_set(err, GN_ERR_USAGE, "more than %d trials", GN_SWEEP_TRIALS);
	if (!status)
		status = fill(out, axes, points, draws, seed, err);
	if (status)
		gn_sweep_release(out);
	return status;
}

void gn_sweep_release(struct gn_sweep *s)
{
	for (int p = 0; p < s->parameters; p++)
		free(s->names[p]);
	for (size_t t = 0; t < s->count; t++)
		for (int p = 0; p < s->parameters; p++)
			free(s->trials[t].values[p]);
	free(s->trials);
	*s = (struct gn_sweep){.count = 0};
}

void gn_sweep_script(const struct gn_sweep *s, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "case $SLURM_ARRAY_TASK_ID in\n");
	for (size_t t = 0; t < s->count; t++) {
		gn_strbuf_printf(out, "%zu) gannet_step+=(", t + 1);
		for (int p = 0; p < s->parameters; p++) {
			gn_strbuf_printf(out, "%s--%s=", p ? " " : "", s->names[p]);
			gn_submit_quote(s->trials[t].values[p], out);
		}
		gn_strbuf_puts(out, ") ;;\n");
	}
	gn_strbuf_puts(out, "*) echo \"gannet sweep: no trial $SLURM_ARRAY_TASK_ID\" >&2; exit 2 ;;\nesac\n");
}

void gn_sweep_ledger(const struct gn_sweep *s, const char *directory, struct gn_strbuf *out)
{
	char path[4200];

	for (size_t t = 0; t < s->count; t++) {
		struct gn_json j;

		gn_json_begin(&j);
		gn_json_put(&j, "trial %lu parameters {", t + 1);
		for (int p = 0; p < s->parameters; p++)
			gn_json_string(&j, s->names[p], s->trials[t].values[p]);
		gn_json_end(&j);
		snprintf(path, sizeof path, "%s/trial-%zu.jsonl", directory, t + 1);
		gn_json_string(&j, "log", path);
		snprintf(path, sizeof path, "%s/trial-%zu", directory, t + 1);
		gn_json_put(&j, "checkpoint %s }", path);
		gn_strbuf_puts(out, gn_json_text(&j));
		gn_strbuf_puts(out, "\n");
		gn_json_release(&j);
	}
}
