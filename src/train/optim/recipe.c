#include "src/train/optim/recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char gn_recipe_names[] = "goyal|nvidia-50|mlperf-lars";

struct entry {
	const char *option, *value;
};

static const struct entry goyal[] = {
	{"epochs", "90"},	    {"optimizer", "sgd"},     {"lr", "0.1"},	   {"lr-batch", "256"},
	{"lr-start", "-1"},	    {"warmup-epochs", "5"},   {"schedule", "step"}, {"milestones", "30,60,80"},
	{"lr-factor", "0.1"},	    {"momentum", "0.9"},      {"nesterov", "1"},   {"weight-decay", "1e-4"},
	{"decay-all", "0"},	    {"label-smoothing", "0"}, {"zero-gamma", "1"}, {NULL, NULL},
};

static const struct entry nvidia[] = {
	{"epochs", "50"},     {"optimizer", "sgd"},	       {"lr", "0.256"},	   {"lr-batch", "256"},	      {"lr-start", "0"},
	{"lr-final", "0"},    {"warmup-epochs", "8"},	       {"schedule", "cosine"}, {"momentum", "0.875"}, {"nesterov", "0"},
	{"decay-all", "0"},   {"weight-decay", "3.0517578125e-05"}, {"label-smoothing", "0.1"}, {NULL, NULL},
};

static const struct entry mlperf[] = {
	{"optimizer", "lars"}, {"lr-batch", "0"},	   {"lr-start", "0"}, {"schedule", "polynomial"},
	{"lr-power", "2"},     {"lr-final", "0.0001"},	   {"trust", "0.001"}, {"eps", "0"},
	{"nesterov", "0"},     {"label-smoothing", "0.1"}, {"decay-all", "0"}, {NULL, NULL},
};

/* epochs: until the rate has reached its end, which is the published number of decay steps, with the warm-up before it where
 * the run would otherwise have ended before it converged. */
static const struct mlperf_row {
	int64_t batch;
	double lr, warmup, decay, momentum;
	int epochs;
} mlperf_rows[] = {
	{1632, 7.4, 2, 5e-5, 0.9, 37},		    {3264, 10.5, 2, 5e-5, 0.9, 37},
	{4096, 10, 5, 2e-4, 0.9, 42},		    {8192, 17, 5, 2e-4, 0.9, 44},
	{13056, 12.8, 9, 2.5e-5, 0.9, 48},	    {32768, 21.2, 16, 2.5e-5, 0.94, 58},
	{49152, 19.405, 24, 1e-4, 0.951807, 71},    {58880, 23.246, 29, 1e-4, 0.951807, 82},
	{65536, 24.699, 31, 1e-4, 0.951807, 89},    {67840, 24.699, 31, 1e-4, 0.951807, 91},
};

static void choose(struct gn_recipe *r, const char *option, const char *value)
{
	struct gn_recipe_choice *c = &r->choices[r->count++];

	c->option = option;
	snprintf(c->value, sizeof c->value, "%s", value);
}

static void choose_all(struct gn_recipe *r, const struct entry *entries)
{
	for (; entries->option; entries++)
		choose(r, entries->option, entries->value);
}

static void choose_number(struct gn_recipe *r, const char *option, double value)
{
	char text[24];

	snprintf(text, sizeof text, "%.10g", value);
	choose(r, option, text);
}

static void choose_row(struct gn_recipe *r, int64_t global_batch)
{
	const struct mlperf_row *best = mlperf_rows;

	for (size_t i = 1; i < sizeof mlperf_rows / sizeof *mlperf_rows; i++)
		if (fabs(log((double)mlperf_rows[i].batch / (double)global_batch)) <
		    fabs(log((double)best->batch / (double)global_batch)))
			best = &mlperf_rows[i];
	choose_number(r, "epochs", best->epochs);
	choose_number(r, "lr", best->lr);
	choose_number(r, "warmup-epochs", best->warmup);
	choose_number(r, "weight-decay", best->decay);
	choose_number(r, "momentum", best->momentum);
	r->batch = best->batch;
}

enum gn_status gn_recipe_find(const char *name, int64_t global_batch, struct gn_recipe *out, struct gn_err *err)
{
	struct gn_recipe r = {.count = 0};

	if (!strcmp(name, "goyal")) {
		choose_all(&r, goyal);
	} else if (!strcmp(name, "nvidia-50")) {
		choose_all(&r, nvidia);
	} else if (!strcmp(name, "mlperf-lars")) {
		choose_row(&r, global_batch);
		choose_all(&r, mlperf);
	} else {
		return gn_err_set(err, GN_ERR_USAGE, "no recipe is called '%s'; there are %s", name, gn_recipe_names);
	}
	for (size_t i = 0; i < r.count; i++)
		if (!strcmp(r.choices[i].option, "epochs"))
			r.epochs = strtod(r.choices[i].value, NULL);
	*out = r;
	return GN_OK;
}
