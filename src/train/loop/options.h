/* The options of a training run, as `gannet train` fills them in. Internal to src/train and its command. */
#ifndef GN_TRAIN_LOOP_OPTIONS_H
#define GN_TRAIN_LOOP_OPTIONS_H

#include "src/base/option.h"
#include "src/train/parallel/overlap.h"
#include "transport/coll/comm.h"

#include <stdint.h>

/* The longest time that one rank may spend between two collectives (a batch from a slow disk, a checkpoint) before the other ranks
 * treat it as hung. A process that has died or is stopped is noticed within seconds regardless, and so is a deadlock of all ranks. */
#define GN_TRAIN_STALL_MS 900000

#define GN_TRAIN_OPTIONS_MAX 128
enum { GN_PATIENCE_MAX = 1000 };
/* Batches of a rank in a step. */
enum { GN_STEP_BATCHES_MAX = 65536 };

struct gn_server_client;
struct gn_carried;
struct gn_regroup;

/* What the option table of `gannet train` fills. Texts are borrowed. */
struct gn_train_options {
	const char *data, *val;
	const char *stage;	       /* staging.h; NULL: they are read where they are */
	const char *key_file;	       /* of both, if encrypted: gn_dataset_unlock() */
	const char *model;
	int64_t epochs, steps;	       /* steps > 0 counts, and else epochs; no epochs: evaluation only */
	int64_t batch;		       /* per rank */
	int64_t side, channels;	       /* 0: the model's own */
	const char *schedule, *milestones;
	const char *resize_schedule;   /* NULL: always side */
	double lr, lr_batch, warmup_epochs, final_lr, lr_power, lr_factor;
	double lr_start;	       /* below 0: see lr.h */
	double warmup_of, milestones_of; /* epochs of the run that a recipe published them for; 0: not scaled */
	const char *optimizer;
	double drop_path; /* below 0: the network's own */
	double momentum, beta2, eps, trust, clip, weight_decay, label_smoothing, ema, mixup, cutmix, random_erasing;
	int nesterov, decay_all, dropout, zero_gamma;
	int64_t accumulate;	       /* batches a step */
	int64_t global_batch;	       /* images a step, of all ranks, instead of accumulate; 0: accumulate counts */
	const char *sync_bn;	       /* gn_sync_bn_create(); NULL: each rank has its own statistics */
	const char *recipe;	       /* for the command: its choices are in the other fields */
	int dry_run;		       /* for the command: only print the recipe */
	const char *recipe_text;       /* the same as text; NULL: none */
	const char *options_text;      /* all options of this rank as one line (gn_options_describe), for log and checkpoints */
	const char *options_file;      /* for the command: where some of them were read */
	const char *options_lines;     /* as lines of such a file, kept beside the checkpoints */
	const char *augment;
	const char *sampling;	       /* "balanced", or "shuffled"; NULL: that */
	const char *randaugment, *auto_augment, *color_jitter; /* augment_options.h; NULL: none */
	int trivialaugment;
	const char *class_weights;     /* class_weights.h; NULL: none */
	int64_t pad, resize_shorter;   /* -1: by the image side */
	const char *interpolation;     /* bilinear or bicubic; NULL: bilinear */
	const char *mean, *deviation;  /* "a" or "a,b,c"; NULL: the usual values */
	const char *init;
	struct gn_text_list freeze;    /* patterns of names of parameters that are not updated */
	struct gn_text_list lr_scale;  /* lr.h */
	const char *init_head;	       /* "keep", or "skip": of a file of another number of classes */
	int64_t seed;
	const char *checkpoint, *resume;
	const char *checkpoint_key;    /* gn_data_key_read(); NULL: they are not encrypted */
	const char *checkpoint_local;  /* on the nodes' disks; NULL: none */
	int64_t checkpoint_every;      /* steps; 0: not by steps */
	int64_t checkpoint_epochs, keep;
	int64_t keep_every;	       /* every so many-th checkpoint is never removed; 0: none */
	const char *keep_best;	       /* none, or the metric of evaluations whose best checkpoint is kept; NULL: none */
	int64_t patience;	       /* evaluations in a row that may be no better; 0: any number */
	double checkpoint_minutes;     /* by rank 0's clock; 0: not by time */
	const char *log;
	int64_t log_every;
	double slow_factor;	       /* 0: slow ranks are not named */
	int64_t slow_steps;
	int slow_replace;	       /* with elastic: one that waits takes a slow rank's place */
	const char *log_samples;       /* folder of sample_log.h; NULL: none */
	const char *metrics;	       /* Prometheus' text format; NULL: none */
	const char *halving;	       /* "FACTOR:RUNGS": the run stops at step total / FACTOR^k, k = RUNGS..1, when is_behind says so; NULL: never */
	/* On rank 0, at such a step, whose lines are in the log. *behind: stop; why: a text for the log. */
	enum gn_status (*is_behind)(const char *log, int factor, int rung, int *behind, char why[256], struct gn_err *err);
	const char *trace;	       /* NULL: none */
	const char *trace_steps;       /* trace.h */
	int64_t eval_every;	       /* epochs */
	int64_t eval_steps;	       /* steps between more evaluations; 0: none */
	int eval_first;		       /* also before the first step */
	const char *convolution; /* one of GN_CONVOLUTION_CHOICES; NULL: auto, or the checkpoint's */
	const char *precision; /* one of GN_PRECISION_CHOICES; NULL: fp32 */
	const char *device, *transport, *comm, *algo, *tuning, *progress;
	int64_t threads, prefetch, rails;
	int64_t loader_threads;	       /* 0: loader_threads.c chooses */
	int64_t bucket;		       /* bytes; 0: measured, see bucket_autotune.h */
	int overlap;		       /* enum gn_overlap */
	int transport_strict;	       /* struct gn_comm_options' strict */
	int64_t local_steps, local_from; /* struct gn_local_steps */
	const char *compress;	       /* as gn_compress_parse takes it */
	const char *shard;	       /* one of GN_SHARD_CHOICES */
	const char *update, *servers;  /* as gn_server_parse takes them */
	struct gn_server_client *served; /* of a worker of parameter servers; NULL: there are none */
	int64_t mesh_ranks;	       /* of the run, once they are known; 0: not yet */
	const char *parallel;	       /* as gn_mesh_parse takes it, "auto": chosen; NULL: all ranks are of data */
	const char *pipe_schedule;     /* one of GN_PIPE_CHOICES */
	int64_t micro_batches;	       /* in which each batch passes a pipeline; batch and accumulate count micro-batches within a run */
	int recompute;		       /* of a pipeline: struct gn_replica_options' recomputes */
	const char *cut;	       /* as gn_cuts_parse takes it; NULL: chosen */
	const char *elastic;	       /* gn_elastic_parse(); NULL: it ends with the first loss */
	const char *elastic_batch;     /* keep or scale: what becomes of the global batch after a loss */
	int64_t redundancy;	       /* with elastic and shard: ranks that have a copy of each one's part */
	int64_t spares;		       /* with elastic: of the ranks, those that wait for losses */
	const char *join;	       /* for the command: the checkpoint folder of a run that this process is to join */
	struct gn_regroup *regroup;    /* with elastic, for the command and rank 0's questions who waits; else NULL */
	struct gn_carried *carried;    /* with elastic: the state in memory; else NULL */
	int any_order;		       /* bucket sizes that change the order of sums may be tried, too: bucket_autotune.h; GPU: and engines of
					* cuDNN whose order differs from run to run */
	struct gn_world_options world;
	unsigned char given[GN_TRAIN_OPTIONS_MAX]; /* for the command: which options were given */
};

#endif
