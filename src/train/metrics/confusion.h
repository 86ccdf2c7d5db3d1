/* What a classifier takes for what: counts by class, precision and F1, and how far its confidence can be trusted.
 *
 * The prediction is the class with the highest logit, of equals the first, as in metrics.h; its confidence is its softmax probability.
 * An image with a logit that is not finite has no prediction, and counts as wrong. The calibration error is the expected one of Guo et
 * al. 2017 (arXiv 1706.04599, eq. 3): the mean over images of |accuracy - confidence| of their bin, of 15 bins of equal width.
 * Thread safety: an object belongs to one thread.
 */
#ifndef GN_TRAIN_METRICS_CONFUSION_H
#define GN_TRAIN_METRICS_CONFUSION_H

#include "data/shard/dataset.h"
#include "src/base/status.h"
#include "transport/coll/comm.h"

#include <stdint.h>

#define GN_CONFUSION_CLASSES_MAX 8192 /* 512 MiB of counts */

struct gn_confusion;

/* GN_ERR_UNSUPPORTED for more classes than that. */
enum gn_status gn_confusion_create(int classes, struct gn_confusion **out, struct gn_err *err);
void gn_confusion_destroy(struct gn_confusion *c);
/* Adds count rows of logits [count][classes] with their labels. */
void gn_confusion_add(struct gn_confusion *c, const float *logits, const int32_t *labels, uint32_t count);
/* Collective: every rank gets the sums over all. */
enum gn_status gn_confusion_sum(struct gn_confusion *c, struct gn_comm *comm, struct gn_err *err);
/* The unweighted mean of F1 over classes that have images or predictions; and the calibration error. 0 without images. */
double gn_confusion_macro_f1(const struct gn_confusion *c);
double gn_confusion_calibration_error(const struct gn_confusion *c);
/* Replaces path with a JSON object: "images", "macro_f1", "calibration_error", "classes" (name, images, predicted, accuracy, precision,
 * f1; null where nothing is divided by), "bins" (from, to, images, accuracy, confidence), and "confusion": a row a class with counts of
 * predictions. */
enum gn_status gn_confusion_write(const struct gn_confusion *c, const struct gn_dataset *names_of, const char *path, struct gn_err *err);
/* Appends the same for people: a line of text a class, in per cent, with the wrong prediction that it gets most often. */
void gn_confusion_text(const struct gn_confusion *c, const struct gn_dataset *names_of, struct gn_strbuf *out);

#endif
