#ifndef GN_TRAIN_PLAN_GOLDEN_INTERNAL_H
#define GN_TRAIN_PLAN_GOLDEN_INTERNAL_H

#include "src/train/plan/golden.h"

#include <jansson.h>

#define GN_GOLDEN_STEPS_MAX 64

struct gn_golden {
	json_t *root;
	char title[128];
	struct gn_model *model;
	int batch, side, classes;
	int32_t *labels;
	int steps;
	double losses[GN_GOLDEN_STEPS_MAX];
	char step_names[GN_GOLDEN_STEPS_MAX][16];
	double lr, momentum, weight_decay;
	double logits_l2;
	const json_t *logits;	/* [batch][min(8, classes)] */
	const json_t *grads;	/* by name: l2, and sum, first */
	const json_t *buffers, *params; /* by name: l2, and first; NULL when the file has none */
	double eval_logits_l2;	/* < 0 when the file has none */
};

#endif
