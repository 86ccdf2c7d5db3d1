/* The logits of gannet predict as a NumPy array that grows row by row, and beside it the list of names, one a line. */
#ifndef GN_CMD_PREDICT_ARRAY_H
#define GN_CMD_PREDICT_ARRAY_H

#include "src/train/loop/predict.h"

struct gn_predict_array;

/* path: FILE.npy; the names go to FILE.names.txt. Both are written beside them until gn_predict_array_finish(). */
enum gn_status gn_predict_array_create(const char *path, int classes, struct gn_predict_array **out, struct gn_err *err);
/* Removes what is not finished. NULL is fine. */
void gn_predict_array_destroy(struct gn_predict_array *a);
/* A row of NaN for an image with a problem. A line break in a name becomes a space. */
enum gn_status gn_predict_array_add(struct gn_predict_array *a, const struct gn_prediction *image, struct gn_err *err);
enum gn_status gn_predict_array_finish(struct gn_predict_array *a, struct gn_err *err);

#endif
