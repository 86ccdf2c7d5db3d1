/* The exponential moving average of a run's parameters and BN buffers: often a better network than the last one.
 *
 * After update number t: average = d * average + (1 - d) * value with d = min(decay, (1 + t) / (10 + t)), so that the first
 * values, which are noise, are soon forgotten (as tf.train.ExponentialMovingAverage does with num_updates). A pure function
 * of the updates: the same on all ranks. The optimizer's update moves it (optimizer.h), on the device.
 *
 * Thread safety: one thread; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_OPTIM_EMA_H
#define GN_TRAIN_OPTIM_EMA_H

#include "src/device/array.h"
#include "src/train/model/model.h"
#include "src/train/optim/parts.h"

/* The averages, with their copies in host memory. Zeroed: there is none. */
struct gn_ema {
	double decay;
	struct gn_array params, buffers;
	const struct gn_parts *parts; /* of the parameters, params is packed; NULL: all of them */
};

/* parts: borrowed, or NULL. On failure *e is unused. */
enum gn_status gn_ema_init(struct gn_ema *e, const struct gn_model *model, double decay, const struct gn_parts *parts,
			   struct gn_device *device, struct gn_err *err);
void gn_ema_release(struct gn_ema *e);
/* d after update number t. */
double gn_ema_decay(double decay, uint64_t t);
/* In host memory: begins with these values. */
void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers);
/* In host memory, without parts: exchanges the contents with params and buffers; done twice, all is as before. */
void gn_ema_swap(struct gn_ema *e, float *params, float *buffers);

#endif
