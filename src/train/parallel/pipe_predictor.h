/* Synthetic gradients of one cut of a decoupled pipeline (Jaderberg et al. 2017, "Decoupled Neural Interfaces using Synthetic Gradients"):
 * the gradient of a stage's output is predicted from that output and the labels, so that backward need not wait for the next stage. When the
 * next stage's gradient arrives, GN_PIPE_LAG micro-batches later, the predictor learns from it.
 *
 * The prediction of pixel p of an image with label y is A h[p] + b[y], where h[p] has the C channels of the pixel:
 *     A    C x C, a 1x1 convolution without bias; of more than 2048 channels its diagonal alone
 *     b    of each class an array as large as the output; where that is more than 2^20 floats for all classes, one number a channel
 * Both begin with zeros. With mixup b is lambda b[label] + (1 - lambda) b[pair label]; an image whose label is negative has none.
 * With the error e = gradient - prediction, and sums over the images and pixels of a micro-batch (normalised least mean squares, so that
 * no rate has to be chosen for a network):
 *     A += RATE * sum(e h^T) / sum(|h|^2); of a diagonal each number by the sums of its channel
 *     b[y] += RATE * sum over images of class y of e / max(1, their number), per channel the mean over pixels
 *
 * Thread safety: one thread; OpenMP threads work inside. The same bits whatever their number.
 */
#ifndef GN_TRAIN_PARALLEL_PIPE_PREDICTOR_H
#define GN_TRAIN_PARALLEL_PIPE_PREDICTOR_H

#include "kernels/op.h"

struct gn_pipe_predictor;

/* Micro-batches between a prediction and the gradient that it is compared with; in this time the next stage computes it. */
enum { GN_PIPE_LAG = 2 };

/* layout: of the output, floats, bfloat16, or the doubles of --device ref. */
enum gn_status gn_pipe_predictor_create(const struct gn_layout *layout, int classes, struct gn_pipe_predictor **out, struct gn_err *err);
/* NULL is fine. */
void gn_pipe_predictor_destroy(struct gn_pipe_predictor *p);
/* Bytes that it holds. */
size_t gn_pipe_predictor_bytes(const struct gn_pipe_predictor *p);
/* Micro-batch k, in order: copies what it needs. */
void gn_pipe_predictor_predict(struct gn_pipe_predictor *p, int k, const void *output, const struct gn_targets *targets);
/* Of the last prediction, in the layout; borrowed until the next. */
const void *gn_pipe_predictor_gradient(const struct gn_pipe_predictor *p);
/* The gradient of micro-batch k, in order, at most GN_PIPE_LAG after its prediction. *missed and *wanted: |gradient - prediction|^2 and
 * |gradient|^2, whose ratio is 1 where the prediction is no better than zeros. A gradient that is not finite is not learnt, and both are 0. */
void gn_pipe_predictor_learn(struct gn_pipe_predictor *p, int k, const void *gradient, double *missed, double *wanted);

#endif
