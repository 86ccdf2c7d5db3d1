#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/confusion.h"
#include "src/train/metrics/report_page.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what eval --per-class wrote: a heat map of the confusion matrix, and the most frequent confusions --- */

enum { DRAWN_MAX = 60, LISTED_MAX = 20, SIDE = 720, LEFT = 120, TOP = 112, SLANT = 56, CELL_MAX = 36, LABEL_MAX = 16, NUMBERED_CELL = 20 };

struct matrix {
	json_t *root;
	size_t classes;
	json_int_t *counts; /* [classes][classes] */
	json_int_t *images, *errors; /* [classes]: of the class; wrong predictions of it and for it */
};

static void release(struct matrix *m)
{
	json_decref(m->root);
	free(m->counts);
	free(m->images);
	free(m->errors);
}

static enum gn_status read_counts(struct matrix *m, const char *path, struct gn_err *err)
{
	const json_t *rows = json_object_get(m->root, "confusion");

	for (size_t i = 0; i < m->classes; i++)
		for (size_t k = 0; k < m->classes; k++) {
			const json_t *count = json_array_get(json_array_get(rows, i), k);

			if (!json_is_integer(count) || json_integer_value(count) < 0 || json_integer_value(count) > INT32_MAX)
				return gn_err_set(err, GN_ERR_DATA, "%s: \"confusion\" has no count of class %zu predicted as %zu", path, i, k);
			m->counts[i * m->classes + k] = json_integer_value(count);
			m->images[i] += json_integer_value(count);
			if (i == k)
				continue;
			m->errors[i] += json_integer_value(count);
			m->errors[k] += json_integer_value(count);
		}
	return GN_OK;
}

static enum gn_status read(const char *path, struct matrix *m, struct gn_err *err)
{
	json_error_t error;
	const json_t *classes;

	m->root = json_load_file(path, 0, &error);
	if (!m->root)
		return gn_err_set(err, GN_ERR_DATA, "%s: %s: give a file of eval --per-class", path, error.text);
	classes = json_object_get(m->root, "classes");
	m->classes = json_array_size(classes);
	if (!m->classes || m->classes > GN_CONFUSION_CLASSES_MAX || json_array_size(json_object_get(m->root, "confusion")) != m->classes)
		return gn_err_set(err, GN_ERR_DATA, "%s has no \"classes\" with as many rows of \"confusion\": give a file of eval --per-class",
				  path);
	for (size_t k = 0; k < m->classes; k++)
		if (!json_is_string(json_object_get(json_array_get(classes, k), "name")))
			return gn_err_set(err, GN_ERR_DATA, "%s: class %zu has no \"name\"", path, k);
	m->counts = calloc(m->classes * m->classes, sizeof *m->counts);
	m->images = calloc(m->classes, sizeof *m->images);
	m->errors = calloc(m->classes, sizeof *m->errors);
	if (!m->counts || !m->images || !m->errors)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	return read_counts(m, path, err);
}

static const char *name_of(const struct matrix *m, size_t k)
{
	return json_string_value(json_object_get(json_array_get(json_object_get(m->root, "classes"), k), "name"));
}

/* At most LABEL_MAX characters; whole UTF-8 characters. */
static void put_short(struct gn_strbuf *out, const char *name)
{
	char text[4 * LABEL_MAX + 8];
	size_t len = 0, characters = 0;

	while (name[len] && characters <= LABEL_MAX && len < 4 * (size_t)LABEL_MAX) {
		characters++;
		for (len++; ((unsigned char)name[len] & 0xc0) == 0x80;)
			len++;
	}
	memcpy(text, name, len);
	memcpy(text + len, name[len] ? "\xe2\x80\xa6" : "", name[len] ? 4 : 1);
	gn_chart_escape(out, text);
}

/* The classes to draw, in order. Returns how many. */
static size_t choose(const struct matrix *m, size_t drawn[DRAWN_MAX])
{
	size_t count = 0;

	for (size_t k = 0; k < m->classes; k++) {
		size_t rank = 0;

		for (size_t i = 0; i < m->classes && rank < DRAWN_MAX; i++)
			rank += m->errors[i] > m->errors[k] || (m->errors[i] == m->errors[k] && i < k);
		if (rank < DRAWN_MAX)
			drawn[count++] = k;
	}
	return count;
}

/* "rose predicted as tulip: 12 of 100 images". */
static void put_title(struct gn_strbuf *out, const struct matrix *m, size_t i, size_t k)
{
	gn_strbuf_puts(out, "<title>");
	gn_chart_escape(out, name_of(m, i));
	gn_strbuf_puts(out, " predicted as ");
	gn_chart_escape(out, name_of(m, k));
	gn_strbuf_printf(out, ": %lld of %lld images</title>", (long long)m->counts[i * m->classes + k], (long long)m->images[i]);
}

static void put_cell(struct gn_strbuf *out, const struct matrix *m, size_t i, size_t k, int x, int y, int cell)
{
	json_int_t count = m->counts[i * m->classes + k];
	double share = m->images[i] ? (double)count / (double)m->images[i] : 0;

	gn_strbuf_printf(out, "<rect x='%d' y='%d' width='%d' height='%d' fill='%s' fill-opacity='%.3f'>", x, y, cell - 1, cell - 1,
			 i == k ? gn_chart_colour(0) : gn_chart_colour(1), sqrt(share));
	put_title(out, m, i, k);
	gn_strbuf_puts(out, "</rect>\n");
	if (count && cell >= NUMBERED_CELL)
		gn_strbuf_printf(out, "<text x='%d' y='%d' class='below' style='font-size:9px;fill:%s' pointer-events='none'>%lld</text>\n", x + cell / 2,
				 y + cell / 2 + 3, share > 0.5 ? "#fff" : "#222", (long long)count);
}

