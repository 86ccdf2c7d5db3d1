/* A model compiled for one device, batch and mode: tensors allocated, primitives made, ready to run steps.
 *
 * Parameters, gradients and BN buffers are flat fp32 arrays that the caller owns (offsets in gn_param), so that the optimizer,
 * the allreduce and the checkpoint see one array each. Weights lie in them in torch's order, or as the plan likes them when it
 * is asked (src/train/plan/weight_layouts.h). The plan reads parameters at each forward and writes gradients at backward (overwriting,
 * mean over the batch). Backward reports, parameter by parameter from the last layer to the first, when a gradient is
 * complete; only a batch norm that runs together with the sum behind it comes before the projection that is added.
 *
 * Calls come as forward, loss, backward; another order is GN_ERR_USAGE. Several plans may share params and buffers (one
 * to train, one to evaluate) as long as one runs at a time. Nothing is allocated after creation. Thread safety: one
 * thread drives a plan; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_PLAN_PLAN_H
#define GN_TRAIN_PLAN_PLAN_H

#include "kernels/op.h"
#include "kernels/optim.h"
#include "src/base/crop.h"
#include "src/train/model/model.h"

struct gn_plan;

/* Who wants to know when operators of a model's node ran: times of gn_clock_ns. Called by the thread that drives the plan. */
struct gn_plan_profiler {
	void (*ran)(void *context, int node, int backward, uint64_t began_ns, uint64_t ended_ns);
	void *context;
};

/* How pixels become values, by channel: value = (pixel / 255 - mean) / deviation. */
struct gn_plan_pixels {
	float mean[3], deviation[3];
};

struct gn_plan_options {
	enum gn_backend backend; /* plain-C oracle in double precision, oneDNN, or a GPU */
	int batch;
	int training;           /* batch statistics, dropout and backward; or inference */
	double label_smoothing; /* 0 .. 1 */
	/* Activations and their gradients are bfloat16, but for the classifier; sums are made in float or double, and all that is
	 * outside (parameters, their gradients, buffers, images, logits) is float. */
	int bf16;
	int emulate;            /* with bf16, host: also on a processor that has no instructions for it; refused otherwise */
	int fp16, tf32;         /* GPU: activations in half precision, with a loss scale; products of floats rounded to tf32 */
	int gpu;                /* GPU: which; numbers beyond the last start over, for ranks that share */
	int tune;               /* GPU: the fastest of several algorithms is found by the clock while the plan is made */
	/* GPU, three channels: images come as crops and become values there. Read while the plan is made; NULL: as floats. */
	const struct gn_plan_pixels *pixels;
	int frozen;             /* inference on weights that gn_plan_freeze took: batch norm goes into convolutions */
	int no_memory;          /* the plan answers questions and cannot run; the arrays may be NULL */
	int keep;               /* host: what batch norms give stays in memory until backward, and is not made again */
	int dropout;            /* 0 turns dropout off in training too */
	uint64_t seed;          /* for dropout masks; give every rank its own */
	const struct gn_plan_profiler *watch; /* borrowed; NULL: nobody looks */
	/* By parameter, how weights and their gradients lie; GN_WEIGHT_ANY: as the plan likes; NULL: torch's order. Read while the
	 * plan is made. */
	const struct gn_weight_layout *weights;
	const struct gn_op_group *group; /* batch statistics in training over several ranks; borrowed; NULL: own ones */
};

/* params, grads and buffers: flat arrays of gn_model_*_elements floats, borrowed; grads may be NULL in inference. Works
 * with as many OpenMP threads as are set now. An image too small for the network is GN_ERR_USAGE, a plan larger than
 * this machine's memory GN_ERR_NO_MEMORY. */
enum gn_status gn_plan_create(const struct gn_model *model, const struct gn_plan_options *options, float *params,
			      float *grads, float *buffers, struct gn_plan **out, struct gn_err *err);
void gn_plan_destroy(struct gn_plan *p);

/* A plan with options.frozen takes the parameters and buffers as they are now; until then a forward is GN_ERR_USAGE. Results
 * differ from those of a plan without by rounding. Others need not be told. Should the backend fail, the plan is not frozen, as a
 * forward tells. */
void gn_plan_freeze(struct gn_plan *p);
/* images: float [batch][channels][side][side], or where options.pixels struct gn_crop [batch], of which none has more than
 * gn_crop_room_bytes(side, side); logits [batch][classes], borrowed, valid until the next call. step numbers dropout masks and is
 * otherwise unused. Training mode updates the BN buffers. */
enum gn_status gn_plan_forward(struct gn_plan *p, const void *images, uint64_t step, const float **logits,
			       struct gn_err *err);
