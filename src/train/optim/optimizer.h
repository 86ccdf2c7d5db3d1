/* The optimizer of a run: a rule, its state, and one update of all parameters of a model, on the device that they are on.
 *
 * Slots are flat arrays laid out as the parameters, or of this rank's parts of them. Biases and batch norm get no weight decay (unless decay_all is set) and no adaptation.
 * The norm of the whole gradient is measured before every update: it is what clipping needs, and it is not finite exactly
 * when some gradient is not, in which case nothing is updated. Gradients that are bit-identical on all ranks, as they are
 * after an allreduce, give the same decision and the same parameters on all ranks, whatever their numbers of threads.
 *
 * Thread safety: one thread; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_OPTIM_OPTIMIZER_H
#define GN_TRAIN_OPTIM_OPTIMIZER_H

#include "kernels/compute.h"
#include "src/base/option.h"
#include "src/device/array.h"
#include "src/train/model/model.h"
#include "src/train/optim/parts.h"

/* The exponential moving average of a run's parameters and BN buffers: often a better network than the last one.
 *
 * After update number t: average = d * average + (1 - d) * value with d = min(decay, (1 + t) / (10 + t)), so that the first
 * values, which are noise, are soon forgotten (as tf.train.ExponentialMovingAverage does with num_updates). A pure function
 * of the updates: the same on all ranks. The optimizer's update moves it, on the device.
 *
 * The averages, with their copies in host memory. Zeroed: there is none. */
struct gn_ema {
	double decay;
	struct gn_array params, buffers;
	const struct gn_parts *parts; /* of the parameters, params is packed; NULL: all of them */
};

/* parts: borrowed, or NULL. On failure *e is unused. */
enum gn_status gn_ema_init(struct gn_ema *e, const struct gn_model *model, double decay, const struct gn_parts *parts,
			   struct gn_device *device, struct gn_err *err);
void gn_ema_release(struct gn_ema *e);
/* In host memory: begins with these values. */
void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers);
/* In host memory, without parts: exchanges the contents with params and buffers; done twice, all is as before. */
void gn_ema_swap(struct gn_ema *e, float *params, float *buffers);

struct gn_optimizer;

struct gn_optimizer_options {
	const char *name; /* as gn_optim_find */
	double momentum, beta2, trust, weight_decay;
	double eps;  /* below 0: the optimizer's usual one, 1e-6 for lamb, 1e-8 for adamw and rmsprop, and 0 for lars */
	double clip; /* the norm of the whole gradient is at most this; 0: no bound */
	int nesterov, decay_all;
	const struct gn_text_list *lr_scale; /* lr.h, checked; NULL: none */
	const struct gn_text_list *freeze; /* fnmatch patterns of names of parameters that no update changes; NULL: none. One that matches
					    * nothing, or all of them together everything, is GN_ERR_USAGE */
};

/* What an update reads and writes: on the device, borrowed. */
struct gn_optimizer_arrays {
	float *params;
	const float *grads;	/* flat, as the parameters, with zeros between tensors */
	float *buffers;		/* sums over ranks, which become means; NULL: there is none */
	int ranks;
	const float *finite;	/* one more number without which nothing is updated, unless it is finite; NULL */
	const struct gn_ema *ema; /* moved by each update; NULL: none */
	/* Host: of the parameters only these parts are updated here, and ema has the same; NULL: all. group: of the ranks that update the
	 * others, of the same network: clipping is by the norm of all; an update is then collective and blocks. */
	const struct gn_parts *parts;
	struct gn_update_group *group;
	struct gn_update_group *parts_group; /* of those with other parts of the same tensors, where group has others, too; NULL: group */
	/* Host: parameters are updated elsewhere, and are so when an update is queued: it moves only averages, and makes means of buffers;
	 * grads are not read. no_slots: there is no state of them here. */
	int elsewhere, no_slots;
};

/* On the stream of compute. model and compute are borrowed. An unknown name and a combination that the rule does not know (LAMB with
 * Nesterov's momentum, or with moments that never decay) are GN_ERR_USAGE. */
enum gn_status gn_optimizer_create(const struct gn_model *model, const struct gn_optimizer_options *options,
				   const struct gn_optimizer_arrays *arrays, struct gn_compute *compute, struct gn_optimizer **out,
				   struct gn_err *err);
/* The errors of options alone; *kind is what they name. */
enum gn_status gn_optimizer_check(const struct gn_optimizer_options *options, enum gn_optim_kind *kind, struct gn_err *err);
void gn_optimizer_destroy(struct gn_optimizer *o);
enum gn_optim_kind gn_optimizer_kind(const struct gn_optimizer *o);
/* gn_model_param_elements floats for slot 0 .. gn_optim_slots(kind) - 1, or those of the parts, packed. */
const struct gn_array *gn_optimizer_slot(const struct gn_optimizer *o, int slot);

/* Queues an update, and the copy of its result. */
enum gn_status gn_optimizer_queue(struct gn_optimizer *o, const struct gn_optim_update *u, struct gn_err *err);
/* Of the update that was queued last, when its stream has been waited for. */
void gn_optimizer_result(const struct gn_optimizer *o, struct gn_update_result *out);
/* Both; blocks in between. */
enum gn_status gn_optimizer_step(struct gn_optimizer *o, const struct gn_optim_update *u, struct gn_update_result *out,
				 struct gn_err *err);

#endif
