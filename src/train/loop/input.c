#include "src/train/loop/input.h"

#include "src/train/loop/augment_options.h"
#include "src/base/sha256.h"
#include "src/base/strbuf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* torchvision's values for ImageNet; for grey images of unknown origin the middle of the range. */
static const double colour_mean[3] = {0.485, 0.456, 0.406}, colour_deviation[3] = {0.229, 0.224, 0.225};

static enum gn_status parse_triple(const char *text, const char *what, int positive, int channels, double out[3],
				   struct gn_err *err)
{
	double values[3];
	const char *p = text;
	int count = 0;

	for (; count < 3; count++) {
		char *end;

		values[count] = strtod(p, &end);
		if (end == p || !isfinite(values[count]) || (positive && values[count] <= 0) || (*end && *end != ','))
			return gn_err_set(err, GN_ERR_USAGE, "%s '%s': write one number, or three with commas%s", what,
					  text, positive ? ", each above 0" : "");
		p = *end ? end + 1 : end;
		if (!*end) {
			count++;
			break;
		}
	}
	if (*p || (count != 1 && count != 3))
		return gn_err_set(err, GN_ERR_USAGE, "%s '%s': write one number, or three with commas", what, text);
	if (count == 3 && channels != 3)
		return gn_err_set(err, GN_ERR_USAGE,
				  "%s '%s' has three numbers, but images of this network have %d channel%s: write one", what,
				  text, channels, channels == 1 ? "" : "s");
	for (int c = 0; c < 3; c++)
		out[c] = values[count == 1 ? 0 : c];
	return GN_OK;
}

enum gn_status gn_input_parse(const char *mean, const char *deviation, int channels, struct gn_input_spec *out,
			      struct gn_err *err)
{
	struct gn_input_spec spec = *out;
	enum gn_status status = GN_OK;

	for (int c = 0; c < 3; c++) {
		spec.mean[c] = channels == 1 ? 0.5 : colour_mean[c];
		spec.deviation[c] = channels == 1 ? 0.5 : colour_deviation[c];
	}
	if (mean)
		status = parse_triple(mean, "--mean", 0, channels, spec.mean, err);
	if (!status && deviation)
		status = parse_triple(deviation, "--deviation", 1, channels, spec.deviation, err);
	if (!status)
		*out = spec;
	return status;
}

enum gn_status gn_input_check(const char *mean, const char *deviation, const struct gn_input_spec *spec, struct gn_err *err)
{
	for (int c = 0; mean && c < 3; c++)
		if (!(spec->mean[c] >= 0 && spec->mean[c] <= 1))
			return gn_err_set(err, GN_ERR_USAGE, "--mean '%s' is not within 0..1; pixels are in 0..1: divide by 255", mean);
	for (int c = 0; deviation && c < 3; c++)
		if (!(spec->deviation[c] > 0 && spec->deviation[c] <= 1))
			return gn_err_set(err, GN_ERR_USAGE, "--deviation '%s' is above 1; pixels are in 0..1: divide by 255", deviation);
	return GN_OK;
}

void gn_input_compare_turned(const struct gn_input_spec *input, const char *directory, int exif_rotate, struct gn_log *log)
{
	if (input->exif_rotate >= 0 && input->exif_rotate != exif_rotate)
		gn_log_warn(log, "%s was packed %s --exif-rotate, the images of training %s: those with an EXIF orientation lie otherwise",
			    directory, input->exif_rotate ? "without" : "with", input->exif_rotate ? "with it" : "without");
}

enum gn_status gn_input_of_train(const struct gn_train_options *o, int channels, int checked, struct gn_input_spec *out, struct gn_err *err)
{
	enum gn_status status = gn_input_parse(o->mean, o->deviation, channels, out, err);

	if (!status && checked)
		status = gn_input_check(o->mean, o->deviation, out, err);
	if (!status && o->interpolation)
		status = gn_interpolation_parse(o->interpolation, &out->interpolation, err);
	out->resize_shorter = o->resize_shorter < 0 ? 0 : o->resize_shorter;
	return status;
}

