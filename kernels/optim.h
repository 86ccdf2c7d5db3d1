/* Optimizer updates on flat arrays: SGD, LARS, LAMB, AdamW and RMSprop behind one interface, and the sums they need.
 *
 * An optimizer is a rule (struct gn_optim) without state; its state is in slots, flat arrays laid out as the parameters, initially
 * zero. Every tensor is updated separately, because weight decay and adaptation differ between tensors, and LARS and LAMB need a
 * tensor's norm. With g = grad_scale * grad, d = weight_decay, and lr the update's rate times the tensor's lr_scale:
 *
 * sgd   g += d p; slot0 = momentum * slot0 + g; p -= lr * slot0, or with Nesterov p -= lr * (g + momentum * slot0).
 *         torch.optim.SGD with dampening 0.
 * lars  r = trust * |p| / (|g| + d |p| + eps), 1 where a norm is 0 or the tensor is not adapted;
 *         slot0 = momentum * slot0 + r lr (g + d p); p -= slot0, or with Nesterov p -= momentum * slot0 + r lr (g + d p).
 *         You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks", with eps as in MLPerf.
 * lamb  slot0 = momentum * slot0 + (1 - momentum) g; slot1 = beta2 * slot1 + (1 - beta2) g^2;
 *         u = m / (sqrt(v) + eps) + d p with m = slot0 / (1 - momentum^step), v = slot1 / (1 - beta2^step);
 *         p -= lr * r * u with r = |p| / |u|, 1 as above. You et al. 2020, "Large batch optimization for deep learning".
 * adamw lamb with r = 1: torch.optim.AdamW. Not on GPUs.
 * rmsprop  g += d p; slot1 = beta2 * slot1 + (1 - beta2) g^2; slot0 = momentum * slot0 + g / (sqrt(slot1) + eps); p -= lr * slot0.
 *         torch.optim.RMSprop with alpha = beta2. Not on GPUs.
 *
 * Results do not depend on the number of threads: sums are split by size only. Thread safety: different threads may update tensors
 * that do not overlap.
 */
#ifndef GN_KERNELS_OPTIM_H
#define GN_KERNELS_OPTIM_H

#include <stddef.h>
#include <stdint.h>

enum gn_optim_kind { GN_OPTIM_SGD, GN_OPTIM_LARS, GN_OPTIM_LAMB, GN_OPTIM_ADAMW, GN_OPTIM_RMSPROP };
#define GN_OPTIM_SLOTS_MAX 2

struct gn_optim {
	enum gn_optim_kind kind;
	double momentum; /* LAMB, AdamW: beta 1; SGD with 0 does not access its slot */
	double beta2;	 /* LAMB, AdamW, RMSprop */
	double eps;	 /* all but SGD */
	double trust;	 /* LARS */
	int nesterov;	 /* SGD, LARS */
};

/* Values common to all tensors of an update. */
struct gn_optim_update {
	double lr;
	double grad_scale; /* factor of the gradients: 1 / ranks for sums over ranks, smaller with clipping */
	uint64_t step;	   /* number of this update, from 1 */
};

struct gn_optim_tensor {
	float *params;
	const float *grads;
	float *slots[GN_OPTIM_SLOTS_MAX];
	size_t count;
	double weight_decay;
	int adapt; /* 0: trust ratio 1, as for biases and batch norm */
	double lr_scale; /* factor of the update's rate for this tensor */
};

/* "sgd", "lars", "lamb", "adamw", "rmsprop"; gn_optim_find() returns -1 for anything else. */
const char *gn_optim_name(enum gn_optim_kind kind);
int gn_optim_find(const char *name);
/* Number of slots, and the name of each in a checkpoint ("momentum", "variance"). */
int gn_optim_slots(enum gn_optim_kind kind);
const char *gn_optim_slot_name(int slot);

void gn_optim_step(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t);
/* The same in two halves, for a tensor in pieces: sums over a piece, which are to be added up over all of them, and the update by the
 * totals. The first updates LAMB's and AdamW's slots; SGD and RMSprop need no sums. */
void gn_optim_sums(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, double sums[2]);
void gn_optim_apply(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_optim_tensor *t, const double sums[2]);

/* Sum of squares in double, with only double's rounding; non-finite if and only if an element is. Bitwise equal for any number of
 * threads. */
double gn_sum_squares(const float *x, size_t count);

/* average = decay * average + (1 - decay) * values. */
void gn_average_step(float *average, const float *values, size_t count, double decay);

#endif
