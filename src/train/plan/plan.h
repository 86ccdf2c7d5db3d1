/* A model compiled for one device, batch and mode: tensors allocated, operators created, ready to run steps.
 *
 * Parameters, gradients and BN buffers are flat fp32 arrays on the plan's device that the caller owns (offsets in gn_param), so that the
 * optimizer, the allreduce and the checkpoint see one array each. Weights are in torch's order, or in the plan's own order when it is
 * asked (src/train/plan/weight_layouts.h). A frozen plan takes its parameters and buffers from the host's memory instead, once.
 *
 * A training step is a list of parts: compute parts of forward, loss and backward, that are cut where gradients have to be complete, and
 * collective parts where the ranks of options.group sum batch statistics, or those of options.tensor exchange values. A device that records
 * graphs replays compute parts. A batch is staged while the one before it runs. Backward reports, parameter by parameter from the last layer
 * to the first, when a gradient is complete; only a batch norm that runs together with the sum behind it comes before the projection that is
 * added.
 *
 * Several plans may share arrays as long as one runs at a time. Nothing is allocated after creation. Thread safety: one thread drives a
 * plan; OpenMP threads work inside.
 */
#ifndef GN_TRAIN_PLAN_PLAN_H
#define GN_TRAIN_PLAN_PLAN_H

#include "src/base/crop.h"
#include "src/train/model/model.h"
#include "src/train/plan/options.h"

struct gn_plan;
struct gn_event;

/* params, grads and buffers: flat arrays of gn_model_*_elements floats, borrowed; of a frozen plan in host memory, else on its device;
 * grads may be NULL in inference. Works with as many OpenMP threads as are set now. An image too small for the network is GN_ERR_USAGE, a
 * plan larger than the device's memory GN_ERR_NO_MEMORY. */
enum gn_status gn_plan_create(const struct gn_model *model, const struct gn_plan_options *options, float *params,
			      float *grads, float *buffers, struct gn_plan **out, struct gn_err *err);
void gn_plan_destroy(struct gn_plan *p);

/* A plan with options.frozen takes the parameters and buffers as they are now; until then a forward is GN_ERR_USAGE. Results
 * differ from those of another plan by rounding. For other plans it does nothing. */
enum gn_status gn_plan_freeze(struct gn_plan *p, struct gn_err *err);

/* --- One batch, call by call: forward, loss, backward; another order is GN_ERR_USAGE. Each blocks until it has happened. --- */

/* images: float [batch][channels][side][side], or where options.pixels struct gn_crop [batch], of which none has more than
 * gn_crop_room_bytes(side, side); logits [batch][classes], host, borrowed, valid until the next call (of
 * a part that is not the last NULL: gn_plan_output). number is that of the batch, for
 * dropout masks. Training mode updates the BN buffers. */
enum gn_status gn_plan_forward(struct gn_plan *p, const void *images, uint64_t number, const float **logits,
			       struct gn_err *err);
/* After a forward: mean cross entropy over the labels that are >= 0 (with label smoothing), and the start of backward.
 */
enum gn_status gn_plan_loss(struct gn_plan *p, const int32_t *labels, double *loss, struct gn_err *err);
/* The same for images that were mixed. */
enum gn_status gn_plan_loss_mixed(struct gn_plan *p, const struct gn_targets *targets, double *loss, struct gn_err *err);
/* ready(context, param) is called when the gradient of that parameter (index in the model) is queued; may be NULL. */
enum gn_status gn_plan_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				struct gn_err *err);

/* --- Training steps: queued. Sums over ranks and the update are the caller's, on the same stream. --- */

/* What a run reports while it is queued. */
struct gn_plan_observer {
	void (*loss)(void *context); /* forward and loss are queued; on a device that records parts, more than that. NULL: not wanted */
	/* The gradient of this parameter is queued, and complete when the event is done. NULL: not wanted, and the batch runs in one part
	 * where that is faster. */
	void (*ready)(void *context, int param, struct gn_event *event);
	/* Forward reads this parameter next: returns when it may. A failure ends the run. NULL: all may be read. */
	enum gn_status (*needs)(void *context, int param, struct gn_err *err);
	void *context;
};

