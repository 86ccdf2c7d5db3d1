#include "src/cmd/predict_output.h"

#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/cmd.h"
#include "src/cmd/predict_array.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gn_predict_output {
	const struct gn_predict_options *options;
	struct gn_log *log;
	struct gn_predict_array *array; /* NULL: not asked for */
	json_t *names;			/* an array; NULL: numbers */
	int classes, top;
	int *best;			/* [top] */
};

enum gn_status gn_predict_output_create(const struct gn_predict_options *options, struct gn_log *log, struct gn_predict_output **out,
					struct gn_err *err)
{
	struct gn_predict_output *p = calloc(1, sizeof *p);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	p->options = options;
	p->log = log;
	*out = p;
	return GN_OK;
}

void gn_predict_output_destroy(struct gn_predict_output *p)
{
	if (!p)
		return;
	gn_predict_array_destroy(p->array);
	json_decref(p->names);
	free(p->best);
	free(p);
}

static void print_heading(const struct gn_predict_output *p)
{
	if (!p->options->csv)
		return;
	fputs("name", stdout);
	for (int k = 1; k <= p->top; k++)
		printf(",class%d,probability%d", k, k);
	puts(",error");
}

enum gn_status gn_predict_output_begin(void *context, int classes, const char *names, struct gn_err *err)
{
	struct gn_predict_output *p = context;

	p->classes = classes;
	p->top = p->options->top < classes ? (int)p->options->top : classes;
	p->best = calloc((size_t)p->top, sizeof *p->best);
	if (!p->best)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d classes", p->top);
	p->names = names ? json_loads(names, 0, NULL) : NULL;
	print_heading(p);
	return p->options->npy ? gn_predict_array_create(p->options->npy, classes, &p->array, err) : GN_OK;
}

/* The name of a class, or its number in text. */
static const char *class_name(const struct gn_predict_output *p, int k, char text[16])
{
	const char *name = p->names ? json_string_value(json_array_get(p->names, (size_t)k)) : NULL;

	snprintf(text, 16, "%d", k);
	return name ? name : text;
}

/* The classes with the highest logits; of equal ones the first, as in an evaluation. */
static void find_best(struct gn_predict_output *p, const float *logits)
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

static void print_json(const struct gn_predict_output *p, const struct gn_prediction *image, double sum)
{
	struct gn_json j;
	char text[16];

	gn_json_begin(&j);
	gn_json_string(&j, "name", image->name);
	if (image->problem)
		gn_json_string(&j, "error", image->problem);
	else
		gn_json_array(&j, "top");
	for (int k = 0; k < p->top && !image->problem; k++) {
		gn_json_object(&j, NULL);
		gn_json_string(&j, "class", class_name(p, p->best[k], text));
		gn_json_int(&j, "index", p->best[k]);
		gn_json_fixed(&j, "probability", exp(image->logits[p->best[k]] - sum), 6);
		gn_json_end(&j);
	}
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

static void print_csv(const struct gn_predict_output *p, const struct gn_prediction *image, double sum)
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

static void print_table(const struct gn_predict_output *p, const struct gn_prediction *image, double sum)
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

enum gn_status gn_predict_output_image(void *context, const struct gn_prediction *image, struct gn_err *err)
{
	struct gn_predict_output *p = context;
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
	return p->array ? gn_predict_array_add(p->array, image, err) : GN_OK;
}

enum gn_status gn_predict_output_finish(struct gn_predict_output *p, struct gn_err *err)
{
	return p->array ? gn_predict_array_finish(p->array, err) : GN_OK;
}
