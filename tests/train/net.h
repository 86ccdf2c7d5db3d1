/* A network with its plan, and memory for what that works on, for unit tests of plans. */
#ifndef GN_TESTS_TRAIN_NET_H
#define GN_TESTS_TRAIN_NET_H

#include "tests/test.h"

#include "src/base/alloc.h"
#include "src/train/model/init.h"
#include "src/train/plan/plan.h"

#include <stdlib.h>

struct net {
	struct gn_model *model;
	struct gn_plan *plan;
	float *params, *grads, *buffers, *images;
	int32_t *labels;
	struct gn_plan_options options;
};

/* Zeroed; the caller frees it. */
static inline void *room(size_t count, size_t size)
{
	void *p = gn_alloc_aligned(count * size + 1);

	assert_non_null(p);
	return p;
}

/* init: as gn_init_params() has it. The batch is drawn by formula. */
static inline void net_init(struct net *n, const char *model, int classes, int side, const char *init, struct gn_plan_options options)
{
	struct gn_err err;

	assert_ok(gn_model_create(model, classes, 0, side, &n->model, &err));
	n->options = options;
	n->params = room(gn_model_param_elements(n->model), sizeof(float));
	n->grads = room(gn_model_param_elements(n->model), sizeof(float));
	n->buffers = room(gn_model_buffer_elements(n->model), sizeof(float));
	n->images = room((size_t)options.batch * gn_model_channels(n->model) * side * side, sizeof(float));
	n->labels = room(options.batch, sizeof(int32_t));
	gn_init_formula_batch(options.batch, gn_model_channels(n->model), side, classes, n->images, n->labels);
	assert_ok(gn_init_params(n->model, init, n->params, n->buffers, &err));
	assert_ok(gn_plan_create(n->model, &options, n->params, n->grads, n->buffers, &n->plan, &err));
}

static inline void net_release(struct net *n)
{
	gn_plan_destroy(n->plan);
	gn_model_destroy(n->model);
	free(n->params);
	free(n->grads);
	free(n->buffers);
	free(n->images);
	free(n->labels);
}

#endif