enum gn_status gn_input_augment_parse(const char *text, int side, enum gn_augment *out, struct gn_err *err)
{
	static const struct {
		const char *name;
		enum gn_augment value;
	} known[] = {{"none", GN_AUGMENT_NONE},
		     {"crop-flip", GN_AUGMENT_CROP_FLIP},
		     {"shift", GN_AUGMENT_SHIFT},
		     {"shift-flip", GN_AUGMENT_SHIFT_FLIP}};

	if (!strcmp(text, "auto")) {
		*out = side >= 64 ? GN_AUGMENT_CROP_FLIP : GN_AUGMENT_SHIFT;
		return GN_OK;
	}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (!strcmp(text, known[i].name)) {
			*out = known[i].value;
			return GN_OK;
		}
	}
	return gn_err_set(err, GN_ERR_USAGE, "augmentation '%s' is none of auto, none, crop-flip, shift, shift-flip", text);
}

void gn_input_loader_options(const struct gn_input_spec *input, int channels, int side, struct gn_loader_options *out)
{
	out->channels = (uint32_t)channels;
	out->height = out->width = (uint32_t)side;
	out->resize_shorter = (uint32_t)input->resize_shorter;
	out->interpolation = input->interpolation;
	for (int c = 0; c < 3; c++) {
		out->mean[c] = (float)input->mean[c];
		out->deviation[c] = (float)input->deviation[c];
	}
}

int gn_input_is_crops(const struct gn_input_spec *input, int channels, const struct gn_plan_options *on, struct gn_plan_pixels *pixels)
{
	for (int c = 0; pixels && c < 3; c++) {
		pixels->mean[c] = (float)input->mean[c];
		pixels->deviation[c] = (float)input->deviation[c];
	}
	return on->backend == GN_BACKEND_CUDA && channels == 3;
}

enum gn_status gn_input_sampling(const char *sampling, const struct gn_dataset *dataset, uint64_t seed, struct gn_balance **out,
				 struct gn_err *err)
{
	uint64_t count = gn_dataset_count(dataset);
	struct gn_sample sample;
	uint32_t *labels;
	enum gn_status status;

	*out = NULL;
	if (!sampling || strcmp(sampling, "balanced") || !count)
		return GN_OK;
	labels = calloc(count, sizeof *labels);
	if (!labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the labels of %s", gn_dataset_directory(dataset));
	for (uint64_t i = 0; i < count; i++) {
		gn_dataset_sample(dataset, i, &sample);
		labels[i] = sample.label;
	}
	status = gn_balance_create(seed, labels, count, gn_dataset_classes(dataset), out, err);
	free(labels);
	return status;
}

enum gn_status gn_input_train_options(const struct gn_train_options *o, const struct gn_input_spec *input, int channels, int side, int full,
				      struct gn_loader_options *out, struct gn_err *err)
{
	enum gn_status status;

	out->seed = (uint64_t)o->seed;
	out->training = 1;
	gn_input_loader_options(input, channels, side, out);
	out->resize_shorter = (uint32_t)((uint64_t)out->resize_shorter * out->height / (uint64_t)full);
	out->pad = (o->pad >= 0 ? (uint32_t)o->pad : (uint32_t)full / 14) * out->height / (uint32_t)full;
	status = gn_input_augment_parse(o->augment, full, &out->augment, err);
	return status ? status : gn_augment_options_parse(o, out, err);
}

enum gn_status gn_input_classes_digest(const struct gn_dataset *dataset, char hex[65], struct gn_err *err)
{
	struct gn_strbuf names = {0};
	enum gn_status status;

	for (uint32_t k = 0; k < gn_dataset_classes(dataset); k++) {
		const char *name = gn_dataset_class_name(dataset, k);

		gn_strbuf_append(&names, name, strlen(name) + 1);
	}
	if (gn_strbuf_failed(&names))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the class names");
	else
		status = gn_sha256_buffer(gn_strbuf_text(&names), names.len, hex, err);
	gn_strbuf_release(&names);
	return status;
}
