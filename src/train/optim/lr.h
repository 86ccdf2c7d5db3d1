/* Learning-rate schedules as a function of training progress, counted in epochs so that it does not depend on how many
 * ranks share the work.
 *
 *     peak = lr * (reference_batch ? global_batch / reference_batch : 1)     linear scaling, Goyal et al. 2017, sec. 2.1
 *     warm-up: rises linearly to peak over warmup_epochs, from start; when that is below 0, from lr where scaling raised it,
 *     else from peak / 8
 *     then, with t the share of the remaining epochs that has passed:
 *       constant   peak
 *       step       peak * factor^(number of milestones passed)
 *       cosine     final + (peak - final) * (1 + cos(pi t)) / 2               Loshchilov and Hutter 2016
 *       polynomial final + (peak - final) * (1 - t)^power                      You, Gitman and Ginsburg 2017
 *
 * Thread safety: pure functions.
 */
#ifndef GN_TRAIN_OPTIM_LR_H
#define GN_TRAIN_OPTIM_LR_H

#include "src/base/log.h"
#include "src/base/option.h"
#include "src/base/status.h"
#include "src/train/model/model.h"

#include <stddef.h>

enum gn_lr_shape { GN_LR_CONSTANT, GN_LR_STEP, GN_LR_COSINE, GN_LR_POLYNOMIAL };

#define GN_LR_MILESTONES_MAX 16

struct gn_lr {
	enum gn_lr_shape shape;
	double lr, start;
	double reference_batch; /* 0: lr is taken as it is */
	double warmup_epochs;
	double epochs;		/* the whole training */
	double final_lr;
	double power;		/* polynomial */
	double factor;		/* step */
	double milestones[GN_LR_MILESTONES_MAX]; /* step: epochs, ascending */
	size_t milestone_count;
};

/* "constant", "step", "cosine", "polynomial". */
enum gn_status gn_lr_shape_parse(const char *text, enum gn_lr_shape *out, struct gn_err *err);
/* "30,60,80" into milestones. */
enum gn_status gn_lr_milestones_parse(const char *text, struct gn_lr *out, struct gn_err *err);
/* Fits a schedule to lr->epochs: the warm-up and the milestones that were published for a run of so many epochs (0: they stand as
 * they are) shrink with a shorter run; a longer one has them as they are. GN_ERR_USAGE: warm-up that is not shorter than the run,
 * unless that has no epochs at all. */
enum gn_status gn_lr_fit(struct gn_lr *lr, double warmup_of, double milestones_of, struct gn_err *err);
/* The same, whatever the warm-up. */
void gn_lr_shrink(struct gn_lr *lr, double warmup_of, double milestones_of);
/* The rate for the step that begins when `epoch` epochs (a fraction counts) are done. */
double gn_lr_at(const struct gn_lr *lr, double global_batch, double epoch);

/* Learning rates of their own for some tensors: `gannet train --lr-scale PATTERN=X`.
 *
 * Each entry is a shell pattern (fnmatch) of parameters' names and a factor of the learning rate of those that match. Where several match,
 * the last one counts. Weight decay, which the rate multiplies, is scaled with it, as in a parameter group of PyTorch. Pure functions.
 */

/* GN_ERR_USAGE unless each entry is PATTERN=X with X above 0 and at most 1000. */
enum gn_status gn_lr_scale_check(const struct gn_text_list *entries, struct gn_err *err);
/* Of checked entries: the factor for the parameter of that name; 1 where none matches or entries is NULL. */
double gn_lr_scale_of(const struct gn_text_list *entries, const char *name);
/* Logs for each checked entry how many parameters of m it matches. GN_ERR_USAGE for one that matches none. log may be NULL. */
enum gn_status gn_lr_scale_match(const struct gn_text_list *entries, const struct gn_model *m, struct gn_log *log, struct gn_err *err);

#endif
