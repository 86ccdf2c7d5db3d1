/* What the files of a step share. Included by step*.c alone. */
#ifndef GN_TRAIN_LOOP_STEP_INTERNAL_H
#define GN_TRAIN_LOOP_STEP_INTERNAL_H

#include "src/train/loop/step.h"

/* A step under way. */
struct gn_running_step {
	struct gn_replica *r;
	const struct gn_train_step *step;
	struct gn_interval *sums;
	int is_queued;	     /* the device computes beside the host */
	uint32_t micro;	     /* of a pipeline's stage: the micro-batch of the step or run that runs, + 1 */
	uint64_t mark;	     /* the end of what is accounted for */
	uint64_t reading_ns; /* for the next batch, while the device computed */
	uint64_t read_ns;    /* when it was there */
	uint64_t gather_ns;  /* forward waited for parameters */
	double exchanged_s;  /* of the tensor group, accounted for */
};

/* --- step.c --- */

/* Seconds since the mark, which moves on; a span of the trace. */
double gn_step_since(struct gn_running_step *run, enum gn_span kind);
void gn_step_account_backward(struct gn_running_step *run);
/* Waiting for sums, after gn_reducer_wait. */
void gn_step_account_sums(struct gn_running_step *run);
/* For a plan's observer, whose context is the run. */
void gn_step_loss_done(void *context);
enum gn_status gn_step_param_needed(void *context, int param, struct gn_err *err);
void gn_step_gradient_done(void *context, int param, struct gn_event *event);
/* Gradients of a batch that is not the step's last. */
enum gn_status gn_step_accumulate(const struct gn_replica *r, int first, struct gn_err *err);

/* --- step_async.c: a stage of a pipeline --- */

/* Micro-batch k of a step or run: input, forward, output; or of the last stage that recomputes the input alone. number: for dropout masks. */
enum gn_status gn_step_forward_micro(struct gn_running_step *run, int k, uint64_t number, struct gn_err *err);
/* All micro-batches of this rank's stage, forward and backward, until its own gradients are complete. */
enum gn_status gn_step_run_schedule(struct gn_running_step *run, struct gn_err *err);

/* --- step_async.c --- */

/* As gn_step_run, of a stage of an asynchronous pipeline. A step is its backwards and updates: forwards run ahead, into the steps before the
 * pause. On the first stage the result has the losses that have come, at a pause all of them; flags are told at pauses, and a stop or save
 * that is asked for brings one. Gradients that are not finite are GN_ERR_FAILED: other stages have gone on with theirs. */
enum gn_status gn_step_run_async(struct gn_running_step *run, struct gn_step_result *out, struct gn_err *err);

#endif
