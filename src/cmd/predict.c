#include "src/cmd/cmd.h"

#include "src/base/data_key.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/key_option.h"
#include "src/cmd/network_options.h"
#include "src/cmd/stop.h"
#include "src/cmd/world_options.h"
#include "src/train/loop/evaluate.h"
#include "src/train/loop/predict.h"
#include "src/train/metrics/logits.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the logits as a NumPy array that grows row by row, and beside it the list of names, one a line --- */
struct part {
	char path[PATH_MAX], temporary[PATH_MAX];
	FILE *file;
};

struct predict_array {
	struct part rows, names;
	uint64_t count;
	int classes;
	float *none; /* [classes] NaN */
};

static enum gn_status open_part(struct part *p, struct gn_err *err)
{
	enum gn_status status = gn_file_check_replaceable(p->path, err);

	if (status)
		return status;
	if ((size_t)snprintf(p->temporary, sizeof p->temporary, "%s.tmp-%ld", p->path, (long)getpid()) >= sizeof p->temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", p->path);
	p->file = fopen(p->temporary, "wxe");
	return p->file ? GN_OK : gn_err_errno(err, errno, "cannot create %s", p->temporary);
}

static void drop(struct part *p)
{
	if (!p->file)
		return;
	fclose(p->file);
	unlink(p->temporary);
}

/* Removes what is not finished. NULL is fine. */
static void predict_array_destroy(struct predict_array *a)
{
	if (!a)
		return;
	drop(&a->rows);
	drop(&a->names);
	free(a->none);
	free(a);
}

/* path: FILE.npy; the names go to FILE.names.txt. Both are written beside them until predict_array_finish(). */
static enum gn_status predict_array_create(const char *path, int classes, struct predict_array **out, struct gn_err *err)
{
	struct predict_array *a = calloc(1, sizeof *a);
	size_t len = strlen(path), stem = len > 4 && !strcmp(path + len - 4, ".npy") ? len - 4 : len;
	char header[GN_NPY_HEADER_BYTES] = {0};
	enum gn_status status = GN_OK;

	if (a)
		a->none = calloc((size_t)classes, sizeof *a->none);
	if (!a || !a->none) {
		free(a);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d classes", classes);
	}
	a->classes = classes;
	for (int k = 0; k < classes; k++)
		a->none[k] = NAN;
	if (len + 16 >= sizeof a->names.path)
		status = gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	snprintf(a->rows.path, sizeof a->rows.path, "%s", path);
	snprintf(a->names.path, sizeof a->names.path, "%.*s.names.txt", (int)(stem < PATH_MAX - 16 ? stem : 0), path);
	if (!status)
		status = gn_file_check_folder(path, "npy", err);
	if (!status)
		status = open_part(&a->rows, err);
	if (!status)
		status = open_part(&a->names, err);
	if (!status && fwrite(header, sizeof header, 1, a->rows.file) != 1)
		status = gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	if (status)
		predict_array_destroy(a);
	else
		*out = a;
	return status;
}

/* A row of NaN for an image with a problem. A line break in a name becomes a space. */
static enum gn_status predict_array_add(struct predict_array *a, const struct gn_prediction *image, struct gn_err *err)
{
	const float *row = image->problem ? a->none : image->logits;

	if (fwrite(row, sizeof *row, (size_t)a->classes, a->rows.file) != (size_t)a->classes)
		return gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	for (const char *c = image->name; *c; c++)
		putc(*c == '\n' || *c == '\r' ? ' ' : *c, a->names.file);
	putc('\n', a->names.file);
	a->count++;
	return ferror(a->names.file) ? gn_err_errno(err, errno, "cannot write %s", a->names.temporary) : GN_OK;
}

static enum gn_status finish_part(struct part *p, struct gn_err *err)
{
	FILE *file = p->file;
	int failed = fflush(file) || fsync(fileno(file));

	if (failed)
		return gn_err_errno(err, errno, "cannot write %s", p->temporary);
	if (rename(p->temporary, p->path))
		return gn_err_errno(err, errno, "cannot rename %s to %s", p->temporary, p->path);
	p->file = NULL;
	fclose(file);
	return gn_sync_parent(p->path, err);
}

static enum gn_status predict_array_finish(struct predict_array *a, struct gn_err *err)
{
	char header[GN_NPY_HEADER_BYTES];
	enum gn_status status = finish_part(&a->names, err);

