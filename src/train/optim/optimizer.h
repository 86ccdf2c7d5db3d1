/* The optimizer of a run: a rule, its state, and one update of all parameters of a model.
 *
 * Slots are flat arrays laid out as the parameters. Biases and batch norm get no weight decay (unless told) and no adaptation.
 * The norm of the whole gradient is measured before every update: it is what clipping needs, and it is not finite exactly
 * when some gradient is not, in which case nothing is updated. Gradients that are bit-identical on all ranks, as they are
 * after an allreduce, give the same decision and the same parameters on all ranks, whatever their numbers of threads.
 *
 * Thread safety: one thread; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_OPTIM_OPTIMIZER_H
#define GN_TRAIN_OPTIM_OPTIMIZER_H

#include "kernels/optim.h"
#include "src/train/model/model.h"

struct gn_optimizer;

struct gn_optimizer_options {
	const char *name; /* as gn_optim_find */
	double momentum, beta2, trust, weight_decay;
	double eps;  /* below 0: the optimizer's usual one, 1e-6 for lamb and 0 for lars */
	double clip; /* the norm of the whole gradient is at most this; 0: no bound */
	int nesterov, decay_all;
};

/* model is borrowed. An unknown name and a combination that the rule does not know (LAMB with Nesterov's momentum, or with
 * moments that never decay) are GN_ERR_USAGE. */
enum gn_status gn_optimizer_create(const struct gn_model *model, const struct gn_optimizer_options *options,
				   struct gn_optimizer **out, struct gn_err *err);
void gn_optimizer_destroy(struct gn_optimizer *o);
enum gn_optim_kind gn_optimizer_kind(const struct gn_optimizer *o);
/* gn_model_param_elements floats for slot 0 .. gn_optim_slots(kind) - 1, NULL beyond. */
float *gn_optimizer_slot(struct gn_optimizer *o, int slot);
/* For an update that is made elsewhere: the rule and the options. Borrowed. */
struct gn_optimizer_terms {
	const struct gn_optim *rule;
	double weight_decay, clip;
	int decay_all;
};
void gn_optimizer_terms(const struct gn_optimizer *o, struct gn_optimizer_terms *out);
/* One update. Returns 1, or 0 when a gradient is not finite and nothing was changed. *norm: of the whole gradient times
 * grad_scale, before clipping. */
int gn_optimizer_step(struct gn_optimizer *o, const struct gn_optim_update *update, float *params, const float *grads,
		      double *norm);

#endif
