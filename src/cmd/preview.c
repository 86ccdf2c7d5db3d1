#include "src/cmd/cmd.h"

#include "data/sample/image.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/cmd/key_option.h"
#include "src/cmd/sample_options.h"
#include "src/train/loop/input.h"
#include "src/train/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 2, WHITE = 255 }; /* pixels between images */

struct preview_options {
	struct gn_train_options train; /* of which GN_CMD_SAMPLE_OPTIONS fills the fields that matter here */
	const char *out;
	int64_t rows, columns, epoch, first;
	int json;
};

#define FIELD(name) offsetof(struct preview_options, train.name)
#define AT(name) offsetof(struct preview_options, name)

static const struct gn_option options[] = {
	GN_OPT_TEXT("out", AT(out), "FILE.png", "file to write", .letter = 'o', .required = 1),
	GN_OPT_INT("rows", AT(rows), "N", "4", 1, 64, "rows of images"),
	GN_OPT_INT("columns", AT(columns), "N", "8", 1, 64, "images per row"),
	GN_OPT_INT("epoch", AT(epoch), "E", "0", 0, 1e6, "epoch, from 0"),
	GN_OPT_INT("first", AT(first), "N", "0", 0, 4294967295., "position in the epoch of the first image, from 0: images already done by "
		    "all ranks together"),
	GN_OPT_FLAG("json", AT(json), "print one JSON object instead of a table"),
	GN_OPT_CHOICE("model", FIELD(model), "NAME", "resnet50", gn_model_names, "network, for the defaults of side and channels"),
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	GN_CMD_SAMPLE_OPTIONS(FIELD),
};

static const struct gn_command command = {
	.name = "preview",
	.summary = "draw the images that training sees: decoded, augmented, mixed",
	.positional = "DATASET",
	.description = "Writes a sheet of the images that gannet train, with the same options, takes from --first on in an epoch, in its "
		       "order, and prints which they are: row and column, the sample's number in the dataset, its name and class, and "
		       "with --mixup or --cutmix the other sample's class and the weight of the first. Pixels are those that the network gets, "
		       "without the normalisation, rounded to 8 bits. With --resize-schedule give --side of the epoch.",
	.examples = "  gannet preview train --out sheet.png\n"
		    "  gannet preview train --model lenet --augment shift --out sheet.png\n"
		    "  gannet preview train --side 160 --mixup 0.2 --json --out sheet.png\n",
	GN_OPTIONS(options),
	.positional_min = 1,
	.positional_max = 1,
};

struct preview {
	const struct preview_options *options;
	struct gn_dataset *dataset;
	struct gn_model *model;
	struct gn_balance *balance;
	struct gn_loader *loader;
	struct gn_loader_options lo;
	struct gn_input_spec input;
	struct gn_batch batch;
};

static void release(struct preview *p)
{
	gn_loader_destroy(p->loader);
	gn_balance_destroy(p->balance);
	gn_model_destroy(p->model);
	gn_dataset_close(p->dataset);
}

static uint32_t columns_of(const struct preview *p)
{
	return p->lo.batch < (uint32_t)p->options->columns ? p->lo.batch : (uint32_t)p->options->columns;
}

static void size_sheet(const struct preview *p, size_t *width, size_t *height)
{
	*width = GAP + columns_of(p) * (p->lo.width + (size_t)GAP);
	*height = GAP + (p->lo.batch + columns_of(p) - 1) / columns_of(p) * (p->lo.height + (size_t)GAP);
}

/* Before memory is taken for it. */
static enum gn_status check_size(const struct preview *p, struct gn_err *err)
{
	size_t width, height;

	size_sheet(p, &width, &height);
	if (width > GN_IMAGE_MAX_SIDE || height > GN_IMAGE_MAX_SIDE || width * height > GN_IMAGE_MAX_PIXELS)
		return gn_err_set(err, GN_ERR_USAGE, "a sheet of %zu x %zu pixels is too large: give fewer --rows and --columns", width, height);
	return GN_OK;
}

/* The images, as a batch of one rank. */
static enum gn_status load(struct preview *p, const char *directory, struct gn_err *err)
{
	const struct preview_options *o = p->options;
	const struct gn_train_options *t = &o->train;
	size_t len = strlen(o->out);
	int side = t->side ? (int)t->side : gn_model_default_side(t->model);
	uint64_t left, wanted = (uint64_t)o->rows * (uint64_t)o->columns;
	enum gn_status status;

	if (len < 5 || strcmp(o->out + len - 4, ".png") != 0)
		return gn_err_set(err, GN_ERR_USAGE, "--out %s: the sheet is a PNG file: give FILE.png", o->out);
	status = gn_dataset_open(directory, &p->dataset, err);
	if (!status)
		status = gn_dataset_unlock(p->dataset, t->key_file, err);
	if (status)
		return status;
	if ((uint64_t)o->first >= gn_dataset_count(p->dataset))
		return gn_err_set(err, GN_ERR_USAGE, "--first %lld is beyond the epoch: %s has %llu images", (long long)o->first, directory,
				  (unsigned long long)gn_dataset_count(p->dataset));
	left = gn_dataset_count(p->dataset) - (uint64_t)o->first;
	p->lo = (struct gn_loader_options){.ranks = 1, .batch = (uint32_t)(wanted < left ? wanted : left), .threads = 2};
	status = gn_model_create(t->model, (int)gn_dataset_classes(p->dataset), (int)t->channels, side, &p->model, err);
	if (!status)
		status = gn_input_of_train(t, gn_model_channels(p->model), 1, &p->input, err);
	if (!status)
		status = gn_input_train_options(t, &p->input, gn_model_channels(p->model), gn_model_side(p->model), side, &p->lo, err);
	if (!status)
		status = gn_input_sampling(t->sampling, p->dataset, (uint64_t)t->seed, &p->balance, err);
	p->lo.balance = p->balance;
	if (!status)
		status = check_size(p, err);
	if (!status)
		status = gn_loader_create(p->dataset, &p->lo, &p->loader, err);
	if (!status)
		status = gn_loader_start(p->loader, (uint32_t)o->epoch, (uint64_t)o->first, err);
	return status ? status : gn_loader_next(p->loader, &p->batch, err);
}

