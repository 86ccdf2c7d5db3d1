#include "src/jobs/sweep.h"

#include "src/base/json.h"
#include "src/base/philox.h"
#include "src/jobs/submit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
