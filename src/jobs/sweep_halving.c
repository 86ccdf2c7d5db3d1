#include "src/jobs/sweep_halving.h"

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/train/metrics/log_event.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_MAX (64u << 20)

/* A trial at a rung. NaN: no evaluation; no finite loss. */
struct result {
	int reached;
	double loss, top1;
};

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
