/* Reading and checking reference files. What golden_run.c looks up later has been found to be there, and a number. */
#include "src/train/plan/golden_internal.h"

#include "src/base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum gn_status need_int(const json_t *object, const char *key, int max, int *out, struct gn_err *err)
{
	const json_t *v = json_object_get(object, key);
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v))
		return gn_err_set(err, GN_ERR_DATA, "field \"%s\" is missing or no whole number", key);
	if (n < 1 || n > max)
		return gn_err_set(err, GN_ERR_DATA, "field \"%s\" is %lld: 1 to %d are possible", key, (long long)n,
				  max);
	*out = (int)n;
	return GN_OK;
}

static enum gn_status need_real(const json_t *object, const char *key, double *out, struct gn_err *err)
{
	const json_t *v = json_object_get(object, key);

	if (!json_is_number(v))
		return gn_err_set(err, GN_ERR_DATA, "field \"%s\" is missing or no number", key);
	*out = json_number_value(v);
	return GN_OK;
}

static enum gn_status read_labels(struct gn_golden *g, struct gn_err *err)
{
	const json_t *labels = json_object_get(g->root, "labels");

	if (json_array_size(labels) != (size_t)g->batch)
		return gn_err_set(err, GN_ERR_DATA, "field \"labels\" is no list of %d numbers", g->batch);
	g->labels = calloc(g->batch, sizeof *g->labels);
	if (!g->labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d labels", g->batch);
	for (int i = 0; i < g->batch; i++) {
		const json_t *v = json_array_get(labels, i);
		json_int_t n = json_integer_value(v);

		if (!json_is_integer(v) || n < 0 || n >= g->classes)
			return gn_err_set(err, GN_ERR_DATA, "label %d is not a number from 0 to %d", i, g->classes - 1);
		g->labels[i] = (int32_t)n;
	}
	return GN_OK;
}

static enum gn_status read_losses(struct gn_golden *g, struct gn_err *err)
{
	const json_t *losses = json_object_get(g->root, "losses");
	size_t count = json_array_size(losses);

	if (count < 1 || count > GN_GOLDEN_STEPS_MAX)
		return gn_err_set(err, GN_ERR_DATA, "field \"losses\" is no list of 1 to %d numbers",
				  GN_GOLDEN_STEPS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!json_is_number(json_array_get(losses, i)))
			return gn_err_set(err, GN_ERR_DATA, "loss %zu is no number", i);
		g->losses[i] = json_number_value(json_array_get(losses, i));
		snprintf(g->step_names[i], sizeof g->step_names[i], "step %d", (int)i + 1);
	}
	g->steps = (int)count;
	return GN_OK;
}

static enum gn_status read_optimizer(struct gn_golden *g, struct gn_err *err)
{
	const json_t *o = json_object_get(g->root, "optimizer");
	const char *kind = json_string_value(json_object_get(o, "kind"));
	enum gn_status s;

	if (!kind || strcmp(kind, "sgd"))
		return gn_err_set(err, GN_ERR_DATA, "field \"optimizer\" is missing or its kind is not sgd");
	s = need_real(o, "lr", &g->lr, err);
	if (!s)
		s = need_real(o, "momentum", &g->momentum, err);
	return s ? s : need_real(o, "weight_decay", &g->weight_decay, err);
}

static enum gn_status check_logits(struct gn_golden *g, struct gn_err *err)
{
	size_t columns = g->classes < 8 ? g->classes : 8;
	enum gn_status s = need_real(g->root, "logits_l2", &g->logits_l2, err);

	if (s)
		return s;
	g->logits = json_object_get(g->root, "logits_first8_of_each_image");
	if (json_array_size(g->logits) != (size_t)g->batch)
		return gn_err_set(err, GN_ERR_DATA, "field \"logits_first8_of_each_image\" is no list of %d lists",
				  g->batch);
	for (int i = 0; i < g->batch; i++) {
		const json_t *row = json_array_get(g->logits, i);

		if (json_array_size(row) != columns)
			return gn_err_set(err, GN_ERR_DATA, "the logits of image %d are no list of %zu numbers", i,
					  columns);
		for (size_t k = 0; k < columns; k++)
			if (!json_is_number(json_array_get(row, k)))
				return gn_err_set(err, GN_ERR_DATA, "logit %zu of image %d is no number", k, i);
	}
	return GN_OK;
}

static enum gn_status check_summary(const json_t *summary, const struct gn_param *p, struct gn_err *err)
{
	const json_t *first = json_object_get(summary, "first"), *shape = json_object_get(summary, "shape");
	size_t dim = 0;
	double l2;

