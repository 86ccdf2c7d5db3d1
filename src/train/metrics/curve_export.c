#include "src/train/metrics/report_page.h"

#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A field of a step or an evaluation: its column in CSV, its tag in TensorBoard. */
struct column {
	const char *name, *tag;
	size_t offset;
};

#define STEP(field) offsetof(struct gn_curve_step, field)
#define PART(part) (offsetof(struct gn_curve_step, ms) + (part) * sizeof(double))

static const struct column step_columns[] = {
	{"loss", "train/loss", STEP(loss)},
	{"top1", "train/top1", STEP(top1)},
	{"lr", "train/lr", STEP(lr)},
	{"grad_norm", "train/grad_norm", STEP(grad_norm)},
	{"skipped", "train/skipped", STEP(skipped)},
	{"images_per_s", "train/images_per_s", STEP(images_per_s)},
	{"data_ms", "time_ms/data", PART(GN_PART_DATA)},
	{"forward_ms", "time_ms/forward", PART(GN_PART_FORWARD)},
	{"backward_ms", "time_ms/backward", PART(GN_PART_BACKWARD)},
	{"communication_exposed_ms", "time_ms/communication_exposed", PART(GN_PART_EXPOSED)},
	{"optimizer_ms", "time_ms/optimizer", PART(GN_PART_OPTIMIZER)},
	{"efficiency", "train/efficiency", STEP(efficiency)},
	{"sent_bytes", "train/sent_bytes", STEP(sent_bytes)},
	{"staleness", "train/staleness", STEP(staleness)},
	{"ahead_most", "train/ahead_most", STEP(ahead_most)},
	{"workers", "train/workers", STEP(workers)},
};
static const struct column eval_columns[] = {
	{"eval_top1", "eval/top1", offsetof(struct gn_curve_eval, top1)},
	{"eval_top5", "eval/top5", offsetof(struct gn_curve_eval, top5)},
	{"eval_loss", "eval/loss", offsetof(struct gn_curve_eval, loss)},
	{"eval_ema_top1", "eval/ema_top1", offsetof(struct gn_curve_eval, average_top1)},
};
enum { STEP_COLUMNS = sizeof step_columns / sizeof *step_columns, EVAL_COLUMNS = sizeof eval_columns / sizeof *eval_columns };

static double field(const void *point, size_t offset)
{
	return *(const double *)(const void *)((const char *)point + offset);
}

/* --- CSV --- */

static void put_quoted(const char *text, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "\"");
	for (; *text; text++)
		gn_strbuf_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
	gn_strbuf_puts(out, "\"");
}

/* point NULL: empty cells */
static void put_cells(const void *point, const struct column *columns, size_t count, struct gn_strbuf *out)
{
	for (size_t i = 0; i < count; i++) {
		gn_strbuf_puts(out, ",");
		if (point && isfinite(field(point, columns[i].offset)))
			gn_strbuf_printf(out, "%.9g", field(point, columns[i].offset));
	}
}

static void put_row(const struct gn_curve *c, const struct gn_curve_step *s, const struct gn_curve_eval *e, struct gn_strbuf *out)
{
	put_quoted(c->path, out);
	gn_strbuf_printf(out, ",%zu,%s,%.0f,%.0f,%.9g", c->run, s ? "step" : "eval", s ? s->time : e->time, s ? s->step : e->step,
			 s ? s->epoch : e->epoch);
	put_cells(s, step_columns, STEP_COLUMNS, out);
	put_cells(e, eval_columns, EVAL_COLUMNS, out);
	gn_strbuf_puts(out, "\n");
}

/* Calls put for each step and evaluation, in the order of steps; an evaluation follows its step. */
static void each_point(const struct gn_curve *c,
		       void (*put)(const struct gn_curve *, const struct gn_curve_step *, const struct gn_curve_eval *, struct gn_strbuf *),
		       struct gn_strbuf *out)
{
	size_t e = 0;

	for (size_t i = 0; i < c->step_count; i++) {
		for (; e < c->eval_count && c->evals[e].step < c->steps[i].step; e++)
			put(c, NULL, &c->evals[e], out);
		put(c, &c->steps[i], NULL, out);
	}
	for (; e < c->eval_count; e++)
		put(c, NULL, &c->evals[e], out);
}

void gn_curves_csv(const struct gn_curve *curves, size_t count, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, GN_CURVES_CSV_BEGINNING ",time,step,epoch");
	for (size_t i = 0; i < STEP_COLUMNS; i++)
		gn_strbuf_printf(out, ",%s", step_columns[i].name);
	for (size_t i = 0; i < EVAL_COLUMNS; i++)
		gn_strbuf_printf(out, ",%s", eval_columns[i].name);
	gn_strbuf_puts(out, "\n");
	for (size_t c = 0; c < count; c++)
		each_point(&curves[c], put_row, out);
}

/* --- TensorBoard --- */

/* Protocol buffers: a varint; a key of field number and wire type is one, too. */
static void put_varint(struct gn_strbuf *out, uint64_t v)
{
	for (; v > 127; v >>= 7)
		gn_strbuf_append(out, &(const char){(char)(v | 128)}, 1);
	gn_strbuf_append(out, &(const char){(char)v}, 1);
}

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(struct gn_strbuf *out, int number, enum wire wire)
{
	put_varint(out, (uint64_t)number << 3 | (uint64_t)wire);
}