static void put_map(struct gn_strbuf *out, const struct matrix *m)
{
	size_t drawn[DRAWN_MAX], count = choose(m, drawn);
	int cell = (SIDE - LEFT) / (int)count < CELL_MAX ? (SIDE - LEFT) / (int)count : CELL_MAX, size = cell < 11 ? cell : 11;
	const int width = LEFT + cell * (int)count + SLANT;

	gn_strbuf_printf(out, "<p class='note'>Rows: class of the image; columns: prediction.</p>\n"
			 "<svg viewBox='0 0 %d %d' role='img' style='width:%dpx;max-width:100%%'>\n", width, TOP + cell * (int)count + 4, width);
	for (size_t i = 0; i < count; i++) {
		int at = cell * (int)i;

		gn_strbuf_printf(out, "<text x='%d' y='%d' class='left' style='font-size:%dpx'>", LEFT - 4, TOP + at + cell / 2 + 3, size);
		put_short(out, name_of(m, drawn[i]));
		gn_strbuf_printf(out, "</text>\n<text transform='translate(%d %d) rotate(-60)' style='font-size:%dpx'>", LEFT + at + cell / 2 + 3,
				 TOP - 6, size);
		put_short(out, name_of(m, drawn[i]));
		gn_strbuf_puts(out, "</text>\n");
		for (size_t k = 0; k < count; k++)
			put_cell(out, m, drawn[i], drawn[k], LEFT + cell * (int)k, TOP + at, cell);
	}
	gn_strbuf_puts(out, "</svg>\n");
	if (count < m->classes)
		gn_strbuf_printf(out, "<p class='note'>The %zu classes with the most errors, of %zu.</p>\n", count, m->classes);
}

struct listed {
	size_t cells[LISTED_MAX]; /* indices into counts, the largest first */
	size_t count;
};

static void list_cell(const struct matrix *m, size_t cell, struct listed *l)
{
	size_t at = l->count < LISTED_MAX ? l->count++ : LISTED_MAX;

	for (; at > 0 && m->counts[cell] > m->counts[l->cells[at - 1]]; at--)
		if (at < LISTED_MAX)
			l->cells[at] = l->cells[at - 1];
	if (at < LISTED_MAX)
		l->cells[at] = cell;
}

static void put_list(struct gn_strbuf *out, const struct matrix *m)
{
	struct listed l = {.count = 0};

	for (size_t cell = 0; cell < m->classes * m->classes; cell++)
		if (m->counts[cell] && cell / m->classes != cell % m->classes)
			list_cell(m, cell, &l);
	if (!l.count)
		return;
	gn_strbuf_puts(out, "<table><tr><th>class</th><th>predicted as</th><th class='n'>images</th><th class='n'>of</th></tr>\n");
	for (size_t n = 0; n < l.count; n++) {
		size_t i = l.cells[n] / m->classes, k = l.cells[n] % m->classes;

		gn_strbuf_puts(out, "<tr><td>");
		gn_chart_escape(out, name_of(m, i));
		gn_strbuf_puts(out, "</td><td>");
		gn_chart_escape(out, name_of(m, k));
		gn_strbuf_printf(out, "</td><td class='n'>%lld</td><td class='n'>%lld</td></tr>\n", (long long)m->counts[l.cells[n]],
				 (long long)m->images[i]);
	}
	gn_strbuf_puts(out, "</table>\n");
}

/* Appends a heading, an SVG and a table, all text escaped. A row is a class, a column what was predicted; the opacity of a cell is the square
 * root of its share of the row's images. Of more than 60 classes the 60 with the most errors are drawn. GN_ERR_DATA names the file and
 * what is wrong. */
static enum gn_status print_confusion(const char *path, struct gn_strbuf *out, struct gn_err *err)
{
	struct matrix m = {0};
	enum gn_status status = read(path, &m, err);

	if (!status) {
		gn_strbuf_puts(out, "<h2>Confusion: ");
		gn_chart_escape(out, path);
		gn_strbuf_printf(out, "</h2>\n<p>macro F1 %.4f, calibration error %.4f</p>\n<div class='pair'>\n<div>",
				 json_number_value(json_object_get(m.root, "macro_f1")),
				 json_number_value(json_object_get(m.root, "calibration_error")));
		put_map(out, &m);
		gn_strbuf_puts(out, "</div>\n<div>");
		put_list(out, &m);
		gn_strbuf_puts(out, "</div></div>\n");
	}
	release(&m);
	return status;
}

struct report_options {
	const char *out, *tensorboard, *csv;
	struct gn_text_list per_class;
};

static const struct gn_option options[] = {
	GN_OPT_TEXT("out", offsetof(struct report_options, out), "DIR", "folder for the page and the picture; created if missing",
		    .letter = 'o'),
	GN_OPT_LIST("per-class", offsetof(struct report_options, per_class), "FILE.json", "with --out: draw the confusion matrix that "
		    "gannet eval --per-class wrote; may be repeated"),
	GN_OPT_TEXT("tensorboard", offsetof(struct report_options, tensorboard), "DIR", "write event files of TensorBoard into DIR/RUN; "
		    "created if missing"),
	GN_OPT_TEXT("csv", offsetof(struct report_options, csv), "FILE", "write all points as a table with a header line; -: standard "
		    "output, instead of the JSON objects"),
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
		status = print_confusion(per_class->items[i], &more, err);
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
