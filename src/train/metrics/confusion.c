#include "src/train/metrics/confusion.h"

#include "src/base/json.h"
#include "src/base/text.h"

#include <math.h>
#include <stdlib.h>

enum { BINS = 15 };

struct gn_confusion {
	size_t classes;
	int64_t *counts; /* [label][prediction], then images by label */
	int64_t bin_images[BINS], bin_right[BINS];
	double bin_confidence[BINS];
};

enum gn_status gn_confusion_create(int classes, struct gn_confusion **out, struct gn_err *err)
{
	struct gn_confusion *c;

	if (classes > GN_CONFUSION_CLASSES_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "counts by class are for at most %d classes, not %d", GN_CONFUSION_CLASSES_MAX, classes);
	c = calloc(1, sizeof *c);
	if (c)
		c->counts = calloc((size_t)classes * ((size_t)classes + 1), sizeof *c->counts);
	if (!c || !c->counts) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the counts of %d classes", classes);
	}
	c->classes = (size_t)classes;
	*out = c;
	return GN_OK;
}

void gn_confusion_destroy(struct gn_confusion *c)
{
	if (c)
		free(c->counts);
	free(c);
}

static int64_t *images_of(const struct gn_confusion *c)
{
	return c->counts + c->classes * c->classes;
}

static void add_row(struct gn_confusion *c, const float *row, size_t label)
{
	size_t best = 0, bin;
	double sum = 0, confidence;

	images_of(c)[label]++;
	for (size_t k = 0; k < c->classes; k++) {
		if (!isfinite(row[k]))
			return;
		best = row[k] > row[best] ? k : best;
	}
	for (size_t k = 0; k < c->classes; k++)
		sum += exp((double)row[k] - row[best]);
	confidence = 1 / sum;
	bin = (size_t)(confidence * BINS);
	bin = bin < BINS ? bin : BINS - 1;
	c->counts[label * c->classes + best]++;
	c->bin_images[bin]++;
	c->bin_right[bin] += best == label;
	c->bin_confidence[bin] += confidence;
}

void gn_confusion_add(struct gn_confusion *c, const float *logits, const int32_t *labels, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		add_row(c, logits + i * c->classes, (size_t)labels[i]);
}

enum gn_status gn_confusion_sum(struct gn_confusion *c, struct gn_comm *comm, struct gn_err *err)
{
	enum gn_status status = gn_comm_allreduce(comm, c->counts, c->classes * (c->classes + 1), GN_I64, NULL, err);

	if (!status)
		status = gn_comm_allreduce(comm, c->bin_images, BINS, GN_I64, NULL, err);
	if (!status)
		status = gn_comm_allreduce(comm, c->bin_right, BINS, GN_I64, NULL, err);
	return status ? status : gn_comm_allreduce(comm, c->bin_confidence, BINS, GN_F64, NULL, err);
}

static int64_t predicted(const struct gn_confusion *c, size_t class)
{
	int64_t sum = 0;

	for (size_t label = 0; label < c->classes; label++)
		sum += c->counts[label * c->classes + class];
	return sum;
}

/* 2 right / (images + predicted); NaN where both are 0. */
static double f1(const struct gn_confusion *c, size_t class, int64_t times_predicted)
{
	return 2.0 * (double)c->counts[class * c->classes + class] / (double)(images_of(c)[class] + times_predicted);
}

double gn_confusion_macro_f1(const struct gn_confusion *c)
{
	double sum = 0, value;
	size_t count = 0;

	for (size_t k = 0; k < c->classes; k++) {
		value = f1(c, k, predicted(c, k));
		sum += isnan(value) ? 0 : value;
		count += !isnan(value);
	}
	return count ? sum / (double)count : 0;
}

double gn_confusion_calibration_error(const struct gn_confusion *c)
{
	double sum = 0;
	int64_t images = 0;

	for (size_t b = 0; b < BINS; b++) {
		sum += fabs((double)c->bin_right[b] - c->bin_confidence[b]);
		images += c->bin_images[b];
	}
	return images ? sum / (double)images : NAN;
}