/* Undoes the normalisation of image i, and places it. pixels: rows of `width` pixels. */
static void place(const struct preview *p, uint32_t i, unsigned char *pixels, size_t width)
{
	const struct gn_loader_options *lo = &p->lo;
	const size_t plane = (size_t)lo->height * lo->width;
	const float *image = p->batch.images + i * plane * lo->channels;
	size_t left = GAP + i % columns_of(p) * (lo->width + (size_t)GAP), top = GAP + i / columns_of(p) * (lo->height + (size_t)GAP);

	for (size_t k = 0; k < plane; k++)
		for (uint32_t c = 0; c < lo->channels; c++) {
			double value = 255 * ((double)image[c * plane + k] * lo->deviation[c] + lo->mean[c]);

			pixels[((top + k / lo->width) * width + left + k % lo->width) * lo->channels + c] =
				(unsigned char)lround(fmin(fmax(value, 0), 255));
		}
}

static enum gn_status write_sheet(const struct preview *p, struct gn_err *err)
{
	size_t width, height, len;
	unsigned char *pixels, *file = NULL;
	enum gn_status status;

	size_sheet(p, &width, &height);
	pixels = malloc(width * height * p->lo.channels);
	if (!pixels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a sheet of %zu x %zu pixels", width, height);
	memset(pixels, WHITE, width * height * p->lo.channels);
	for (uint32_t i = 0; i < p->batch.count; i++)
		place(p, i, pixels, width);
	status = gn_image_encode_png(pixels, (uint32_t)width, (uint32_t)height, (int)p->lo.channels, &file, &len, err);
	if (!status)
		status = gn_file_replace(p->options->out, file, len, err);
	free(file);
	free(pixels);
	return status;
}

static uint64_t sample_of(const struct preview *p, uint32_t i)
{
	uint64_t index = p->batch.indices[i];

	return p->balance ? gn_balance_sample(p->balance, (uint32_t)p->options->epoch, index) : index;
}

static int is_mixed(const struct preview *p, uint32_t i)
{
	return p->batch.lambdas && p->batch.lambdas[i] < 1;
}

static void put_sample(const struct preview *p, uint32_t i, struct gn_json *j)
{
	char name[1024];

	gn_dataset_sample_name(p->dataset, sample_of(p, i), name, sizeof name);
	gn_json_put(j, "{ row %u column %u position %lu sample %lu name %s label %d class %s", i / columns_of(p), i % columns_of(p),
		    (uint64_t)p->options->first + i, sample_of(p, i), name, p->batch.labels[i],
		    gn_dataset_class_name(p->dataset, (uint32_t)p->batch.labels[i]));
	if (is_mixed(p, i))
		gn_json_put(j, "lambda %.6f pair_label %d pair_class %s", p->batch.lambdas[i], p->batch.pair_labels[i],
			    gn_dataset_class_name(p->dataset, (uint32_t)p->batch.pair_labels[i]));
	gn_json_end(j);
}

static void print_json(const struct preview *p)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "epoch %ld side %u channels %u gap %d samples [", p->options->epoch, p->lo.height, p->lo.channels, GAP);
	for (uint32_t i = 0; i < p->batch.count; i++)
		put_sample(p, i, &j);
	gn_json_end(&j);
	gn_cmd_print_json(&j);
}

static void print_table(const struct preview *p)
{
	char name[1024], shown[2048], class[2048];

	printf("row column   sample  class, name\n");
	for (uint32_t i = 0; i < p->batch.count; i++) {
		gn_dataset_sample_name(p->dataset, sample_of(p, i), name, sizeof name);
		printf("%3u %6u %8llu  %s", i / columns_of(p), i % columns_of(p), (unsigned long long)sample_of(p, i),
		       gn_text_visible(gn_dataset_class_name(p->dataset, (uint32_t)p->batch.labels[i]), class, sizeof class));
		if (is_mixed(p, i))
			printf(" %.2f + %s %.2f", (double)p->batch.lambdas[i],
			       gn_text_visible(gn_dataset_class_name(p->dataset, (uint32_t)p->batch.pair_labels[i]), class, sizeof class),
			       1 - (double)p->batch.lambdas[i]);
		printf(", %s\n", gn_text_visible(name, shown, sizeof shown));
	}
}

static int run(const void *target, const struct gn_text_list *positional)
{
	struct preview p = {.options = target};
	struct gn_err err;
	enum gn_status status = load(&p, positional->items[0], &err);

	if (!status)
		status = write_sheet(&p, &err);
	if (!status && p.options->json)
		print_json(&p);
	else if (!status)
		print_table(&p);
	release(&p);
	return status ? gn_cmd_fail("preview", &err) : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_preview = {.command = &command, .run = run, .options_size = sizeof(struct preview_options)};
