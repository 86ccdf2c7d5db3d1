#include "src/jobs/sweep_status.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/jobs/account.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_MAX (64u << 20)

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
