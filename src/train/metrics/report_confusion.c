#include "src/train/metrics/report_confusion.h"

#include "src/train/metrics/chart.h"
#include "src/train/metrics/confusion.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN_MAX = 60, LISTED_MAX = 20, SIDE = 720, LEFT = 120, TOP = 112, SLANT = 56, CELL_MAX = 36, NAME_MAX = 16, NUMBERED_CELL = 20 };

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

/* At most NAME_MAX characters; whole UTF-8 characters. */
static void put_short(struct gn_strbuf *out, const char *name)
{
	char text[4 * NAME_MAX + 8];
	size_t len = 0, characters = 0;

	while (name[len] && characters <= NAME_MAX && len < 4 * (size_t)NAME_MAX) {
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

enum gn_status gn_report_confusion(const char *path, struct gn_strbuf *out, struct gn_err *err)
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