/* Little-endian, whatever the machine. */
static void put_fixed(struct gn_strbuf *out, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		gn_strbuf_append(out, &(const char){(char)(v >> 8 * i)}, 1);
}

static void put_bytes(struct gn_strbuf *out, int number, const char *data, size_t len)
{
	put_key(out, number, BYTES);
	put_varint(out, len);
	gn_strbuf_append(out, data, len);
}

static void put_double(struct gn_strbuf *out, int number, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	put_key(out, number, FIXED64);
	put_fixed(out, bits, 8);
}

/* TFRecord: tensorflow/core/lib/io/record_writer.h */
static void put_masked_crc(struct gn_strbuf *out, const char *data, size_t len)
{
	uint32_t crc = gn_crc32c(0, data, len);

	put_fixed(out, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

static void put_record(struct gn_strbuf *out, const struct gn_strbuf *data)
{
	size_t at = out->len;

	put_fixed(out, data->len, 8);
	if (gn_strbuf_failed(out))
		return;
	put_masked_crc(out, gn_strbuf_text(out) + at, 8);
	gn_strbuf_append(out, gn_strbuf_text(data), data->len);
	put_masked_crc(out, gn_strbuf_text(data), data->len);
}

/* Summary.Value: tag = 1, simple_value = 2 (float); in Summary: value = 1. */
static void put_values(struct gn_strbuf *summary, const void *point, const struct column *columns, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float v = (float)field(point, columns[i].offset);
		struct gn_strbuf value = {0};
		uint32_t bits;

		if (!isfinite(v))
			continue;
		memcpy(&bits, &v, sizeof bits);
		put_bytes(&value, 1, columns[i].tag, strlen(columns[i].tag));
		put_key(&value, 2, FIXED32);
		put_fixed(&value, bits, 4);
		put_bytes(summary, 1, gn_strbuf_text(&value), value.len);
		summary->failed |= gn_strbuf_failed(&value);
		gn_strbuf_release(&value);
	}
}

/* Event: wall_time = 1, step = 2, summary = 5. */
static void put_event(const struct gn_curve *c, const struct gn_curve_step *s, const struct gn_curve_eval *e, struct gn_strbuf *out)
{
	double step = s ? s->step : e->step;
	struct gn_strbuf event = {0}, summary = {0};

	(void)c;
	if (s)
		put_values(&summary, s, step_columns, STEP_COLUMNS);
	else
		put_values(&summary, e, eval_columns, EVAL_COLUMNS);
	put_double(&event, 1, s ? s->time : e->time);
	put_key(&event, 2, VARINT);
	put_varint(&event, step >= 0 && step < 9e15 ? (uint64_t)step : 0);
	put_bytes(&event, 5, gn_strbuf_text(&summary), summary.len);
	out->failed |= gn_strbuf_failed(&event) | gn_strbuf_failed(&summary);
	put_record(out, &event);
	gn_strbuf_release(&event);
	gn_strbuf_release(&summary);
}

static double first_time(const struct gn_curve *c)
{
	return c->step_count && c->steps[0].time > 0 ? c->steps[0].time : 0;
}

/* One event file: TFRecord framing (length, masked CRC-32C, data, masked CRC-32C) of tensorflow.Event messages with a scalar summary each
 * for training and evaluation. */
static void append_events(const struct gn_curve *c, struct gn_strbuf *out)
{
	static const char version[] = "brain.Event:2";
	struct gn_strbuf event = {0};

	put_double(&event, 1, first_time(c));
	put_bytes(&event, 3, version, sizeof version - 1); /* Event.file_version */
	out->failed |= gn_strbuf_failed(&event);
	put_record(out, &event);
	gn_strbuf_release(&event);
	each_point(c, put_event, out);
}

static void name_run(const struct gn_curve *c, char *out, size_t size)
{
	const char *base = strrchr(c->path, '/') ? strrchr(c->path, '/') + 1 : c->path;
	size_t len = strlen(base);

	if (len > 6 && !strcmp(base + len - 6, ".jsonl"))
		len -= 6;
	if (c->runs > 1)
		snprintf(out, size, "%.*s-run%zu", (int)(len < 200 ? len : 200), base, c->run);
	else
		snprintf(out, size, "%.*s", (int)(len < 200 ? len : 200), base);
}

enum gn_status gn_curves_write_events(const char *directory, const struct gn_curve *curves, size_t count, struct gn_err *err)
{
	char name[256], other[256], path[PATH_MAX];
	enum gn_status status = GN_OK;
	struct gn_strbuf events = {0};

	for (size_t c = 0; c < count && !status; c++) {
		size_t earlier = 0;

		name_run(&curves[c], name, sizeof name);
		for (size_t k = 0; k < c; k++) {
			name_run(&curves[k], other, sizeof other);
			earlier += !strcmp(name, other);
		}
		if (earlier)
			snprintf(name + strlen(name), sizeof name - strlen(name), "-%zu", earlier + 1);
		status = gn_path_join(path, sizeof path - 64, directory, name, err);
		if (!status)
			status = gn_make_dirs(path, err);
		if (status)
			break;
		snprintf(path + strlen(path), sizeof path - strlen(path), "/events.out.tfevents.%010.0f.gannet", first_time(&curves[c]));
		gn_strbuf_clear(&events);
		append_events(&curves[c], &events);
		status = gn_file_replace_text(path, &events, GN_REPLACE_SYNCED, err);
	}
	gn_strbuf_release(&events);
	return status;
}
