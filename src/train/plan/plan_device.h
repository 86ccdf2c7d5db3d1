/* What a plan does differently where its memory is a device's: the few places at which data comes and goes. Only plan*.c.
 *
 * A plan without a device works in the host's memory. With one, arena, parameters, gradients and buffers lie on the device;
 * the caller's arrays stay what counts and are copied, but for a resident plan between gn_plan_push and gn_plan_pull.
 */
#ifndef GN_TRAIN_PLAN_PLAN_DEVICE_H
#define GN_TRAIN_PLAN_PLAN_DEVICE_H

#include "src/train/plan/plan_internal.h"

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