/* Where to cut backward: cuts(context, param) is whether something starts when this gradient is complete. NULL: nowhere. To be called
 * again when that changes; without a call, nowhere. */
enum gn_status gn_plan_cut(struct gn_plan *p, int (*cuts)(void *context, int param), void *context, struct gn_err *err);
/* The batch that the next run takes. On a device that computes beside the host the arrays may be reused at once, else they are borrowed
 * until the run returns. May block for the batch that was staged two before it. */
enum gn_status gn_plan_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err);
/* Queues forward, loss and backward of the batch that was staged last, of a training plan. number: another for each batch, for dropout
 * masks. accumulated: a flat array of gradients that are added to this batch's before they are reported; NULL: none. */
enum gn_status gn_plan_run(struct gn_plan *p, uint64_t number, const struct gn_plan_observer *observer, const float *accumulated,
			   struct gn_err *err);

/* --- Steps of a part of a network (gn_model_part): forward and backward by themselves, in one plan for each batch in flight. For the stages
 * of a pipeline --- */

/* As gn_plan_run, without backward: the loss is the last part's. What was staged for a part that is not the first is its input, in the
 * layout of options.input. */
enum gn_status gn_plan_run_forward(struct gn_plan *p, uint64_t number, const struct gn_plan_observer *observer, struct gn_err *err);
/* After it, backward. gradient: of the output, in its layout, on the device; NULL of the last part. */
enum gn_status gn_plan_run_backward(struct gn_plan *p, const void *gradient, const struct gn_plan_observer *observer, const float *accumulated,
				    struct gn_err *err);
/* The output of a part that is not the last one, on the device: its layout, and its values after a forward. The gradient of the input of
 * one that is not the first, in the input's layout, after backward. Borrowed until the next call. */
const struct gn_layout *gn_plan_output_layout(const struct gn_plan *p);
const void *gn_plan_output(const struct gn_plan *p);
const void *gn_plan_input_gradient(const struct gn_plan *p);
/* Of what gn_plan_stage takes of a part, on the host. */
size_t gn_plan_input_bytes(const struct gn_plan *p);

/* After the device has been waited for: whether the labels of all batches since the last call were classes; else GN_ERR_DATA. */
enum gn_status gn_plan_check_labels(struct gn_plan *p, struct gn_err *err);
/* What gradients are larger by, so that half precision holds them; 1 but for fp16. */
double gn_plan_loss_scale(const struct gn_plan *p);
/* After a step whose gradients were finite or not: another loss scale for the next, where that helps. */
void gn_plan_adjust_loss_scale(struct gn_plan *p, int finite);
/* From the next run on: who is told of operators; borrowed; NULL: nobody. */
void gn_plan_profile(struct gn_plan *p, const struct gn_plan_profiler *profiler);
/* What is recorded of training steps. */
struct gn_plan_graphs {
	int graphs;   /* 0: none yet, or the device records nothing */
	size_t nodes; /* kernels and copies in all of them */
	const char *obstacle; /* why a part is called instead; "" where nothing is known; borrowed until the next call */
};
struct gn_plan_graphs gn_plan_graphs(const struct gn_plan *p);
/* How steps run on a device, for people: "on NVIDIA H100, a step as one graph of 423 nodes"; "" on the host. Valid until the next call. */
const char *gn_plan_mode(struct gn_plan *p);

/* The device it runs on, its own or the options'. */
const struct gn_plan_device *gn_plan_device(const struct gn_plan *p);
/* By parameter, the layout of weights and their gradients. */
const struct gn_weight_layout *gn_plan_weights(const struct gn_plan *p);
/* Bytes held for activations, their gradients and workspace (the arena; memory is shared by what is not needed at
 * once). */
size_t gn_plan_bytes(const struct gn_plan *p);

#endif
