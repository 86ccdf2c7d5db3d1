/* Weights of classes in the loss: --class-weights.
 *
 * The mean of the loss is over the weights of the global batch's labels, as torch's CrossEntropyLoss(weight) has it for one process: every
 * rank divides by its number of labels, the sums of weights travel with the gradients, and the step divides by them. One rank and several
 * with the same global batch therefore differ by rounding only. With mixup and cutmix it is divided by the number of labels, as torch
 * does for targets that are probabilities.
 *
 * Thread safety: pure functions. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_CLASS_WEIGHTS_H
#define GN_TRAIN_LOOP_CLASS_WEIGHTS_H

#include "data/shard/dataset.h"

/* Before any rank is contacted: that a file can be read and that the device is not "cuda", GN_ERR_USAGE. how may be NULL. */
enum gn_status gn_class_weights_check(const char *how, const char *device, struct gn_err *err);
/* Local. "balanced": count / (classes * count of the class), 0 for a class without images; else a text file of one number for each
 * class, in the order of the dataset's classes, separated by white space. GN_ERR_DATA: another count, a negative number, none above 0.
 * The caller frees *out, [classes]. */
enum gn_status gn_class_weights_load(const char *how, const struct gn_dataset *dataset, double **out, struct gn_err *err);

#endif
