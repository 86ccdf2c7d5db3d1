/* Learning rates of their own for some tensors: `gannet train --lr-scale PATTERN=X`.
 *
 * Each entry is a shell pattern (fnmatch) of parameters' names and a factor of the learning rate of those that match. Where several match,
 * the last one counts. Weight decay, which the rate multiplies, is scaled with it, as in a parameter group of PyTorch. Pure functions.
 */
#ifndef GN_TRAIN_OPTIM_LR_SCALE_H
#define GN_TRAIN_OPTIM_LR_SCALE_H

#include "src/base/log.h"
#include "src/base/option.h"
#include "src/train/model/model.h"

/* GN_ERR_USAGE unless each entry is PATTERN=X with X above 0 and at most 1000. */
enum gn_status gn_lr_scale_check(const struct gn_text_list *entries, struct gn_err *err);
/* Of checked entries: the factor for the parameter of that name; 1 where none matches or entries is NULL. */
double gn_lr_scale_of(const struct gn_text_list *entries, const char *name);
/* Logs for each checked entry how many parameters of m it matches. GN_ERR_USAGE for one that matches none. log may be NULL. */
enum gn_status gn_lr_scale_match(const struct gn_text_list *entries, const struct gn_model *m, struct gn_log *log, struct gn_err *err);

#endif