	gn_npy_header(a->count, (uint32_t)a->classes, header);
	if (!status && (fseek(a->rows.file, 0, SEEK_SET) || fwrite(header, sizeof header, 1, a->rows.file) != 1))
		status = gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	return status ? status : finish_part(&a->rows, err);
}

struct predict_output {
	const struct gn_predict_options *options;
	struct gn_log *log;
	struct predict_array *array; /* NULL: not asked for */
	json_t *names;			/* an array; NULL: numbers */
	int classes, top;
	int *best;			/* [top] */
};

/* options is borrowed. */
static enum gn_status predict_output_create(const struct gn_predict_options *options, struct gn_log *log, struct predict_output **out,
					struct gn_err *err)
{
	struct predict_output *p = calloc(1, sizeof *p);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	p->options = options;
	p->log = log;
	*out = p;
	return GN_OK;
}

/* Whatever was not finished of the array is removed. */
static void predict_output_destroy(struct predict_output *p)
{
	if (!p)
		return;
	predict_array_destroy(p->array);
	json_decref(p->names);
	free(p->best);
	free(p);
}

static void print_heading(const struct predict_output *p)
{
	if (!p->options->csv)
		return;
	fputs("name", stdout);
	for (int k = 1; k <= p->top; k++)
		printf(",class%d,probability%d", k, k);
	puts(",error");
}

/* For struct gn_predict_sink; context is a struct predict_output. */
static enum gn_status predict_output_begin(void *context, int classes, const char *names, struct gn_err *err)
{
	struct predict_output *p = context;

	p->classes = classes;
	p->top = p->options->top < classes ? (int)p->options->top : classes;
	p->best = calloc((size_t)p->top, sizeof *p->best);
	if (!p->best)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d classes", p->top);
	p->names = names ? json_loads(names, 0, NULL) : NULL;
	print_heading(p);
	return p->options->npy ? predict_array_create(p->options->npy, classes, &p->array, err) : GN_OK;
}

/* The name of a class, or its number in text. */
static const char *class_name(const struct predict_output *p, int k, char text[16])
{
	const char *name = p->names ? json_string_value(json_array_get(p->names, (size_t)k)) : NULL;

	snprintf(text, 16, "%d", k);
	return name ? name : text;
}

/* The classes with the highest logits; of equal ones the first, as in an evaluation. */
static void find_best(struct predict_output *p, const float *logits)
{
	int count = 0;

	for (int k = 0; k < p->classes; k++) {
		int at = count < p->top ? count++ : p->top;

		for (; at > 0 && logits[k] > logits[p->best[at - 1]]; at--)
			if (at < p->top)
				p->best[at] = p->best[at - 1];
		if (at < p->top)
			p->best[at] = k;
	}
}

/* log(sum(exp(logits))): a probability is exp(logit - that). */
static double log_sum(const float *logits, int classes)
{
	double highest = logits[0], sum = 0;

	for (int k = 1; k < classes; k++)
		highest = logits[k] > highest ? logits[k] : highest;
	for (int k = 0; k < classes; k++)
		sum += exp(logits[k] - highest);
	return highest + log(sum);
}

static void print_json(const struct predict_output *p, const struct gn_prediction *image, double sum)
{
	struct gn_json j;
	char text[16];

	gn_json_begin(&j);
	gn_json_string(&j, "name", image->name);
	if (image->problem)
		gn_json_string(&j, "error", image->problem);
	else
		gn_json_array(&j, "top");
	for (int k = 0; k < p->top && !image->problem; k++)
		gn_json_put(&j, "{ class %s index %d probability %.6f }", class_name(p, p->best[k], text), p->best[k],
			    exp(image->logits[p->best[k]] - sum));
	if (!image->problem)
		gn_json_end(&j);
	gn_cmd_print_json(&j);
}

/* RFC 4180. */
static void print_field(const char *text)
{
	if (!strpbrk(text, ",\"\r\n")) {
		fputs(text, stdout);
		return;
	}
	putchar('"');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}

static void print_csv(const struct predict_output *p, const struct gn_prediction *image, double sum)
{
	char text[16];

	print_field(image->name);
	for (int k = 0; k < p->top; k++) {
		putchar(',');
		if (!image->problem)
			print_field(class_name(p, p->best[k], text));
		putchar(',');
		if (!image->problem)
			printf("%.6f", exp(image->logits[p->best[k]] - sum));
	}
	putchar(',');
	if (image->problem)
		print_field(image->problem);
	putchar('\n');
}

static void print_table(const struct predict_output *p, const struct gn_prediction *image, double sum)
{
	char name[4096], class[1024], text[16];

	if (image->problem)
		return;
	fputs(gn_text_visible(image->name, name, sizeof name), stdout);
	for (int k = 0; k < p->top; k++)
		printf("  %s %.4f", gn_text_visible(class_name(p, p->best[k], text), class, sizeof class),
		       exp(image->logits[p->best[k]] - sum));
	putchar('\n');
}

static enum gn_status predict_output_image(void *context, const struct gn_prediction *image, struct gn_err *err)
{
	struct predict_output *p = context;
	double sum = image->problem ? 0 : log_sum(image->logits, p->classes);