static void put_classes(const struct gn_confusion *c, const struct gn_dataset *names_of, struct gn_json *j)
{
	gn_json_array(j, "classes");
	for (size_t k = 0; k < c->classes; k++) {
		int64_t images = images_of(c)[k], times = predicted(c, k);
		double right = (double)c->counts[k * c->classes + k];

		gn_json_put(j, "{ name %s images %ld predicted %ld accuracy %g precision %g f1 %g }",
			    gn_dataset_class_name(names_of, (uint32_t)k), images, times, right / (double)images, right / (double)times,
			    f1(c, k, times));
	}
	gn_json_end(j);
}

static void put_bins(const struct gn_confusion *c, struct gn_json *j)
{
	gn_json_array(j, "bins");
	for (size_t b = 0; b < BINS; b++) {
		double images = (double)c->bin_images[b];

		gn_json_put(j, "{ from %g to %g images %ld accuracy %g confidence %g }", (double)b / BINS, (double)(b + 1) / BINS,
			    c->bin_images[b], (double)c->bin_right[b] / images, c->bin_confidence[b] / images);
	}
	gn_json_end(j);
}

static void put_counts(const struct gn_confusion *c, struct gn_json *j)
{
	gn_json_array(j, "confusion");
	for (size_t label = 0; label < c->classes; label++) {
		gn_json_array(j, NULL);
		for (size_t k = 0; k < c->classes; k++)
			gn_json_int(j, NULL, c->counts[label * c->classes + k]);
		gn_json_end(j);
	}
	gn_json_end(j);
}

void gn_confusion_text(const struct gn_confusion *c, const struct gn_dataset *names_of, struct gn_strbuf *out)
{
	char name[300];

	gn_strbuf_puts(out, "  images predicted  accuracy % precision %        F1 %  class (most frequent wrong prediction)\n");
	for (size_t k = 0; k < c->classes; k++) {
		const int64_t *row = c->counts + k * c->classes, times = predicted(c, k);
		const double shares[] = {(double)row[k] / (double)images_of(c)[k], (double)row[k] / (double)times, f1(c, k, times)};
		size_t other = k ? 0 : 1;

		for (size_t i = 0; i < c->classes; i++)
			other = i != k && row[i] > row[other] ? i : other;
		gn_strbuf_printf(out, "%8lld %9lld", (long long)images_of(c)[k], (long long)times);
		for (int i = 0; i < 3; i++)
			if (isnan(shares[i]))
				gn_strbuf_puts(out, "           -");
			else
				gn_strbuf_printf(out, "%12.2f", 100 * shares[i]);
		gn_strbuf_printf(out, "  %s", gn_text_visible(gn_dataset_class_name(names_of, (uint32_t)k), name, sizeof name));
		if (other < c->classes && row[other])
			gn_strbuf_printf(out, " (%lld as %s)", (long long)row[other],
					 gn_text_visible(gn_dataset_class_name(names_of, (uint32_t)other), name, sizeof name));
		gn_strbuf_puts(out, "\n");
	}
	gn_strbuf_printf(out, "macro F1 %.2f %%, calibration error %.4f\n", 100 * gn_confusion_macro_f1(c), gn_confusion_calibration_error(c));
}

enum gn_status gn_confusion_write(const struct gn_confusion *c, const struct gn_dataset *names_of, const char *path, struct gn_err *err)
{
	int64_t images = 0;
	struct gn_json j;

	for (size_t k = 0; k < c->classes; k++)
		images += images_of(c)[k];
	gn_json_begin(&j);
	gn_json_put(&j, "images %ld macro_f1 %g calibration_error %g", images, gn_confusion_macro_f1(c), gn_confusion_calibration_error(c));
	put_classes(c, names_of, &j);
	put_bins(c, &j);
	put_counts(c, &j);
	gn_json_end(&j);
	return gn_json_save(&j, path, err);
}
