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

/* Compared quantities with their numbers, and the verdicts on them. By golden_run.c only.
 *
 * The first computation makes the entries; repeated ones go over them in the same order and add their own numbers
 * beside. */

/* With whom an entry shares what rounding does to it. */
enum gn_sharing {
	GN_SHARE_NOTHING,
	GN_SHARE_QUANTITY, /* all tensors: a flipped unit changes some and spares others */
	GN_SHARE_PRECEDING /* what a run has lost at one step it does not find again at the next */
};

/* A row with its numbers: one, or several that count together. */
struct gn_tolerance_entry {
	struct gn_golden_row row;
	enum gn_sharing sharing;
	double scale;
	size_t first, count; /* in the arrays of numbers */
};

struct gn_tolerance {
	struct gn_tolerance_entry *entries;
	size_t entry_count, entry_room;
	double *theirs, *mine, *again; /* numbers of the file, of the first computation, of the repeated one */
	size_t number_room, number_next;
	int repeat; /* 0: the first computation */
	int no_memory;
};

/* A zeroed one is empty. */
void gn_tolerance_release(struct gn_tolerance *l);
/* Before each computation; repeat counts from 0. */
void gn_tolerance_begin(struct gn_tolerance *l, int repeat);
/* Opens the next entry for at most so many numbers. With a scale of zero only zero is right. */
void gn_tolerance_entry(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing, double bound,
		     double scale, size_t numbers);
void gn_tolerance_number(struct gn_tolerance *l, double mine, double theirs);
/* Both for one number. */
void gn_tolerance_single(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing,
		      double bound, double scale, double mine, double theirs);
/* After the first computation: deviations and whether they keep the bounds; returns how many do not. */
size_t gn_tolerance_judge(struct gn_tolerance *l);
/* After each repeated one: keeps the largest change. */
void gn_tolerance_keep_rounding(struct gn_tolerance *l);
/* After some of them, and again after more: what is beyond its bound but at most tolerance times its rounding is GN_GOLDEN_ROUNDING.
 * Returns how many are beyond that, too. */
size_t gn_tolerance_excuse(struct gn_tolerance *l, double tolerance);

#endif
