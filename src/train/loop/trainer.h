/* Data-parallel training: the loop, its state, resume, evaluation and checkpoints.
 *
 * Every rank holds the whole model. A step is: a batch from the loader, forward, loss, backward with the gradient exchange
 * under way, one optimizer update (step.h). BN running statistics, the loss and the wish to stop travel with the gradients, so that
 * all ranks are bit-identical after every step and stop after the same one. What a run is (its seed, place in the data,
 * optimizer state) is in the checkpoint; which ranks do the work is not.
 *
 * Collective: all ranks call gn_train_run with the same options. Failures of one rank before the first step, and while
 * checkpointing, are agreed on by all; a failure within a step ends that rank, and the others with GN_ERR_PEER_LOST.
 */
#ifndef GN_TRAIN_LOOP_TRAINER_H
#define GN_TRAIN_LOOP_TRAINER_H

#include "src/base/option.h"
#include "src/train/checkpoint/checkpoint.h"
#include "transport/coll/comm.h"

#include <signal.h>

/* What one rank may take between two collectives (a batch from a slow disk, a checkpoint) before the others, who wait for it,
 * take it for hanging. A process that has died or is stopped is noticed within seconds all the same, and so is a run in which
 * all ranks wait for each other. */
#define GN_TRAIN_STALL_MS 900000

#define GN_TRAIN_OPTIONS_MAX 128

/* Whether gradients leave while backward runs. */
enum gn_overlap { GN_OVERLAP_NO, GN_OVERLAP_YES, GN_OVERLAP_MEASURE };

/* What the option table of `gannet train` fills. Texts are borrowed. */
struct gn_train_options {
	const char *data, *val;
	const char *model;
	int64_t epochs, steps;	       /* steps > 0 counts, and else epochs; no epochs: evaluation only */
	int64_t batch;		       /* per rank */
	int64_t side, channels;	       /* 0: the model's own */
	const char *schedule, *milestones;
	const char *resize_schedule;   /* NULL: always side */
	double lr, lr_batch, warmup_epochs, final_lr, lr_power, lr_factor;
	double lr_start;	       /* below 0: see lr.h */
	double warmup_of, milestones_of; /* epochs of the run that they were published for, by a recipe; 0: they stand as they are */
	const char *optimizer;
	double momentum, beta2, eps, trust, clip, weight_decay, label_smoothing, ema, mixup;
	int nesterov, decay_all, dropout, zero_gamma;
	int64_t accumulate;	       /* batches a step */
	const char *sync_bn;	       /* sync.h; NULL: statistics of each rank's own */
	const char *recipe;	       /* for the command: what it chose stands in the other fields */
	const char *recipe_text;       /* and here, for people; NULL: none */
	const char *options_text;      /* all options of this rank as one line (gn_options_describe), for log and checkpoints */
	const char *augment;
	int64_t pad, resize_shorter;   /* -1: by the image side */
	const char *mean, *deviation;  /* "a" or "a,b,c"; NULL: the usual values */
	const char *init;
	int64_t seed;
	const char *checkpoint, *resume;
	int64_t checkpoint_every;      /* steps; 0: not by steps */
	int64_t checkpoint_epochs, keep;
	double checkpoint_minutes;     /* by rank 0's clock; 0: not by time */
	const char *log;
	int64_t log_every;
	const char *trace;	       /* NULL: none */
	const char *trace_steps;       /* trace.h */
	int64_t eval_every;	       /* epochs */
	const char *precision; /* one of GN_PRECISION_CHOICES; NULL: fp32 */
	const char *device, *transport, *comm, *algo, *tuning, *progress;
	int64_t threads, loader_threads, prefetch, rails;
	int64_t bucket;		       /* bytes; 0: measured, see trial.h */
	int overlap;		       /* enum gn_overlap */
	int transport_strict;	       /* struct gn_comm_options' strict */
	int any_order;		       /* buckets measured may be of sizes that change the order of sums, trial.h */
	struct gn_world_options world;
	unsigned char given[GN_TRAIN_OPTIONS_MAX]; /* for the command: which options were given */
};

/* agreed_text: the options that must agree on every rank, as one line (gn_options_describe). stop is set by whoever takes
 * signals, and read between steps and every few batches of an evaluation. Returns GN_ERR_STOPPED after a stop on request, with a
 * checkpoint when there is a folder for one; an evaluation that was left out for it is made when the run goes on. *told (set
 * always): this rank need not tell an error, for rank 0 tells it for all, or it stands in the log already.
 * err is required. */
enum gn_status gn_train_run(const struct gn_train_options *options, const char *agreed_text,
			    const volatile sig_atomic_t *stop, struct gn_comm *comm, struct gn_log *log, int *told,
			    struct gn_err *err);

#endif
