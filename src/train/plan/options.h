/* How a plan computes: device, precision, training or inference. */
#ifndef GN_TRAIN_PLAN_OPTIONS_H
#define GN_TRAIN_PLAN_OPTIONS_H

#include "kernels/op.h"

struct gn_plan_device;
struct gn_stream;

/* What begins or has ended on the plan's stream. A pass may begin and end several times in a step: around sums over ranks, and where an
 * output is recomputed in backward. */
struct gn_plan_mark {
	int op;	      /* as in plan_cost.h; the loss is gn_plan_op_count() */
	int node;     /* of the model; -1: the loss */
	int backward; /* 0: forward */
	int ended;
};

/* Is told of each operator, by the thread that drives the plan. On the host the operator runs between the two calls. On a GPU it is queued
 * between them: an event that is recorded in the call has its time, and steps are not replayed as graphs. */
struct gn_plan_profiler {
	void (*mark)(void *context, const struct gn_plan_mark *mark);
	void *context;
};

/* How pixels become values, by channel: value = (pixel / 255 - mean) / deviation. */
struct gn_plan_pixels {
	float mean[3], deviation[3];
};

/* Ranks that run the same plan together, and exchange values between its parts; the first member of what implements it (group_sums.h). */
struct gn_plan_group {
	int members;
	/* Collective: values, on the device of s, [count], or of gathers and scatters [members * count], become what x says: of what earlier
	 * work of s has made them, for what is queued on s later. May block. */
	enum gn_status (*exchange)(struct gn_plan_group *g, struct gn_stream *s, const struct gn_op_exchange *x, void *values, struct gn_err *err);
};

struct gn_plan_options {
	enum gn_backend backend; /* plain-C oracle in double precision, oneDNN, or a GPU */
	/* The device that it runs on, of that backend; borrowed, outlives the plan. NULL: one of the plan's own. */
	const struct gn_plan_device *device;
	int batch;
	int training;           /* batch statistics, dropout and backward; or inference */
	double label_smoothing; /* 0 .. 1 */
	const double *class_weights; /* host: as gn_targets has them; borrowed; NULL: none */
	/* Activations and their gradients are bfloat16, but for the classifier; sums are made in float or double, and all that is
	 * outside (parameters, their gradients, buffers, images, logits) is float. */
	int bf16;
	enum gn_convolution convolution; /* host */
	int emulate;            /* with bf16, host: also on a processor that has no instructions for it; refused otherwise */
	int fp16, tf32;         /* GPU: activations in half precision, with a loss scale; products of floats rounded to tf32 */
	int gpu;                /* GPU: which; numbers beyond the last start over, for ranks that share */
	int tune;               /* GPU: the fastest of several algorithms is found by the clock while the plan is made */
	int any_order;          /* GPU: engines of cuDNN that sum in an order of their own in each run are allowed */
	/* GPU, three channels: images come as crops and become values there. Read while the plan is created; NULL: as floats. */
	const struct gn_plan_pixels *pixels;
	int frozen;             /* inference on weights that gn_plan_freeze took: batch norm is folded into convolutions */
	int no_memory;          /* the plan answers questions and cannot run; the arrays may be NULL */
	int keep;               /* host: outputs of batch norms are kept until backward instead of being recomputed */
	int dropout;            /* 0 turns dropout off in training too */
	double drop_path;       /* probability that stochastic depth drops the last block of an image, 0 .. 1 */
	uint64_t seed;          /* for dropout masks and stochastic depth; give every rank its own */
	const struct gn_plan_profiler *profiler; /* borrowed; NULL: none */
	/* Training: where each batch adds its share, 1 / batches, of its loss, for batches of a step (0 is 1); on the device, borrowed. NULL:
	 * nowhere. */
	float *mean_loss;
	float *correct;         /* the same of the fraction that is correct, as gn_compute_loss() has it */
	float *mean_weight;	      /* the same of gn_targets_mean_weight; host */
	int batches;
	double share; /* of a batch in a step's mean loss; 0: 1 / batches */
	/* By parameter, the layout of weights and their gradients; GN_WEIGHT_ANY: the plan chooses; NULL: torch's order. Read while the
	 * plan is made. */
	const struct gn_weight_layout *weights;
	/* Training steps: batch statistics are summed over this group between parts; borrowed, outlives the plan; NULL: own ones. Such a plan
	 * only runs steps. */
	struct gn_plan_group *group;
	/* Of a slice of a network (gn_model_slice): the ranks that have the others; as group, but that a forward pass of such a plan in inference
	 * is collective, and gives all logits. */
	struct gn_plan_group *tensor;
	/* Of a part of a network that is not its first one: the layout of what comes in, which is gn_plan_output_layout of the part before.
	 * Read while the plan is made. */
	const struct gn_layout *input;
};

#endif