	if (image->problem)
		gn_log_warn(p->log, "passed over %s: %s", image->name, image->problem);
	else
		find_best(p, image->logits);
	flockfile(stdout); /* whole lines, whenever a signal comes: stop.h */
	if (p->options->json)
		print_json(p, image, sum);
	else if (p->options->csv)
		print_csv(p, image, sum);
	else
		print_table(p, image, sum);
	funlockfile(stdout);
	if (ferror(stdout))
		return gn_err_set(err, GN_ERR_IO, "cannot write standard output");
	return p->array ? predict_array_add(p->array, image, err) : GN_OK;
}

/* After the last image: the array and its list of names appear under their names. */
static enum gn_status predict_output_finish(struct predict_output *p, struct gn_err *err)
{
	return p->array ? predict_array_finish(p->array, err) : GN_OK;
}

#define FIELD(name) offsetof(struct gn_predict_options, name)

static const struct gn_option options[] = {
	GN_CMD_NETWORK_OPTIONS(FIELD),
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	GN_OPT_INT("top", FIELD(top), "K", "5", 1, 1000, "classes per image, the most probable first"),
	GN_OPT_FLAG("json", FIELD(json), "print one JSON object per image"),
	GN_OPT_FLAG("csv", FIELD(csv), "print comma-separated values with a heading"),
	GN_OPT_TEXT("npy", FIELD(npy), "FILE.npy", "also write the logits as a NumPy array, float32, one row per image in the order of the "
		    "output, NaN for those passed over; FILE.names.txt has the images' names, one per line"),
	GN_OPT_INT("batch", FIELD(batch), "N", "16", 1, 65536, "images per rank and step", .letter = 'b'),
	GN_CMD_COMPUTE_OPTIONS(FIELD),
	GN_CMD_WORLD_OPTIONS(struct gn_predict_options, world),
};

static const struct gn_command command = {
	.name = "predict",
	.summary = "predict the classes of images: files, folders, archives, datasets",
	.positional = "SOURCE...",
	.description = "Each SOURCE is an image file (JPEG or PNG), a folder or a tar archive of images (folders in it have no meaning), or "
		       "a dataset written by gannet pack (labels have no meaning). For each image, in the order of the sources, a line is "
		       "printed with its name and the most probable classes with their probabilities. Names are SOURCE, or SOURCE/NAME for "
		       "what is inside it.\n\n"
		       "Images that cannot be decoded are named on standard error and passed over; the exit code is then 3, after all others "
		       "have been predicted. With --json and --csv they have a line with the error. Files that are no images by their name "
		       "(text, hidden files) are ignored.\n\n"
		       "The network and its input come from the checkpoint, or from the metadata of a file written by gannet export. Images "
		       "are resized, cropped and normalised as by gannet eval, PNG and CMYK images after the conversion of gannet pack. On "
		       "several ranks, which need the same sources, each decodes and computes its share; rank 0 prints.",
	.examples = "  gannet predict --checkpoint run1 photo.jpg\n"
		    "  gannet predict --weights w.safetensors --top 1 --csv photos/ >w.csv\n"
		    "  srun --mpi=pmix gannet predict --checkpoint run1 --json a.tar >a.jsonl\n",
	GN_OPTIONS(options),
	.positional_min = 1,
	.positional_max = 65536,
};

static enum gn_status predict(const struct gn_predict_options *o, const struct gn_text_list *sources, struct gn_world *world,
			      struct gn_log *log, uint64_t *bad, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport, .strict = o->transport_strict};
	struct gn_predict_sink sink = {NULL, predict_output_begin, predict_output_image};
	struct predict_output *output = NULL;
	struct gn_comm *comm;
	uint64_t images = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_world_set_phase(world, "predicting", GN_EVALUATE_STALL_MS);
	status = predict_output_create(o, log, &output, err);
	sink.context = output;
	if (!status)
		status = gn_predict(o, sources, &sink, comm, log, &images, bad, err);
	if (!status && gn_comm_rank(comm) == 0) {
		/* before files without a row get their names */
		if (!images)
			status = gn_err_set(err, GN_ERR_DATA, "no image in what was given: JPEG and PNG files are read, folders and archives of them, and datasets");
		if (!status)
			status = predict_output_finish(output, err);
		if (!status)
			gn_log_info(log, "%llu image%s predicted, %llu passed over", (unsigned long long)(images - *bad),
				    gn_text_plural(images - *bad), (unsigned long long)*bad);
	}
	predict_output_destroy(output);
	gn_comm_destroy(comm);
	return status;
}

static enum gn_status check(const struct gn_predict_options *o, struct gn_err *err)
{
	enum gn_status status;

	if (o->json && o->csv)
		return gn_err_set(err, GN_ERR_USAGE, "--json and --csv cannot be combined: both are standard output");
	status = gn_network_options_check(&o->network, err);
	return status ? status : gn_data_key_check(o->key_file, err);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_predict_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world;
	struct gn_err err;
	uint64_t bad = 0;
	enum gn_status status = check(o, &err);
	int code;

	if (!status)
		status = gn_stop_create(log, "standard output has whole lines, of the images before; --npy has written nothing", &stop, &err);
	if (status) {
		gn_cmd_decline(log, "predict", &err);
	} else if (!(status = gn_world_create(&o->world, log, &world, &err))) {
		status = predict(o, positional, world, log, &bad, &err);
		gn_world_destroy(world);
	}
	code = status ? gn_cmd_fail_on(log, "predict", &err) : bad ? GN_EXIT_DATA : GN_EXIT_DONE;
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return code;
}

const struct gn_cmd gn_cmd_predict = {.command = &command, .run = run, .options_size = sizeof(struct gn_predict_options), .joins = 1};
