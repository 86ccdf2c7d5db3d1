/* A plan's state on a GPU. Only plan_cuda*.c. */
#ifndef GN_TRAIN_PLAN_PLAN_CUDA_H
#define GN_TRAIN_PLAN_PLAN_CUDA_H

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/ops.h"
#include "src/train/plan/plan_internal.h"

enum { GN_PLAN_SLOTS = 2 }; /* a batch is used while the next one comes */

/* A batch on its way. */
struct gn_plan_slot {
	char *pinned; /* labels, pair labels and lambdas, at crops_at crops, at images_at images or the crops' pixels */
	char *device; /* the same */
	struct gn_cuda_event *uploaded, *taken;
	int has_mixup;
};

/* What a step leaves behind, in pinned memory. */
struct gn_plan_outcome {
	struct gn_cuda_loss loss; /* of a plan that does not stay */
	double sums[4 * 16];
	int32_t nonfinite;
};

struct gn_plan_cuda {
	struct gn_plan_device base;
	struct gn_cuda_device *device;
	struct gn_cuda_stream *stream, *upload, *download;
	struct gn_cuda_ops *ops;
	struct gn_cuda_arena *arena;
	enum gn_cuda_type type;
	size_t crops_at, images_at, image_bytes; /* of a batch on its way; image_bytes: room for all of its images */
	int crops; /* images come so, and become values by pixels */
	struct gn_plan_pixels pixels;
	struct gn_plan_slot slots[GN_PLAN_SLOTS];
	int next_slot, staged; /* staged: the slot to be taken; -1 for none */
	/* the batch that the step works on: labels, pair labels, lambdas, each batch elements of 4 bytes */
	int32_t *labels;
	int has_mixup;
	float *loss_rows;
	struct gn_cuda_loss *loss;
	int32_t *nonfinite;
	struct gn_plan_outcome *outcome;
	void *pinned_arrays[3]; /* of the caller, made known to the GPU */
	int stale;		/* frozen weights are to be sent again */
	/* by operator: its gradients are complete, and at home */
	struct gn_cuda_event **complete, **home;
	double loss_scale; /* 1 but for fp16 */
	int good_steps;	   /* since the scale last changed */
	/* of a run that stays: */
	int resident;
	struct gn_plan_update update;
	struct gn_cuda_arena *state; /* slots, buffers kept, sums */
	float *state_slots[GN_OPTIM_SLOTS_MAX], *kept_buffers;
	float *average_params, *average_buffers, *average_decay; /* NULL: none */
	struct gn_cuda_batch_norm sums, rest; /* of the gradient's squares; of those that make no whole row */
	struct gn_cuda_optim *optimizer;
	double grad_scale; /* of the step under way */
	/* of a step of several batches: */
	float *gathered;	       /* sums of the gradients of those before the last; NULL: one batch is a step */
	struct gn_cuda_loss *losses; /* pinned, of each batch */
	int batch;		       /* of the step, that comes next */
	struct gn_cuda_graph *gathering;
	/* recorded, when it has run once: */
	struct gn_plan_part *parts; /* a step, cut where gradients leave and without the update, or all of it; NULL: not recorded */
	int part_count, recording;
	int launches, gathers, eager; /* eager: it cannot be recorded */
	struct gn_cuda_event *last; /* of complete, the one that was recorded last; NULL: gradients do not leave */
	int *told, told_count; /* parameters in the order in which their gradients are ready, all parts' */
	size_t nodes;
};

/* What lies between two moments at which gradients leave. */
struct gn_plan_part {
	struct gn_cuda_graph *graph;
	struct gn_cuda_event *event; /* recorded behind it; NULL: none */
	int told_end;		     /* of the gradients that are ready then */
};

struct gn_plan_cuda *gn_plan_cuda_of(const struct gn_plan *p);

/* Of labels, pair labels and lambdas together, each 4 bytes. */
static inline size_t gn_plan_cuda_target_elements(const struct gn_plan *p)
{
	return 3 * (size_t)p->options.batch;
}

