#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/train/metrics/curve_export.h"
#include "src/train/metrics/report_confusion.h"
#include "src/train/metrics/report_page.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report_options {
	const char *out, *tensorboard, *csv;
	struct gn_text_list per_class;
};

static const struct gn_option options[] = {
	{.name = "out", .letter = 'o', .kind = GN_OPTION_TEXT, .offset = offsetof(struct report_options, out),
	 .value_name = "DIR", .help = "folder for the page and the picture; created if missing"},
	{.name = "per-class", .kind = GN_OPTION_LIST, .offset = offsetof(struct report_options, per_class),
	 .value_name = "FILE.json", .help = "with --out: draw the confusion matrix that gannet eval --per-class wrote; may be repeated"},
	{.name = "tensorboard", .kind = GN_OPTION_TEXT, .offset = offsetof(struct report_options, tensorboard),
	 .value_name = "DIR", .help = "write event files of TensorBoard into DIR/RUN; created if missing"},
	{.name = "csv", .kind = GN_OPTION_TEXT, .offset = offsetof(struct report_options, csv),
	 .value_name = "FILE", .help = "write all points as a table with a header line; -: standard output, instead of the JSON objects"},
};

static const struct gn_command command = {
	.name = "report",
	.summary = "draw the training curves of one or more runs, or convert them",
	.positional = "LOG...",
	.description = "Reads logs of gannet train. --out writes DIR/report.html, one self-contained page: curves of all runs, the "
		       "breakdown of each run's step time, its efficiency and slowest ranks, confusion matrices, and a table of all options in which "
		       "differing ones are marked. DIR/curve.svg is a picture of loss, accuracy and the first run's step times. "
		       "--csv and --tensorboard convert the logs for "
		       "other tools. One of the three is needed. Prints one JSON object per run: last step, best and last top-1, "
		       "mean images/s.\n\n"
		       "A start that does not resume a checkpoint begins a new run: a log with several of them is drawn as several "
		       "runs. A start without a finished step is omitted.",
	.examples = "  gannet report run1.jsonl run2.jsonl --out report\n"
		    "  gannet report run1.jsonl --per-class classes.json --out report\n"
		    "  gannet report run1.jsonl --csv run1.csv\n"
		    "  gannet report run1.jsonl --tensorboard runs   # for its --logdir\n",
	GN_OPTIONS(options),
	.positional_min = 1,
	.positional_max = 64,
};

/* Images by the time of their steps: a mean of the intervals' rates would count the short ones, which are the fast ones, as much. */
static double mean_rate(const struct gn_curve *c)
{
	double images = 0, seconds = 0, rates = 0;

	for (size_t i = 0; i < c->step_count; i++) {
		images += c->steps[i].images_per_s * c->steps[i].seconds;
		seconds += c->steps[i].seconds;
		rates += c->steps[i].images_per_s / (double)c->step_count;
	}
	return seconds > 0 ? images / seconds : rates;
}

static void print_summary(const struct gn_curve *c)
{
	double best = 0;
	struct gn_json j;

	for (size_t i = 0; i < c->eval_count; i++)
		best = c->evals[i].top1 > best ? c->evals[i].top1 : best;
	gn_json_begin(&j);
	gn_json_put(&j, "log %s run %lu last_step %g last_loss %g", c->path, c->run, c->steps[c->step_count - 1].step,
		    c->steps[c->step_count - 1].loss);
	if (c->eval_count)
		gn_json_put(&j, "last_top1 %g best_top1 %g", c->evals[c->eval_count - 1].top1, best);
	gn_json_put(&j, "images_per_s %.1f resumes %lu bad_lines %lu", mean_rate(c), c->resumes, c->bad_lines);
	gn_cmd_print_json(&j);
}

/* path "-": standard output */
static enum gn_status write_text(const char *path, const struct gn_strbuf *text, struct gn_err *err)
{
	if (!strcmp(path, "-") && !gn_strbuf_failed(text))
		return gn_write_full(1, gn_strbuf_text(text), text->len, "standard output", err);
	return gn_file_replace_text(path, text, GN_REPLACE_SYNCED, err);
}

static enum gn_status write_file(const char *directory, const char *name, const struct gn_strbuf *text, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, name, err);

	return status ? status : write_text(path, text, err);
}

