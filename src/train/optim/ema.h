/* The exponential moving average of a run's parameters and BN buffers: often a better network than the last one.
 *
 * After update number t: average = d * average + (1 - d) * value with d = min(decay, (1 + t) / (10 + t)), so that the first
 * values, which are noise, are soon forgotten (as tf.train.ExponentialMovingAverage does with num_updates). A pure function
 * of the updates: the same on all ranks.
 *
 * Thread safety: one thread; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_OPTIM_EMA_H
#define GN_TRAIN_OPTIM_EMA_H

#include "src/train/model/model.h"

struct gn_ema;

enum gn_status gn_ema_create(const struct gn_model *model, double decay, struct gn_ema **out, struct gn_err *err);
void gn_ema_destroy(struct gn_ema *e);
/* Begins with these values. */
void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers);
/* d after update number t. */
double gn_ema_decay(double decay, uint64_t t);
double gn_ema_decays_by(const struct gn_ema *e);
/* Takes in the values after update number t (1 for the first). */
void gn_ema_update(struct gn_ema *e, uint64_t t, const float *params, const float *buffers);
/* Exchanges the contents with params and buffers; done twice, all is as before. */
void gn_ema_swap(struct gn_ema *e, float *params, float *buffers);
/* The flat arrays. */
float *gn_ema_params(struct gn_ema *e);
float *gn_ema_buffers(struct gn_ema *e);

#endif