/* plan_cuda_memory.c. What gn_plan_mode tells: the device, this text, and what convolutions do of the batch norms before them. */
__attribute__((format(printf, 2, 3))) void gn_plan_cuda_say(struct gn_plan *p, const char *format, ...);
/* All memory, and p->bound. */
enum gn_status gn_plan_cuda_place(struct gn_plan *p, struct gn_err *err);
/* plan_cuda_batch.c */
/* Queues the upload of a batch into the next slot; targets NULL: images alone. */
enum gn_status gn_plan_cuda_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err);
/* Queues what was staged to where operators look for it, crops as values. */
enum gn_status gn_plan_cuda_take(struct gn_plan *p, struct gn_err *err);
/* plan_cuda.c. Queues the loss and its gradient. */
enum gn_status gn_plan_cuda_loss(struct gn_plan *p, struct gn_err *err);
/* Follows a step whose gradients were finite or not: the loss scale of fp16. Nonzero when it has changed. */
int gn_plan_cuda_rescale(struct gn_plan_cuda *d, int finite);
/* plan_cuda_record.c */
/* Gradients of operator i, count elements from offset on, are queued or recorded: with several ranks they may leave. */
enum gn_status gn_plan_cuda_leave(struct gn_plan *p, int i, size_t offset, size_t count, struct gn_err *err);
/* Queues a step: of one rank all of it, of several up to the update, and tells of its gradients. */
enum gn_status gn_plan_cuda_run(struct gn_plan *p, uint64_t step, struct gn_err *err);
/* Queues forward, loss and backward of a batch that is not its step's last. */
enum gn_status gn_plan_cuda_run_gathering(struct gn_plan *p, uint64_t number, struct gn_err *err);
void gn_plan_cuda_drop_recordings(struct gn_plan_cuda *d);
/* A step is not to be recorded, and why. */
void gn_plan_cuda_run_eagerly(struct gn_plan *p, const char *why);
/* plan_cuda_gather.c */
/* Memory for a step of several batches; nothing for others. */
enum gn_status gn_plan_cuda_gather_begin(struct gn_plan *p, struct gn_err *err);
void gn_plan_cuda_gather_end(struct gn_plan_cuda *d);
/* A batch of the step begins, first or not. */
enum gn_status gn_plan_cuda_begin_batch(struct gn_plan *p, uint64_t number, struct gn_err *err);
enum gn_status gn_plan_cuda_gather(struct gn_plan *p, uint64_t number, struct gn_err *err);
/* Queues: the batch's gradients to those gathered, and gathered ones to the last batch's, count from offset on. */
enum gn_status gn_plan_cuda_put_aside(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_cuda_join(struct gn_plan *p, size_t offset, size_t count, struct gn_err *err);
/* plan_cuda_stay.c */
/* Forward, loss, backward; what follows them; what the host is told. */
enum gn_status gn_plan_cuda_queue_gradients(struct gn_plan *p, uint64_t step, struct gn_err *err);
enum gn_status gn_plan_cuda_queue_update(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_cuda_queue_outcome(struct gn_plan *p, struct gn_err *err);
void gn_plan_cuda_stay_release(struct gn_plan_cuda *d);
enum gn_status gn_plan_cuda_reside(struct gn_plan *p, const struct gn_plan_update *update, struct gn_err *err);
enum gn_status gn_plan_cuda_push(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_cuda_pull(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_cuda_launch(struct gn_plan *p, uint64_t step, const struct gn_optim_update *u, struct gn_err *err);
enum gn_status gn_plan_cuda_gone_back(struct gn_plan *p, int *done, struct gn_err *err);
enum gn_status gn_plan_cuda_apply(struct gn_plan *p, struct gn_err *err);
enum gn_status gn_plan_cuda_result(struct gn_plan *p, struct gn_plan_result *out, struct gn_err *err);

#endif