/* After a forward: mean cross entropy over the labels that are >= 0 (with label smoothing), and the start of backward.
 */
enum gn_status gn_plan_loss(struct gn_plan *p, const int32_t *labels, double *loss, struct gn_err *err);
/* The same for images that were mixed. */
enum gn_status gn_plan_loss_mixed(struct gn_plan *p, const struct gn_targets *targets, double *loss, struct gn_err *err);
/* ready(context, param) is called when the gradient of that parameter (index in the model) is final; may be NULL. */
enum gn_status gn_plan_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				struct gn_err *err);
/* --- A run that stays on its device: the caller's arrays are looked at only by push and pull. A batch is staged while the one before
 * it runs. Of a step of several batches the last is launched, and those before it are gathered. Several processes sum gradients where these lie: each is told as soon as it is
 * queued, and the update waits for gn_plan_apply. --- */

struct gn_plan_update {
	const struct gn_optim *rule;
	float *slots[GN_OPTIM_SLOTS_MAX]; /* borrowed: flat arrays as params, pushed and pulled with them */
	double weight_decay;
	int decay_all; /* biases and batch norm, too */
	double clip;   /* gradients longer than that become as long; 0: they stay */
	/* Moving average of parameters and buffers, with the decay of ema.h; borrowed, pushed and pulled as slots are. NULL: none */
	float *average_params, *average_buffers;
	double average_decay;
	int batches;   /* whose gradients make a step; 0 is 1 */
	int ranks;     /* whose gradients and buffers are summed before an update; below 2 there is none to wait for */
	/* With more: the gradient of this parameter is queued. event: what will be recorded behind it, as gn_reducer_after takes
	 * it. */
	void (*ready)(void *context, int param, void *event);
	/* Whether something may leave when this one is there: between such moments a step is recorded in one piece. */
	int (*cuts)(void *context, int param);
	void *context;
};

struct gn_plan_result {
	double loss, norm; /* loss: the mean over the step's batches. norm: of the gradient times the update's grad_scale, before clipping */
	int skipped;	   /* something was not finite: parameters, state and buffers are as before */
};

/* Makes a training plan on a GPU such a one. GN_ERR_UNSUPPORTED elsewhere. With a group of ranks each batch norm waits for the device,
 * for the group's sums are the host's. */
enum gn_status gn_plan_reside(struct gn_plan *p, const struct gn_plan_update *update, struct gn_err *err);
/* The caller's parameters, buffers and slots to the device, and back. Blocks. */
enum gn_status gn_plan_push(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_pull(struct gn_plan *p, struct gn_err *err);
/* The batch that the next launch takes, images as for a forward pass; the arrays may be reused at once. */
enum gn_status gn_plan_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err);
/* Queues a batch, the one that was staged last, that is not its step's last: its gradients wait for those of the last. number: as
 * step for gn_plan_launch. */
enum gn_status gn_plan_gather(struct gn_plan *p, uint64_t number, struct gn_err *err);
/* Queues the whole step on the batch that was staged last, or with several ranks what comes before the update. step numbers dropout
 * masks: another for each batch. u->grad_scale is the caller's own, for the sum over all batches and ranks; the loss scale is
 * added. GN_ERR_USAGE when other than update.batches - 1 were gathered. */
enum gn_status gn_plan_launch(struct gn_plan *p, uint64_t step, const struct gn_optim_update *u, struct gn_err *err);
/* Several ranks: what is to be summed, device memory of floats, gradients and behind them buffers. Until the plan is destroyed. */
float *gn_plan_sums(const struct gn_plan *p);
/* Several ranks: *done is whether all gradients of the step that was launched are there. */
enum gn_status gn_plan_went_back(struct gn_plan *p, int *done, struct gn_err *err);
/* Several ranks, when everything is summed: queues the update. Buffers become the mean. */
enum gn_status gn_plan_apply(struct gn_plan *p, struct gn_err *err);
/* Blocks until that step is through. */
enum gn_status gn_plan_result(struct gn_plan *p, struct gn_plan_result *out, struct gn_err *err);
/* The number of its GPU, -1 on the host. */
int gn_plan_gpu(const struct gn_plan *p);
/* How steps run on a device, for people: "as one graph of 423 nodes"; "" on the host. */
const char *gn_plan_mode(const struct gn_plan *p);

/* By parameter, how weights and their gradients have to lie. */
const struct gn_weight_layout *gn_plan_weights(const struct gn_plan *p);
/* Bytes held for activations, their gradients and workspace (the arena; memory is shared by what is not needed at
 * once). */
size_t gn_plan_bytes(const struct gn_plan *p);

#endif