/* The default options of gannet train, as logs have them. */
static enum gn_status describe_defaults(struct gn_strbuf *out, struct gn_err *err)
{
	static char *words[] = {"train", "--dry-run", NULL}; /* with which no option is required */
	struct gn_text_list positional = {0};
	void *target = calloc(1, gn_cmd_train.options_size);
	int help;
	enum gn_status status = target ? gn_options_parse(gn_cmd_train.command, 2, words, target, &positional, &help, err)
				       : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for options");

	if (!status) {
		status = gn_options_store(gn_cmd_train.command, "--no-dry-run", target, err);
		gn_options_describe(gn_cmd_train.command, target, NULL, out);
		gn_options_release(gn_cmd_train.command, target);
	}
	free(target);
	return status;
}

static enum gn_status write_all(const char *directory, const struct gn_curve *curves, size_t count, const struct gn_text_list *per_class,
				struct gn_err *err)
{
	struct gn_strbuf picture = {0}, page = {0}, more = {0}, defaults = {0};
	enum gn_status status = describe_defaults(&defaults, err);

	for (size_t i = 0; i < per_class->count && !status; i++)
		status = gn_report_confusion(per_class->items[i], &more, err);
	gn_curve_svg(curves, count, &picture);
	gn_report_page(curves, count, gn_strbuf_text(&more), gn_strbuf_text(&defaults), &page);
	page.failed |= more.failed | defaults.failed;
	if (!status)
		status = gn_make_dirs(directory, err);
	if (!status)
		status = write_file(directory, "curve.svg", &picture, err);
	if (!status)
		status = write_file(directory, "report.html", &page, err);
	gn_strbuf_release(&picture);
	gn_strbuf_release(&page);
	gn_strbuf_release(&more);
	gn_strbuf_release(&defaults);
	return status;
}

/* Appends the runs of one log to *curves. */
static enum gn_status read_log(const char *path, struct gn_curve **curves, size_t *count, struct gn_err *err)
{
	struct gn_curve *more, *grown;
	size_t added;
	enum gn_status status = gn_curves_read(path, &more, &added, err);

	if (status)
		return status;
	grown = realloc(*curves, (*count + added) * sizeof *grown);
	if (!grown) {
		gn_curves_free(more, added);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the runs of %s", path);
	}
	memcpy(grown + *count, more, added * sizeof *more);
	free(more);
	*curves = grown;
	*count += added;
	return GN_OK;
}

static int run(const void *target, const struct gn_text_list *logs)
{
	const struct report_options *o = target;
	struct gn_curve *curves = NULL;
	struct gn_strbuf csv = {0};
	size_t count = 0;
	struct gn_err err;
	enum gn_status status = GN_OK;

	if (!o->out && !o->csv && !o->tensorboard)
		status = gn_err_set(&err, GN_ERR_USAGE, "what to write? --out DIR, --csv FILE or --tensorboard DIR");
	if (!status && o->per_class.count && !o->out)
		status = gn_err_set(&err, GN_ERR_USAGE, "--per-class is a part of the page: give --out DIR");
	if (!status && o->csv && strcmp(o->csv, "-"))
		status = gn_file_check_own(o->csv, GN_CURVES_CSV_BEGINNING, "CSV file of gannet report", &err);
	for (size_t i = 0; !status && i < logs->count; i++) {
		status = read_log(logs->items[i], &curves, &count, &err);
		/* a run that ended before its first step hides no others */
		if (status == GN_ERR_DATA && (count || i + 1 < logs->count) && !gn_file_check_own(logs->items[i], "{", "log", NULL)) {
			fprintf(stderr, "gannet report: left out: %s\n", err.text);
			status = GN_OK;
		}
	}
	if (!status && !count)
		status = gn_err_set(&err, GN_ERR_DATA, "no log has a training step");
	if (!status && o->out)
		status = write_all(o->out, curves, count, &o->per_class, &err);
	if (!status && o->tensorboard)
		status = gn_curves_write_events(o->tensorboard, curves, count, &err);
	if (!status && o->csv) {
		gn_curves_csv(curves, count, &csv);
		status = write_text(o->csv, &csv, &err);
	}
	for (size_t i = 0; !status && i < count && !(o->csv && !strcmp(o->csv, "-")); i++)
		print_summary(&curves[i]);
	gn_strbuf_release(&csv);
	gn_curves_free(curves, count);
	return status ? gn_cmd_fail("report", &err) : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_report = {.command = &command, .run = run, .options_size = sizeof(struct report_options)};
