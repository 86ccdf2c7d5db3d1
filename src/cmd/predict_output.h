/* How gannet predict writes what it is told: a table, JSON or CSV on standard output, and logits as a NumPy array. */
#ifndef GN_CMD_PREDICT_OUTPUT_H
#define GN_CMD_PREDICT_OUTPUT_H

#include "src/train/loop/predict.h"

struct gn_predict_output;

/* options is borrowed. */
enum gn_status gn_predict_output_create(const struct gn_predict_options *options, struct gn_log *log, struct gn_predict_output **out,
					struct gn_err *err);
/* Whatever was not finished of the array is removed. */
void gn_predict_output_destroy(struct gn_predict_output *p);
/* For struct gn_predict_sink; context is a struct gn_predict_output. */
enum gn_status gn_predict_output_begin(void *context, int classes, const char *names, struct gn_err *err);
enum gn_status gn_predict_output_image(void *context, const struct gn_prediction *image, struct gn_err *err);
/* After the last image: the array and its list of names appear under their names. */
enum gn_status gn_predict_output_finish(struct gn_predict_output *p, struct gn_err *err);

#endif
