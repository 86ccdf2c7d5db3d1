/* A compiled plan: operators in order, tensors between them, and the place of everything in one arena. Only plan*.c. */
#ifndef GN_TRAIN_PLAN_PLAN_INTERNAL_H
#define GN_TRAIN_PLAN_PLAN_INTERNAL_H

#include "src/train/plan/device.h"
#include "src/train/plan/plan.h"

#include "kernels/sliced_loss.h"

/* A piece of the arena that is in use from time first to time last, but for a gap, when there is one (gap_first <= gap_last), after
 * which it holds what is written into it then. Operator i runs forward at time i, the loss is at
 * time op_count, operator i runs backward at time 2 * op_count - i. */
struct gn_memory_planner {
	size_t bytes, offset;
	int first, last, gap_first, gap_last;
};

/* Of every offset: what libraries on GPUs expect of workspaces, and more than a cache line. */
#define GN_MEMORY_PLANNER_ALIGN_BYTES 256

/* Sets every offset so that pieces in use at the same time do not overlap; returns the bytes needed. Pieces of no bytes
 * take none. NO_MEMORY is the only failure. */
enum gn_status gn_memory_planner_place(struct gn_memory_planner *pieces, int count, size_t *total_bytes, struct gn_err *err);

struct gn_plan_tensor {
	struct gn_layout layout;
	int producer; /* operator, -1 for the images */
	int consumers, last_consumer;
	int data, grad, more_grad; /* storage; -1 for none; more_grad: a part of the gradient that the producer adds */
};

struct gn_plan_op {
	struct gn_op *op;
	struct gn_op_info info;
	enum gn_op_kind kind;
	int with_relu;
	int node; /* the last of those that run together */
	int core; /* the one with the parameters */
	int in[2], out; /* tensors; -1 for none */
	int param[2];   /* weight, bias in the model; -1 for none */
	int buffer;     /* running mean; the variance follows; -1 for none */
	int conv, norm; /* nodes of a convolution on weights of its own and of the batch norm in them; -1 for none */
	size_t own_weight, own_bias; /* elements of the plan's own */
	struct gn_op_conv_bn *conv_bn; /* of a batch norm, to the convolution after it; NULL: none */
	int workspace;  /* storage */
	int statistics; /* storage of a convolution's sums, here and at the batch norm that takes them; -1: none */
	int recomputes; /* the operator whose output, this one's first input, is made again before backward; -1: none */
	int adds[2];    /* the gradient of the input goes to temporary memory and is added */
	int gives_more[2]; /* it goes to the input's more_grad */
};

enum gn_plan_phase { GN_PHASE_NEW, GN_PHASE_FORWARD, GN_PHASE_LOSS };

enum { GN_PLAN_SLOTS = 2 }; /* a batch is used while the next one is copied */

/* A batch on its way to a device that computes beside the host. */
struct gn_plan_slot {
	char *pinned; /* labels, pair labels and lambdas, at crops_at crops, at images_at images or the crops' pixels */
	char *device; /* the same */
	struct gn_event *uploaded, *taken;
	int has_mixup;
};

struct gn_plan_batches {
	const void *images;	   /* host: of the batch that was staged, borrowed */
	struct gn_targets targets; /* of the batch that runs; on the device */
	int staged;		   /* a batch is; on a GPU its slot is next - 1 */
	/* The others: on a GPU. */
	struct gn_stream *upload;
	size_t crops_at, images_at, image_bytes; /* image_bytes: room for all images of a batch */
	int crops;		   /* images come so, and become values by pixels */
	struct gn_plan_pixels pixels;
	struct gn_plan_slot slots[GN_PLAN_SLOTS];
	int next;
	struct gn_buffer buffer;
	int32_t *labels;	   /* of the batch that runs: labels, pair labels, lambdas, each [batch] */
};

/* Positions first to end - 1: i < op_count is operator i forward, op_count the loss, 2 * op_count - i operator i backward. */
struct gn_plan_range {
	int first, end;
	int resumes;	 /* of the first, only what follows its exchange among ranks */
	int is_suspended; /* of the last, only what precedes it */
};

/* Compute: work between two moments at which something starts. Collective: an exchange among the ranks of options.group or options.tensor. */
struct gn_plan_part {
	struct gn_plan_group *group; /* NULL: a compute part, which has what follows these */
	struct gn_op_exchange exchange;
	void *values; /* on the device */
	struct gn_plan_range range;
	struct gn_replay *replay;
	struct gn_event *event; /* recorded after it; NULL: it completes no gradient */
};

