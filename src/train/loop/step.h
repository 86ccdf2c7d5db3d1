/* One training step: batches, forward, loss, backward with sums over ranks under way, update; the same on the host and on a GPU.
 *
 * A step is one batch or several, whose gradients are averaged before they are summed over ranks. A step whose gradients or loss are not
 * finite updates nothing on any rank: parameters, optimizer state, BN statistics and averages are as they were, and its samples count as
 * done. Where the optimizer is sharded, parameters come to this rank beside the next step's forward, or in gn_replica_fetch. On a device
 * that computes beside the host all is queued, the next batch is staged meanwhile, and the host waits once, for the
 * result; with several ranks also for their sums. Internal to src/train.
 */
#ifndef GN_TRAIN_LOOP_STEP_H
#define GN_TRAIN_LOOP_STEP_H

#include "src/train/loop/replica.h"
#include "src/train/metrics/scaling_report.h"

struct gn_train_step {
	uint64_t number;     /* of the step; masks of dropout follow it */
	uint64_t updates;    /* done, this one counted */
	const struct gn_run_state *state; /* of the run before it */
	double lr;
	int stop, save;	     /* what this rank asks of all */
	int regroup;	     /* 0; what it asks for after the step: 1: a new world; 2 + R: one without rank R, which is slow. Of rank 0 alone */
	int leaves;	     /* it asks for a new world after the step, without this rank */
	int writing;	     /* this rank's part of a checkpoint is being written */
	uint64_t pause;	     /* of asynchronous pipelines: the number of the step, this or a later one, after which all stages are empty */
	int has_next;	     /* there is a batch after this step's: it is staged while the device computes */
};

struct gn_step_result {
	double loss, correct, norm; /* loss, and the fraction of correct images: the mean over batches and ranks. norm: of the mean gradient, before clipping */
	int is_unknown;	     /* of these, on a stage of an asynchronous pipeline to which none has come; they are 0 */
	double missed, wanted; /* of predicted gradients that were compared: sums of gn_pipe_predictor_learn */
	int skipped;	     /* nothing was updated */
	int stop, save;	     /* some rank asked for it */
	int regroup;	     /* the same */
	int leaves;	     /* so many ranks asked for that */
	int writing;	     /* on some rank, when the step began */
	double computed_s, update_s; /* until all gradients were complete, without communication; the update */
	double took_s;		     /* of the whole step: the sum of what is added to the interval's parts */
};

/* Collective; a failure is this rank's alone unless a peer was lost. Adds its times to sums. */
enum gn_status gn_step_run(struct gn_replica *r, const struct gn_train_step *step, struct gn_interval *sums, struct gn_step_result *out,
			   struct gn_err *err);

#endif