	if (need_real(summary, "l2", &l2, err))
		return GN_ERR_DATA;
	if (json_array_size(first) > p->count || json_array_size(first) > 64)
		return gn_err_set(err, GN_ERR_DATA, "\"first\" is longer than the tensor or 64");
	for (size_t i = 0; i < json_array_size(first); i++)
		if (!json_is_number(json_array_get(first, i)))
			return gn_err_set(err, GN_ERR_DATA, "\"first\" holds something that is no number");
	if (shape && json_array_size(shape) != (size_t)p->dims)
		return gn_err_set(err, GN_ERR_DATA, "it has %zu dimensions there, %d here", json_array_size(shape),
				  p->dims);
	for (; dim < json_array_size(shape); dim++)
		if (json_integer_value(json_array_get(shape, dim)) != p->shape[dim])
			return gn_err_set(err, GN_ERR_DATA, "dimension %zu is %lld there, %lld here", dim,
					  (long long)json_integer_value(json_array_get(shape, dim)),
					  (long long)p->shape[dim]);
	return GN_OK;
}

/* A summary for every tensor of the network and for nothing else. */
static enum gn_status check_tensors(const struct gn_golden *g, const char *key, int are_buffers, const json_t **out,
				    struct gn_err *err)
{
	const json_t *all = json_object_get(g->root, key);
	int count = are_buffers ? gn_model_buffer_count(g->model) : gn_model_param_count(g->model);

	if (!json_is_object(all))
		return gn_err_set(err, GN_ERR_DATA, "field \"%s\" is missing or no object", key);
	for (int i = 0; i < count; i++) {
		const struct gn_param *p = are_buffers ? gn_model_buffer(g->model, i) : gn_model_param(g->model, i);
		const json_t *summary = json_object_get(all, p->name);

		if (!summary)
			return gn_err_set(err, GN_ERR_DATA, "field \"%s\" lacks %s", key, p->name);
		if (check_summary(summary, p, err)) {
			gn_err_prefix(err, "field \"%s\", %s", key, p->name);
			return GN_ERR_DATA;
		}
	}
	if (json_object_size(all) != (size_t)count)
		return gn_err_set(err, GN_ERR_DATA, "field \"%s\" has %zu tensors, %s has %d", key,
				  json_object_size(all), gn_model_name(g->model), count);
	*out = all;
	return GN_OK;
}

/* Files of networks for grey images do not say so elsewhere than in the shape of their first weight. */
static int channels_of(const struct gn_golden *g)
{
	const json_t *summary, *shape;
	json_int_t n = 0;
	const char *name;

	json_object_foreach((json_t *)json_object_get(g->root, "grads"), name, summary) {
		shape = json_object_get(summary, "shape");
		if (json_array_size(shape) != 4)
			continue;
		n = json_integer_value(json_array_get(shape, 1));
		break;
	}
	return n >= 1 && n <= 16 ? (int)n : 0;
}

static enum gn_status read_network(struct gn_golden *g, struct gn_err *err)
{
	const char *name = json_string_value(json_object_get(g->root, "model"));
	enum gn_status s;

	if (!name)
		return gn_err_set(err, GN_ERR_DATA, "field \"model\" is missing or no text");
	s = need_int(g->root, "batch", 65536, &g->batch, err);
	if (!s)
		s = need_int(g->root, "side", 8192, &g->side, err);
	if (!s)
		s = need_int(g->root, "classes", 1000000, &g->classes, err);
	if (s)
		return s;
	s = gn_model_create(name, g->classes, channels_of(g), g->side, &g->model, err);
	if (s)
		return s == GN_ERR_USAGE ? GN_ERR_DATA : s;
	snprintf(g->title, sizeof g->title, "%s, batch %d, side %d, %d classes", gn_model_name(g->model), g->batch,
		 g->side, g->classes);
	return GN_OK;
}

static enum gn_status read_all(struct gn_golden *g, struct gn_err *err)
{
	enum gn_status s = read_network(g, err);

	if (!s)
		s = read_labels(g, err);
	if (!s)
		s = read_losses(g, err);
	if (!s)
		s = read_optimizer(g, err);
	if (!s)
		s = check_logits(g, err);
	if (!s)
		s = check_tensors(g, "grads", 0, &g->grads, err);
	if (!s && json_object_get(g->root, "buffers_after_step1"))
		s = check_tensors(g, "buffers_after_step1", 1, &g->buffers, err);
	if (!s && json_object_get(g->root, "params_after_4_steps"))
		s = check_tensors(g, "params_after_4_steps", 0, &g->params, err);
	g->eval_logits_l2 = -1;
	if (!s && json_object_get(g->root, "eval_logits_l2_after_4_steps"))
		s = need_real(g->root, "eval_logits_l2_after_4_steps", &g->eval_logits_l2, err);
	return s;
}

enum gn_status gn_golden_parse(const char *text, size_t len_bytes, const char *source, struct gn_golden **out,
			       struct gn_err *err)
{
	struct gn_golden *g = calloc(1, sizeof *g);
	json_error_t where;
	enum gn_status s;

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", source);
	g->root = json_loadb(text, len_bytes, JSON_REJECT_DUPLICATES, &where);
	if (!g->root) {
		s = gn_err_set(err, GN_ERR_DATA, "%s is not JSON: line %d: %s", source, where.line, where.text);
	} else {
		s = read_all(g, err);
		if (s) {
			gn_err_prefix(err, "%s is not a usable reference file", source);
			if (err)
				err->status = s;
		}
	}
	if (s)
		gn_golden_destroy(g);
	else
		*out = g;
	return s;
}