struct gn_plan_parts {
	struct gn_plan_part *list;
	int count;
};

struct gn_plan {
	const struct gn_model *model;
	struct gn_plan_options options;
	float *params, *grads, *buffers;
	struct gn_weight_layout *weights; /* by parameter */
	float *own, *own_room; /* weights and biases of a frozen plan, and room for the largest weight */
	int frozen;
	int op_count, tensor_count, storage_count;
	struct gn_plan_op *ops;
	struct gn_plan_tensor *tensors;
	struct gn_op_conv_bn *conv_bns; /* by node */
	struct gn_memory_planner *storages;
	int scratch, temporary; /* storage */
	size_t arena_bytes;
	char *arena;
	int logits_tensor;
	float *logits;
	enum gn_plan_phase phase;
	struct gn_plan_device device, own_device; /* the second: opened by the plan, or unused */
	struct gn_buffer arena_buffer, weight_buffer; /* weight_buffer: of a frozen plan on a GPU */
	struct gn_plan_batches batches;
	struct gn_loss *loss;	/* on the device */
	struct gn_loss *losses; /* host: of each batch of a step */
	int loss_count;		/* in losses, not looked at yet */
	float *loss_rows;	/* scratch; NULL on the host */
	struct gn_buffer loss_buffer, numbers_buffer;
	double *loss_numbers;	/* of all ranks, of a slice that has a part of the classes, in inference their logits; else NULL */
	double loss_scale;
	int good_steps; /* since the loss scale last changed */
	/* Training: whole is a batch that is not cut where gradients are complete. */
	struct gn_plan_parts parts, whole;
	int is_cut; /* gradients are summed over ranks */
	/* What operators are bound to: the caller's arrays and own, or a frozen plan's copies. */
	struct {
		float *params, *grads, *buffers, *own;
	} bound;
	size_t own_elements;
	char mode[240];
};

/* plan_build.c: operators and tensors of p->model in order. plan_memory.c: storages, arena, and every operator bound.
 */
enum gn_status gn_plan_build(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_place(struct gn_plan *p, struct gn_err *err);
/* bn_folding.c: memory for the weights of a frozen plan. */
enum gn_status gn_bn_folding_place(struct gn_plan *p, struct gn_err *err);
/* Address of a storage; NULL for -1. */
void *gn_plan_address(const struct gn_plan *p, int storage);

/* Whether it runs beside the host. */
static inline int gn_plan_is_queued(const struct gn_plan *p)
{
	return gn_device_is_queued(p->device.device);
}
/* Whether it is the images that a tensor holds, whose gradient nobody wants. */
static inline int gn_plan_is_images(const struct gn_plan *p, const struct gn_plan_tensor *t)
{
	return t->producer < 0 && !gn_model_origin(p->model).node;
}
/* Of a plan that has a part of the logits. */
struct gn_class_slice gn_plan_classes(const struct gn_plan *p);
/* plan.c. accumulated as for gn_plan_run. */
enum gn_status gn_plan_queue(struct gn_plan *p, const struct gn_plan_range *range, uint64_t number, const float *accumulated,
			     struct gn_err *err);

/* plan_batch.c. Memory for batches on their way; what they need of the device. */
size_t gn_plan_batch_bytes(const struct gn_plan *p);
enum gn_status gn_plan_batches_init(struct gn_plan *p, struct gn_err *err);
void gn_plan_batches_release(struct gn_plan *p);
/* Queues the batch that was staged last to where operators read it. */
enum gn_status gn_plan_take_batch(struct gn_plan *p, struct gn_err *err);
/* Targets of a batch that was staged without; host memory. */
enum gn_status gn_plan_set_targets(struct gn_plan *p, const struct gn_targets *targets, struct gn_err *err);

/* plan_run.c. Of the batch that was taken, with its exchanges among ranks. */
enum gn_status gn_plan_queue_forward(struct gn_plan *p, uint64_t number, struct gn_err *err);
void gn_plan_parts_release(struct gn_plan *p);

static inline size_t gn_plan_aligned(size_t bytes)
{
	return (bytes + GN_DEVICE_ALIGN_BYTES - 1) / GN_DEVICE_ALIGN_BYTES * GN_DEVICE_ALIGN_BYTES;
}

#endif
