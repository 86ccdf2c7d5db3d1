#include "src/train/plan/weight_layouts.h"

#include "src/base/alloc.h"
#include "src/base/sha256.h"

#include <stdlib.h>
#include <string.h>

struct gn_weight_layouts {
	const struct gn_model *model;
	struct gn_weight_layout *layouts;
	float *room; /* for the largest tensor that is changed */
};

enum gn_status gn_weight_layouts_create(const struct gn_model *model, struct gn_weight_layouts **out, struct gn_err *err)
{
	int count = gn_model_param_count(model);
	struct gn_weight_layouts *a = calloc(1, sizeof *a);

	if (a)
		a->layouts = calloc((size_t)count + 1, sizeof *a->layouts);
	if (!a || !a->layouts) {
		gn_weight_layouts_destroy(a);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the layouts of %d parameters", count);
	}
	a->model = model;
	for (int i = 0; i < count; i++)
		a->layouts[i].order = GN_WEIGHT_ANY;
	*out = a;
	return GN_OK;
}

void gn_weight_layouts_destroy(struct gn_weight_layouts *a)
{
	if (!a)
		return;
	free(a->layouts);
	free(a->room);
	free(a);
}

const struct gn_weight_layout *gn_weight_layouts_layouts(const struct gn_weight_layouts *a)
{
	return a->layouts;
}

enum gn_status gn_weight_layouts_set(struct gn_weight_layouts *a, const struct gn_weight_layout *chosen, struct gn_err *err)
{
	size_t largest = 0;
	float *room;

	for (int i = 0; i < gn_model_param_count(a->model); i++)
		if (chosen[i].order != GN_WEIGHT_PLAIN && gn_model_param(a->model, i)->count > largest)
			largest = gn_model_param(a->model, i)->count;
	room = gn_alloc_aligned(largest * sizeof *room);
	if (!room)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to change the layout of %zu weights", largest);
	free(a->room);
	a->room = room;
	memcpy(a->layouts, chosen, (size_t)gn_model_param_count(a->model) * sizeof *chosen);
	return GN_OK;
}

enum gn_status gn_weight_layouts_take(struct gn_weight_layouts *a, const struct gn_plan *plan, struct gn_err *err)
{
	return gn_weight_layouts_set(a, gn_plan_weights(plan), err);
}

enum gn_status gn_weight_layouts_copy(const struct gn_weight_layouts *a, struct gn_weight_layouts **out, struct gn_err *err)
{
	struct gn_weight_layouts *copy;
	enum gn_status status = gn_weight_layouts_create(a->model, &copy, err);

	if (status)
		return status;
	status = gn_weight_layouts_set(copy, a->layouts, err);
	if (status)
		gn_weight_layouts_destroy(copy);
	else
		*out = copy;
	return status;
}

void gn_weight_layouts_plain(struct gn_weight_layouts *a)
{
	memset(a->layouts, 0, (size_t)gn_model_param_count(a->model) * sizeof *a->layouts);
}

enum gn_status gn_weight_layouts_digest(const struct gn_weight_layouts *a, char hex[65], struct gn_err *err)
{
	return gn_sha256_buffer(a->layouts, (size_t)gn_model_param_count(a->model) * sizeof *a->layouts, hex, err);
}

static void change(struct gn_weight_layouts *a, int to_plain, float *flat)
{
	for (int i = 0; flat && i < gn_model_param_count(a->model); i++) {
		const struct gn_param *p = gn_model_param(a->model, i);
		struct gn_weight_shape shape = {(size_t)p->shape[0], (size_t)p->shape[1],
						(size_t)p->shape[2] * (size_t)p->shape[3]};

		if (a->layouts[i].order == GN_WEIGHT_PLAIN)
			continue;
		memcpy(a->room, flat + p->offset, p->count * sizeof *flat);
		gn_weight_reorder(&shape, a->layouts[i], to_plain, a->room, flat + p->offset);
	}
}

void gn_weight_layouts_in(struct gn_weight_layouts *a, float *flat)
{
	change(a, 0, flat);
}

void gn_weight_layouts_out(struct gn_weight_layouts *a, float *flat)
{
	change(a, 1, flat);
}

enum gn_status gn_plan_create_unallocated(const struct gn_model *model, const struct gn_plan_options *options, struct gn_plan **out,
					  struct gn_err *err)
{
	struct gn_plan_options o = *options;
	struct gn_weight_layouts *layouts;
	enum gn_status status = gn_weight_layouts_create(model, &layouts, err);

	if (status)
		return status;
	o.no_memory = 1;
	o.weights = gn_weight_layouts_layouts(layouts);
	status = gn_plan_create(model, &o, NULL, NULL, NULL, out, err);
	gn_weight_layouts_destroy(layouts);
	return status;
}
