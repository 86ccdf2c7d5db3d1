/* The layouts of a run's weights in its flat arrays: torch's order while files are read and written, the device's while
 * steps run.
 *
 * The first plan says what it likes, all ranks take the same (torch's order where they would differ, as processors of
 * different kinds do), and later plans of the run take that too. Arrays are changed in place, tensor by tensor; the values are
 * the same bits before and after, and offsets do not change (kernels/weight.h).
 *
 * Thread safety: one thread; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_PLAN_WEIGHT_LAYOUTS_H
#define GN_TRAIN_PLAN_WEIGHT_LAYOUTS_H

#include "src/train/plan/plan.h"

struct gn_weight_layouts;

/* Free to choose: every layout is GN_WEIGHT_ANY. model is borrowed. */
enum gn_status gn_weight_layouts_create(const struct gn_model *model, struct gn_weight_layouts **out, struct gn_err *err);
/* Another one with the same layouts, for another thread. After gn_weight_layouts_take or gn_weight_layouts_plain. */
enum gn_status gn_weight_layouts_copy(const struct gn_weight_layouts *a, struct gn_weight_layouts **out, struct gn_err *err);
void gn_weight_layouts_destroy(struct gn_weight_layouts *a);
/* For gn_plan_options.weights: a layout for each parameter. Borrowed. */
const struct gn_weight_layout *gn_weight_layouts_layouts(const struct gn_weight_layouts *a);
/* What the plan has chosen becomes the run's. */
enum gn_status gn_weight_layouts_take(struct gn_weight_layouts *a, const struct gn_plan *plan, struct gn_err *err);
/* The same of layouts that are known, one for each parameter: of an earlier object for these parameters. */
enum gn_status gn_weight_layouts_set(struct gn_weight_layouts *a, const struct gn_weight_layout *layouts, struct gn_err *err);
/* Torch's order for all. */
void gn_weight_layouts_plain(struct gn_weight_layouts *a);
/* SHA-256 of the layouts: equal where they are. */
enum gn_status gn_weight_layouts_digest(const struct gn_weight_layouts *a, char hex[65], struct gn_err *err);
/* An array of parameters, or of anything laid out as they are, from torch's order and back; NULL is fine. After
 * gn_weight_layouts_take or gn_weight_layouts_plain. */
void gn_weight_layouts_in(struct gn_weight_layouts *a, float *flat);
void gn_weight_layouts_out(struct gn_weight_layouts *a, float *flat);

/* A plan with options.no_memory, which has the layouts that it likes. */
enum gn_status gn_plan_create_unallocated(const struct gn_model *model, const struct gn_plan_options *options, struct gn_plan **out,
					  struct gn_err *err);

#endif
