/* A compiled plan: operators in order, tensors between them, and where everything lies in one arena. Only plan*.c. */
#ifndef GN_TRAIN_PLAN_PLAN_INTERNAL_H
#define GN_TRAIN_PLAN_PLAN_INTERNAL_H

#include "src/train/plan/plan.h"

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

struct gn_plan_device;

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
	struct gn_op_link *link; /* of a batch norm, to the convolution behind it; NULL: none */
	int workspace;  /* storage */
	int statistics; /* storage of a convolution's sums, here and at the batch norm that takes them; -1: none */
	int recomputes; /* the operator whose output, this one's first input, is made again before backward; -1: none */
	int adds[2];    /* the gradient of the input goes to temporary memory and is added */
	int gives_more[2]; /* it goes to the input's more_grad */
};

#define GN_PLAN_NORM_EPS 1e-5

enum gn_plan_phase { GN_PHASE_NEW, GN_PHASE_FORWARD, GN_PHASE_LOSS };

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
	struct gn_op_link *links; /* by node */
	struct gn_memory_planner *storages;
	int scratch, temporary; /* storage */
	size_t arena_bytes;
	char *arena;
	int logits_tensor;
	float *logits;
	enum gn_plan_phase phase;
	struct gn_plan_device *device; /* NULL: the host */
	/* What operators are bound to: the caller's arrays and own, or a device's. */
	struct {
		float *params, *grads, *buffers, *own;
	} bound;
	size_t own_elements;
	char manner[240];
};

/* plan_build.c: operators and tensors of p->model in order. plan_memory.c: storages, arena, and every operator bound.
 */
enum gn_status gn_plan_build(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_place(struct gn_plan *p, struct gn_err *err);
/* plan_fold.c: memory for the weights of a frozen plan. */
enum gn_status gn_bn_folding_place(struct gn_plan *p, struct gn_err *err);
/* Address of a storage; NULL for -1. */
void *gn_plan_address(const struct gn_plan *p, int storage);

#endif
