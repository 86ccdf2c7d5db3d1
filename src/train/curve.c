#include "src/train/curve.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* A place for one more element; NULL when there is no memory. */
static void *append(void **array, size_t *count, size_t *room, size_t size)
{
	if (*count == *room) {
		size_t more = *room ? 2 * *room : 64;
		void *grown = realloc(*array, more * size);

		if (!grown)
			return NULL;
		*array = grown;
		*room = more;
	}
	return (char *)*array + (*count)++ * size;
}

static int add_step(struct gn_curve *c, const json_t *line)
{
	static const char *const parts[GN_PARTS] = {"data", "forward", "backward", "communication_exposed", "optimizer"};
	void *array = c->steps;
	struct gn_curve_step *p;

	/* Nothing but skipped steps. */
	if (json_is_null(json_object_get(line, "loss")))
		return 0;
	p = append(&array, &c->step_count, &c->step_room, sizeof *p);
	c->steps = array;
	if (!p)
		return -1;
	*p = (struct gn_curve_step){number(line, "step"), number(line, "epoch"), number(line, "loss"),
				    number(line, "lr"), number(line, "images_per_s"), {0}};
	for (int i = 0; i < GN_PARTS; i++)
		p->ms[i] = number(json_object_get(line, "time_ms"), parts[i]);
	return 0;
}

static int add_eval(struct gn_curve *c, const json_t *line)
{
	void *array = c->evals;
	struct gn_curve_eval *p = append(&array, &c->eval_count, &c->eval_room, sizeof *p);

	c->evals = array;
	if (!p)
		return -1;
	*p = (struct gn_curve_eval){number(line, "step"), number(line, "epoch"), number(line, "top1"),
				    number(line, "top5"), number(line, "loss")};
	return 0;
}

static void go_back(struct gn_curve *c, double step)
{
	while (c->step_count && c->steps[c->step_count - 1].step > step)
		c->step_count--;
	while (c->eval_count && c->evals[c->eval_count - 1].step > step)
		c->eval_count--;
}

static int add_line(struct gn_curve *c, const json_t *line)
{
	const char *event = json_string_value(json_object_get(line, "event"));

	if (!event)
		return 0;
	if (!strcmp(event, "step"))
		return add_step(c, line);
	if (!strcmp(event, "eval"))
		return add_eval(c, line);
	if (!strcmp(event, "resume")) {
		c->resumes++;
		go_back(c, number(line, "step"));
	}
	if (!strcmp(event, "start"))
		snprintf(c->label, sizeof c->label, "%.40s, %.0f ranks, global batch %.0f",
			 json_string_value(json_object_get(line, "model")) ?: "?", number(line, "ranks"),
			 number(line, "global_batch"));
	return 0;
}

enum gn_status gn_curve_read(const char *path, struct gn_curve *out, struct gn_err *err)
{
	struct gn_curve c = {0};
	char *text = NULL;
	size_t room = 0;
	int failed = 0;
	FILE *file = fopen(path, "re");

	if (!file)
		return gn_err_errno(err, errno, "cannot open %s", path);
	snprintf(c.label, sizeof c.label, "%.90s", path);
	while (!failed && getline(&text, &room, file) > 0) {
		json_t *line = json_loads(text, 0, NULL);

		if (line)
			failed = add_line(&c, line);
		else
			c.bad_lines++;
		json_decref(line);
	}
	free(text);
	fclose(file);
	if (failed || !c.step_count) {
		gn_curve_release(&c);
		return failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path)
			      : gn_err_set(err, GN_ERR_DATA, "%s has no training step: is it a log of gannet train?", path);
	}
	*out = c;
	return GN_OK;
}

void gn_curve_release(struct gn_curve *c)
{
	free(c->steps);
	free(c->evals);
	*c = (struct gn_curve){0};
}
