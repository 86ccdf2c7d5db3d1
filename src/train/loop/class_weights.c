#include "src/train/loop/class_weights.h"

#include "src/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 28 };

enum gn_status gn_class_weights_check(const char *how, struct gn_err *err)
{
	return !how || !strcmp(how, "balanced") || !access(how, R_OK)
		       ? GN_OK
		       : gn_err_set(err, GN_ERR_USAGE, "--class-weights %s: %s: give a file of numbers, or balanced", how, strerror(errno));
}

static void balance(const struct gn_dataset *d, uint32_t classes, double *out)
{
	const uint64_t count = gn_dataset_count(d);

	for (uint64_t i = 0; i < count; i++) {
		struct gn_sample s;

		gn_dataset_sample(d, i, &s);
		out[s.label]++;
	}
	for (uint32_t k = 0; k < classes; k++)
		out[k] = out[k] > 0 ? (double)count / (classes * out[k]) : 0;
}

static enum gn_status read_numbers(const char *path, const char *text, uint32_t classes, double *out, struct gn_err *err)
{
	double sum = 0;
	char *end;

	for (uint32_t k = 0; k < classes; k++, text = end) {
		out[k] = strtod(text, &end);
		if (end == text)
			return gn_err_set(err, GN_ERR_DATA, "--class-weights %s: %u number%s, then none: write one for each of the %u classes",
					  path, k, k == 1 ? "" : "s", classes);
		if (!(out[k] >= 0 && out[k] <= 1e30))
			return gn_err_set(err, GN_ERR_DATA, "--class-weights %s: %g for class %u: write numbers from 0 to 1e30", path,
					  out[k], k);
		sum += out[k];
	}
	if (text[strspn(text, " \t\n")])
		return gn_err_set(err, GN_ERR_DATA, "--class-weights %s: more than one number for each of the %u classes", path, classes);
	if (!(sum > 0))
		return gn_err_set(err, GN_ERR_DATA, "--class-weights %s: no number is above 0", path);
	return GN_OK;
}

enum gn_status gn_class_weights_load(const char *how, const struct gn_dataset *dataset, double **out, struct gn_err *err)
{
	const uint32_t classes = gn_dataset_classes(dataset);
	double *weights = calloc(classes, sizeof *weights);
	enum gn_status status = GN_OK;
	char *text = NULL;

	if (!weights)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the weights of %u classes", classes);
	if (!strcmp(how, "balanced")) {
		balance(dataset, classes, weights);
	} else {
		status = gn_file_load_text(how, FILE_MAX_BYTES, &text, NULL, err);
		status = status ? gn_err_prefix(err, "--class-weights") : read_numbers(how, text, classes, weights, err);
		free(text);
	}
	if (status)
		free(weights);
	else
		*out = weights;
	return status;
}
