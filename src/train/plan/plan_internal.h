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

struct gn_plan;
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
	struct gn_op_conv_bn *conv_bn; /* of a batch norm, to the convolution behind it; NULL: none */
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
	struct gn_op_conv_bn *conv_bns; /* by node */
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

/* A plan on the host works in the host's memory. On a device, arena, parameters, gradients and buffers are in the device's memory; the
 * caller's arrays stay authoritative and are copied, except between gn_plan_push and gn_plan_pull of a resident plan. */
struct gn_plan_device_class {
	void (*destroy)(struct gn_plan_device *d);
	/* After storages are placed: takes memory, sets p->arena and p->bound. */
	enum gn_status (*place)(struct gn_plan *p, struct gn_err *err);
	/* Frozen weights have changed. */
	void (*freeze)(struct gn_plan *p);
	/* Before a forward pass: images and whatever else it reads. */
	enum gn_status (*load)(struct gn_plan *p, const void *images, uint64_t step, struct gn_err *err);
	/* After it: p->logits. */
	enum gn_status (*store)(struct gn_plan *p, struct gn_err *err);
	enum gn_status (*loss)(struct gn_plan *p, const struct gn_targets *targets, double *loss, struct gn_err *err);
	/* to += from, both in layout l. */
	enum gn_status (*add)(struct gn_plan *p, const struct gn_layout *l, const void *from, void *to, struct gn_err *err);
	/* Operator i ran backward: its gradients may leave. */
	enum gn_status (*went_back)(struct gn_plan *p, int i, struct gn_err *err);
	/* After the last one: waits, and reports parameters in the order in which their gradients were ready. */
	enum gn_status (*finish)(struct gn_plan *p, void (*ready)(void *context, int param), void *context, struct gn_err *err);
	/* The calls of plan.h with the same names. */
	enum gn_status (*reside)(struct gn_plan *p, const struct gn_plan_update *update, struct gn_err *err);
	enum gn_status (*push)(struct gn_plan *p, struct gn_err *err);
	enum gn_status (*pull)(struct gn_plan *p, struct gn_err *err);
	enum gn_status (*stage)(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err);
	enum gn_status (*gather)(struct gn_plan *p, uint64_t number, struct gn_err *err);
	enum gn_status (*launch)(struct gn_plan *p, uint64_t step, const struct gn_optim_update *u, struct gn_err *err);
	enum gn_status (*gone_back)(struct gn_plan *p, int *done, struct gn_err *err);
	enum gn_status (*apply)(struct gn_plan *p, struct gn_err *err);
	enum gn_status (*result)(struct gn_plan *p, struct gn_plan_result *out, struct gn_err *err);
};

/* First member of a device's own struct. */
struct gn_plan_device {
	const struct gn_plan_device_class *class;
	struct gn_op_device *ops; /* for its operators */
	int ordinal;
};

/* Forward and backward as operators, without what comes before and after. */
enum gn_status gn_plan_run_forward(struct gn_plan *p, uint64_t step, struct gn_err *err);
enum gn_status gn_plan_run_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				    struct gn_err *err);

/* plan_cuda.c; without CUDA in the build GN_ERR_UNSUPPORTED. */
enum gn_status gn_plan_cuda_create(const struct gn_plan *p, struct gn_plan_device **out, struct gn_err *err);

#endif