void gn_golden_destroy(struct gn_golden *g)
{
	if (!g)
		return;
	json_decref(g->root);
	gn_model_destroy(g->model);
	free(g->labels);
	free(g);
}

const char *gn_golden_title(const struct gn_golden *g)
{
	return g->title;
}

void gn_tolerance_release(struct gn_tolerance *l)
{
	free(l->entries);
	free(l->theirs);
	free(l->mine);
	free(l->again);
}

void gn_tolerance_begin(struct gn_tolerance *l, int repeat)
{
	l->repeat = repeat;
	l->number_next = 0;
}

static int make_room(struct gn_tolerance *l, size_t numbers)
{
	double **all[] = {&l->theirs, &l->mine, &l->again};

	if (gn_array_grow(&l->entries, &l->entry_room, l->entry_count, sizeof *l->entries))
		return -1;
	if (l->number_next + numbers <= l->number_room)
		return 0;
	l->number_room = 2 * (l->number_room + numbers) + 4096;
	for (int i = 0; i < 3; i++) {
		double *p = realloc(*all[i], l->number_room * sizeof *p);

		if (!p)
			return -1;
		*all[i] = p;
	}
	return 0;
}

void gn_tolerance_entry(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing, double bound,
		     double scale, size_t numbers)
{
	if (l->repeat)
		return;
	if (l->no_memory || make_room(l, numbers)) {
		l->no_memory = 1;
		return;
	}
	l->entries[l->entry_count++] = (struct gn_tolerance_entry){
		.row = {.quantity = quantity, .name = name, .bound = bound},
		.sharing = sharing,
		.scale = fabs(scale),
		.first = l->number_next};
}

void gn_tolerance_number(struct gn_tolerance *l, double mine, double theirs)
{
	if (l->no_memory)
		return;
	if (l->repeat) {
		l->again[l->number_next++] = mine;
		return;
	}
	l->mine[l->number_next] = mine;
	l->theirs[l->number_next++] = theirs;
	l->entries[l->entry_count - 1].count++;
}

void gn_tolerance_single(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing,
		      double bound, double scale, double mine, double theirs)
{
	gn_tolerance_entry(l, quantity, name, sharing, bound, scale, 1);
	gn_tolerance_number(l, mine, theirs);
}

/* Norm of the difference over the entry's scale. */
static double distance(const struct gn_tolerance_entry *e, const double *a, const double *b)
{
	double sum = 0;

	for (size_t i = e->first; i < e->first + e->count; i++)
		sum += (a[i] - b[i]) * (a[i] - b[i]);
	return sum == 0 ? 0 : sqrt(sum) / e->scale;
}

size_t gn_tolerance_judge(struct gn_tolerance *l)
{
	size_t beyond = 0;

	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_tolerance_entry *e = &l->entries[i];

		e->row.deviation = distance(e, l->mine, l->theirs);
		e->row.verdict = e->row.deviation <= e->row.bound ? GN_GOLDEN_OK : GN_GOLDEN_FAIL;
		beyond += e->row.verdict != GN_GOLDEN_OK;
	}
	return beyond;
}

void gn_tolerance_keep_rounding(struct gn_tolerance *l)
{
	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_tolerance_entry *e = &l->entries[i];
		double d = distance(e, l->again, l->mine);

		if (d > e->row.rounding)
			e->row.rounding = d;
	}
}

static int shares(const struct gn_tolerance_entry *one, const struct gn_tolerance_entry *other)
{
	if (one->sharing != other->sharing || one->sharing == GN_SHARE_NOTHING)
		return 0;
	return one->sharing == GN_SHARE_PRECEDING ? other < one : !strcmp(one->row.quantity, other->row.quantity);
}

/* Giving an entry the largest of its group does not change what is the largest, so the order is of no account. */
static void share_rounding(struct gn_tolerance *l)
{
	for (size_t i = 0; i < l->entry_count; i++)
		for (size_t k = 0; k < l->entry_count; k++)
			if (shares(&l->entries[i], &l->entries[k]) &&
			    l->entries[k].row.rounding > l->entries[i].row.rounding)
				l->entries[i].row.rounding = l->entries[k].row.rounding;
}

size_t gn_tolerance_excuse(struct gn_tolerance *l, double tolerance)
{
	size_t failed = 0;

	share_rounding(l);
	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_golden_row *row = &l->entries[i].row;

		if (row->verdict != GN_GOLDEN_OK && row->deviation <= tolerance * row->rounding)
			row->verdict = GN_GOLDEN_ROUNDING;
		failed += row->verdict == GN_GOLDEN_FAIL;
	}
	return failed;
}
