/* What a training run holds while it runs: created once by gn_session_create, then only used. Internal to src/train. */
#ifndef GN_TRAIN_LOOP_SESSION_H
#define GN_TRAIN_LOOP_SESSION_H

#include "data/loader/loader.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/checkpoint/checkpoint_writer.h"
#include "src/train/checkpoint/owner.h"
#include "src/train/loop/options.h"
#include "src/train/loop/staging.h"
#include "src/train/loop/step.h"
#include "src/train/metrics/metrics.h"
#include "src/train/metrics/metrics_log.h"
#include "src/train/metrics/run_status.h"
#include "src/train/optim/lr.h"
#include "src/train/optim/resize_schedule.h"
#include "src/train/parallel/bucket_autotune.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/step_forecast.h"
#include "src/train/plan/group_sums.h"

#include <signal.h>

struct gn_session_data {
	struct gn_dataset *train, *val;
	struct gn_staging *staging;	 /* with --stage */
	struct gn_loader *loader, *val_loader;
	struct gn_balance *balance; /* NULL: --sampling shuffled */
	double *class_weights;		 /* NULL: none */
	uint64_t began_step, epoch, batches; /* where the loader began, and batches that it gave since then */
};

struct gn_session_schedule {
	struct gn_lr published;		 /* as the options have it; not fitted to the length of the run, which is not set */
	struct gn_lr lr;		 /* fitted at the run's place when this world began, for the log */
	struct gn_resize_schedule resize;
	uint64_t global_batch;
	int batches, own_batches;	 /* of a step: of all ranks, which may have different numbers of them, and of this one */
	uint64_t epoch_samples;		 /* that an epoch uses: whole global batches */
};

struct gn_session_checkpoint {
	struct gn_checkpoint_info info;	 /* constant part; state is filled when saving */
	struct gn_owner *owner;		 /* rank 0, with --checkpoint */
	char nonce[GN_OWNER_NONCE];	 /* of it, on all ranks */
	int leaves_owner;		 /* the run goes on in another session, which claims the folder after this one */
	struct gn_checkpoint_writer *writer; /* with --checkpoint */
	struct gn_data_key key;		 /* with --checkpoint-key */
	char *local;			 /* with --checkpoint-local: this run's folder on this node */
	uint64_t saved_step;		 /* the newest step in a checkpoint, UINT64_MAX for none */
	int is_copying;			 /* a state to the host's memory, beside a step; the writer has it then */
	uint64_t open_step;		 /* the step of the checkpoint that is being copied, or that the writer has */
	double blocked_s;		 /* by that, so far */
	int64_t number;			 /* of checkpoints that the run has saved */
	uint64_t begun_ns;		 /* gn_clock_ns() when a checkpoint was last begun, or the run */
};

/* Of --loader-threads auto, on each rank its own. */
struct gn_session_threads {
	int count;			 /* that work; 0: none yet */
	int steps, after, decisions;	 /* since the last decision; when the next one is; how many there were */
	double step_s, waited_s;	 /* of these steps */
	struct gn_loader_effort before;	 /* at the last decision */
};

struct gn_session_metrics {
	struct gn_metrics_log *log;	 /* rank 0 with --log */
	struct gn_sample_log *samples;	 /* with --log-samples */
	struct gn_trace *trace;		 /* with --trace */
	struct gn_plan_profiler profiler;
	uint64_t op_began_ns;		 /* of the trace: the operator that runs */
	uint64_t began_ns, began_step;	 /* when this start's training began: summary.h */
	uint64_t last_ns;		 /* when the last step was finished */
	uint64_t agreed_ns;		 /* before the last thing that all ranks have done together, as far as it is noted: all were there since */
	uint64_t unlogged_steps;	 /* since the last line of steps, */
	double unlogged_s;		 /* and their time */
	uint64_t evaluations, images;	 /* since then; images: that steps trained on */
	double steps_s, waited_s;	 /* since then, on this rank: time of steps, and of it what they waited for images */
	double copies_s;		 /* since then, for what is kept for a loss */
	double last_top1;		 /* of them, as a share; of the network, not of its average */
	double best_top1;		 /* the same, rank 0: of the whole run as far as the log or best.json tells; -1: of none */
};

/* Of --halving; factor 0: without. */
struct gn_session_halving {
	int factor, rungs;
	int behind;			 /* the run has stopped because other trials are better */
	char why[256];			 /* rank 0 */
};

/* Of --keep-best and --patience: the same on all ranks, and kept in best.json of the checkpoint folder. */
struct gn_session_best {
	int is_known;
	double value;			 /* of the metric, at that step */
	uint64_t step;
	size_t worse_count;		 /* steps of later evaluations that were no better */
	uint64_t worse[GN_PATIENCE_MAX];
	int is_over;			 /* they are as many as --patience allows: the run ends */
	char why[160];
};

/* Of --slow-factor, rank 0; for each rank, how many steps it has been slow, and whether the log says so. */
struct gn_session_slow {
	uint64_t *steps;
	char *is_named;
	int replaced;		 /* --slow-replace: this rank, the slowest one; -1: none, or nobody waits */
	double factor;		 /* its last one */
};

struct gn_session_status {
	struct gn_run_status now;
	struct gn_usage_meter *usage;	 /* on all ranks, from gn_session_begin_status on */
	struct gn_status_files *files;	 /* rank 0 with a log that is a file, or with --metrics */
	uint64_t saved_step;		 /* the newest checkpoint that now.checkpoints counts */
	double since_s;			 /* of training, since the last gather of usage */
};

/* While --compress auto measures. */
struct gn_compress_choice {
	int steps;		   /* done so far */
	uint64_t steps_left;	   /* of the run, when it began */
	double step_s, exposed_s;  /* the least of the steps after the first ones, and what they waited for gradients */
};

/* Of a run whose network is divided among the stages of pipelines, or by channels among the ranks of tensor groups. The session's communicator
 * stays the world and its model the whole network; its replica trains this rank's part with the ranks of the same stage or slice, its worker
 * is the data index. The whole arrays are in host memory in torch's order, on rank 0, and on the others if there is something to evaluate; they are current after gn_session_gather. */
struct gn_session_pipeline {
	struct gn_mesh mesh;
	struct gn_comm *data;	/* the ranks of this stage and slice, by data index */
	struct gn_comm *pipe;	/* of this slice the stages of this rank's pipeline, by stage; NULL: there is one stage, the whole network */
	struct gn_comm *group;	/* the ranks of this rank's tensor group, all of one stage, by slice; NULL: stages are not sliced */
	struct gn_pipe_stage *stage; /* NULL: without pipe */
	struct gn_stage_ring *ring; /* NULL: no rank has a copy of another one's stage */
	struct gn_tensor_group *tensor; /* NULL: without group */
	struct gn_model *stage_model; /* of all slices of a pipeline's stage; NULL: the whole network, or part */
	struct gn_model *part;	/* this rank's */
	char place[96];		/* what of the network that is */
	int *nodes;		/* [stages - 1]: the first node of each stage but the first */
	struct gn_weight_layouts *plain; /* of the whole network: torch's order */
	float *params, *buffers; /* NULL: this rank has none of the whole */
	float *average_params, *average_buffers; /* with --ema */
	double waited_s;	/* before the first step, as the next three */
	uint64_t sent_bytes;
	double exchanged_s;	/* in the tensor group */
	uint64_t exchanged_bytes;
};

struct gn_session {
	const struct gn_train_options *options;
	struct gn_train_options resolved; /* with --parallel auto these, from the choice on: */
	char mesh_cut[GN_CHECKPOINT_CUT_MAX];
	char mesh_choice[4096];		 /* rank 0: what was chosen, and what is predicted of each mesh; empty: nothing was */
	struct gn_comm *comm;		 /* of the ranks that take each step together */
	struct gn_session_pipeline *pipeline; /* NULL: each rank has the whole network */
	int worker, workers;		 /* in the order of samples: of comm's ranks, of its pipelines, or of all workers of parameter servers */
	unsigned losses;		 /* gn_world_losses() that is logged, with parameter servers, */
	char *is_lost;			 /* and whose, by worker; NULL: nobody's */
	struct gn_log *log;
	struct gn_session_data data;
	struct gn_session_schedule schedule;
	struct gn_session_checkpoint checkpoint;
	struct gn_session_threads loader_threads;
	struct gn_session_metrics metrics;
	struct gn_session_status status;
	struct gn_session_slow slow;
	struct gn_session_halving halving;
	struct gn_session_best best;
	struct gn_model *model;		 /* at its full side */
	struct gn_model *train_model;	 /* at the side of this epoch's images; NULL: the full one */
	struct gn_plan_options device;	 /* of these only the device and the precision */
	struct gn_compress_spec compress; /* what was asked for; auto until it has chosen */
	struct gn_compress_choice choice;
	struct gn_sync_bn *sync_bn;	 /* with --sync-bn, of more than one rank */
	struct gn_replica replica;	 /* arrays, training plan, optimizer, reducer */
	struct gn_plan *val_plan;
	struct gn_bucket_autotune *autotune; /* while buckets are measured; the replica's reducer is then one of its candidates */
	struct gn_step_forecast forecast; /* of the reducer's sums, unless buckets are being measured */
	struct gn_run_state state;
	struct gn_step_result last;	 /* of the last step */
	double step_s;			 /* of it, less what it waited for data */
	int skips_in_a_row;		 /* steps that updated nothing */
	int unevaluated;		 /* an evaluation was due and left out because the run is to stop */
	int is_within_step;		 /* since the present step was begun; one that failed stays so */
	int grows;			 /* as gn_step_result.regroup: processes wait to take part, all ranks form a new world with them after the last step */
	int failed_alone;		 /* this rank has an error that the others do not know of */
};

/* Collective. Opens data, builds model, plans and reducer, checks that all ranks agree. */
enum gn_status gn_session_create(const struct gn_train_options *options, const char *agreed_text, struct gn_comm *comm,
				 struct gn_log *log, struct gn_session **out, struct gn_err *err);
void gn_session_destroy(struct gn_session *s);
/* Of checkpoints; NULL without --checkpoint-key. */
const struct gn_data_key *gn_session_key(const struct gn_session *s);
/* Borrowed: the host's copies of what a checkpoint has, but for parts; and what a compressor keeps, for which arrays gives the room. */
struct gn_checkpoint_arrays gn_session_arrays(struct gn_session *s);
struct gn_checkpoint_rank_state gn_session_own_state(const struct gn_session *s, struct gn_compress_state *arrays);
/* Collective. With --checkpoint: makes the folder, and makes it this run's, see owner.h for how long that may take. */
enum gn_status gn_session_claim(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_err *err);
/* Collective. Whether checkpoints can be saved there now, so that this does not come to light after an epoch. */
enum gn_status gn_session_try_save(struct gn_session *s, struct gn_err *err);
/* Rank 0, with --checkpoint: writes the options beside the checkpoints, as a file for --options. */
enum gn_status gn_session_write_options(const struct gn_session *s, struct gn_err *err);
/* Collective. Initial values, or the state of a checkpoint, on all ranks' devices: rank 0 reads, all receive. *resumed: whether from a
 * checkpoint. */
enum gn_status gn_session_restore(struct gn_session *s, int *resumed, struct gn_err *err);
/* The host's copies of arrays laid out as parameters, from torch's order to that of the run. */
void gn_session_take_layouts(struct gn_session *s);
/* With --shard, session_shard.c; collective. For a checkpoint: slots in torch's order, of which this rank has a range, freed by the
 * caller; and the average, in the memory of the gradients. */
void gn_session_set_range(const struct gn_session *s, struct gn_checkpoint_arrays *a);
enum gn_status gn_session_split_state(struct gn_session *s, struct gn_checkpoint_arrays *a, struct gn_err *err);
void gn_session_free_split(struct gn_checkpoint_arrays *a);
/* From a checkpoint that fits; rank 0 reads. */
enum gn_status gn_session_restore_parts(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err);
/* With parameter servers, session_served.c; without, nothing. After restore: the first worker's state to the servers and the others. */
enum gn_status gn_session_open_servers(struct gn_session *s, struct gn_err *err);
/* The first worker: parameters and slots from the servers. drains: when the others have left. a: NULL, or for a checkpoint. */
enum gn_status gn_session_fetch_served(struct gn_session *s, int drains, struct gn_checkpoint_arrays *a, struct gn_err *err);
/* Which part of the slots this worker has in a checkpoint: all or none. */
void gn_session_set_served_range(const struct gn_session *s, struct gn_checkpoint_arrays *a);
/* Of async and ssp, before the run ends: the same with drains. */
enum gn_status gn_session_drain_servers(struct gn_session *s, struct gn_err *err);
/* Images of a step: without workers that async and ssp go on without. */
uint64_t gn_session_step_images(const struct gn_session *s);
/* Logs workers that were lost, on the first one. */
enum gn_status gn_session_note_losses(struct gn_session *s, struct gn_err *err);
/* How old gradients were when they were applied, and how far workers were ahead, since the start; of sync nothing. */
void gn_session_put_staleness(const struct gn_session *s, struct gn_json *j);
void gn_session_put_staleness_text(const struct gn_session *s, struct gn_strbuf *out);
struct gn_optimizer_options gn_session_optimizer_options(const struct gn_train_options *o);
/* Collective. With --checkpoint-local and --resume auto: what had not reached the shared folder is copied there (checkpoint_writer.h). */
enum gn_status gn_session_recover_local(struct gn_session *s, struct gn_err *err);
/* Collective. Begins to save the present state unless that step is saved or being saved already. Waits for the one before it, if that is
 * still being written. What a later save may mend (a full disk) is a warning, here as in the next two. */
enum gn_status gn_session_save(struct gn_session *s, struct gn_err *err);
/* Whether a checkpoint is being copied or written. */
int gn_session_is_saving(const struct gn_session *s);
/* Collective. gn_replica_fetch, but a state that is being copied for a checkpoint is given to its writer before. */
enum gn_status gn_session_fetch(struct gn_session *s, struct gn_err *err);
/* Collective, when no rank's thread is busy any more: a checkpoint that is being written goes on to its next stage. */
enum gn_status gn_session_advance_save(struct gn_session *s, struct gn_err *err);
/* Collective. Waits until no checkpoint is being written. */
enum gn_status gn_session_drain(struct gn_session *s, struct gn_err *err);
/* Collective. Saves the state that a run ends with, and waits for that: any failure is one. */
enum gn_status gn_session_save_last(struct gn_session *s, struct gn_err *err);
/* Collective. Loader at the present epoch and sample, with the epoch's side of images; made anew where that changes. */
enum gn_status gn_session_begin_epoch(struct gn_session *s, struct gn_err *err);
/* session_schedule.c. For gn_session_create: the schedule, not fitted. When the run's place is known: GN_ERR_USAGE for warm-up as long as the
 * run, on all ranks alike. The learning rate of the next step. */
enum gn_status gn_session_make_schedule(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_fit_schedule(struct gn_session *s, struct gn_err *err);
double gn_session_rate(const struct gn_session *s);
/* The number, as in state.step, of the step after which the stages of an asynchronous pipeline are to be empty, because all parameters are
 * read then: the next one or later. Alike on all ranks. */
uint64_t gn_session_next_pause(const struct gn_session *s);
/* For gn_session_create, session_train.c: device (collective), loader, and plan for training; every side of the schedule tried. */
enum gn_status gn_session_choose_device(struct gn_session *s, struct gn_err *err);
/* Collective. Goes on with the convolutions that the run had, unless an option says which. */
enum gn_status gn_session_take_convolution(struct gn_session *s, enum gn_convolution was, struct gn_err *err);
enum gn_status gn_session_remake_plans(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_make_loader(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_make_plan(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_try_sides(struct gn_session *s, struct gn_err *err);
/* --loader-threads auto, loader_threads.c. The threads that a loader is made with, of which some may be idle. */
int gn_loader_threads_most(const struct gn_session *s);
/* Pure. The number for the next steps, 1 .. most: decode_s is the time of one thread for the images of a step, step_s that of a step with
 * waited_s in which it waited for images, while `now` threads worked. */
int gn_loader_threads_choose(double decode_s, double step_s, double waited_s, int now, int most);
/* After the training loader was made: the number that was chosen before, or a guess. */
void gn_loader_threads_begin(struct gn_session *s);
/* After each step, with what it took, of which waited_s for images. Local. */
void gn_loader_threads_note(struct gn_session *s, double step_s, double waited_s);
/* How gradients are summed when nothing is measured. */
void gn_session_reducer_config(const struct gn_session *s, struct gn_reducer_config *out);
/* Collective, before the first step: measures buckets where that pays, and predicts the times of sums. */
enum gn_status gn_session_begin_autotune(struct gn_session *s, uint64_t steps_left, struct gn_err *err);
/* --compress auto, session_compress.c. Whether a method is to be chosen; the start of it, where steps_left are enough; after each step, of
 * which exposed_s was spent waiting for gradients; and a choice that was made: the last two are collective. */
int gn_session_chooses_compression(const struct gn_session *s);
void gn_session_begin_compression(struct gn_session *s, uint64_t steps_left);
enum gn_status gn_session_note_compression(struct gn_session *s, double exposed_s, struct gn_err *err);
enum gn_status gn_session_take_compression(struct gn_session *s, const char *name, struct gn_err *err);
/* Collective. A step, and what follows it for the run: the place in the data, skipped steps, the autotune. Adds to sums; *stopping: some
 * rank was asked to stop. After too many steps in a row that updated nothing the run ends with GN_ERR_FAILED, on all ranks alike. */
enum gn_status gn_session_step(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_interval *sums, int *stopping,
			       struct gn_err *err);
/* Marks a failure that happened to this rank alone: the others have to learn of it, or they would wait. Returns status. */
enum gn_status gn_session_alone(struct gn_session *s, enum gn_status status);
/* Whether this rank, which is 0, finds that --checkpoint-minutes have passed since the last checkpoint. */
int gn_session_wants_save(const struct gn_session *s);
/* Whether an epoch that has come so far has another step, for all ranks. */
int gn_session_has_batch(const struct gn_session *s, uint64_t samples_done);
/* Steps when --steps counts them, else epochs: after a resume at another world size an epoch has another number of steps. */
int gn_session_is_done(const struct gn_session *s);
/* Whether an evaluation belongs to the present state: at the end of every --eval-every'th epoch, after every --eval-steps'th step, before
 * the first one with --eval-first, and at the end of the run. */
int gn_session_evaluation_due(const struct gn_session *s);
/* Collective. Evaluates the network as it is, and its moving average when there is one, and logs both. *stop is read every few
 * batches: when any rank's is set, *stopping becomes 1 on all ranks at the same batch. An evaluation that is cut short by it, or not
 * even begun because *stopping is 1, says nothing but that, and sets s->unevaluated. */
enum gn_status gn_session_evaluate(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopping, struct gn_err *err);
/* Collective, before the first step: the evaluation that a run was stopped or lost before comes first when it goes on, unless the
 * log has it. */
enum gn_status gn_session_evaluate_missed(struct gn_session *s, const volatile sig_atomic_t *stop, int *stopping,
					  struct gn_err *err);
/* Collective, before the first step: begins to measure what the ranks use, and to tell others how the run is doing (run_status.h). */
enum gn_status gn_session_begin_status(struct gn_session *s, uint64_t total_steps, struct gn_err *err);
/* Collective, at the end of an interval: notes it for the status, and every few seconds gathers what all ranks use (*gathered). report:
 * NULL with one rank. */
enum gn_status gn_session_interval_status(struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report,
					  int *gathered, struct gn_err *err);
/* Rank 0, at the end of an interval of several ranks: names in the log those that have become slow (--slow-factor), or fast again. */
enum gn_status gn_session_note_slow(struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report,
				    struct gn_err *err);
/* Writes the status if that is due; cheap otherwise. doing: static text. */
void gn_session_tell_status(struct gn_session *s, const char *doing);
/* Collective. What --halving says, before the first step. */
enum gn_status gn_session_begin_halving(struct gn_session *s, uint64_t total_steps, struct gn_err *err);
/* The rung that the present step is, from 1; 0: none. The same on all ranks. */
int gn_session_rung(const struct gn_session *s);
/* The last step found nothing to go on with: no checkpoint is kept of it, also not as the best one. */
int gn_session_has_diverged(const struct gn_session *s);
/* Collective, after the lines of such a step are in the log: sets s->halving.behind. */
enum gn_status gn_session_halve(struct gn_session *s, struct gn_err *err);
/* Collective, session_best.c. Before the first step: what is known of the run's evaluations, for --keep-best and --patience. After each
 * evaluation of a step: a better one is saved and named by the link `best`; average is used only with --ema. */
enum gn_status gn_session_begin_best(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_note_best(struct gn_session *s, const struct gn_metrics *plain, const struct gn_metrics *average, struct gn_err *err);
/* Rank 0: the link to the checkpoint of the present step. */
enum gn_status gn_session_mark_best(const struct gn_session *s, struct gn_err *err);
/* Writes the last status, if there has been one. how: "done", "stopped" or "failed". */
void gn_session_end_status(struct gn_session *s, const char *how);
/* Batches of a step that a worker takes: the first ones take one more where they cannot all have as many. */
int gn_session_batches_of(const struct gn_session *s, int worker);
/* Epochs done, with the fraction of the current one. */
double gn_session_epoch(const struct gn_session *s);

/* --- pipelines and tensor groups: session_pipeline.c, session_parts.c and session_mesh_log.c --- */

/* Collective; failures are agreed on. After the model is there. With --parallel: the mesh, and, where it has pipelines or tensor groups,
 * s->pipeline. Sets worker and workers. */
enum gn_status gn_session_open_mesh(struct gn_session *s, struct gn_err *err);
/* The same for --parallel auto, session_auto_mesh.c: chooses. Each pipeline has --batch and --micro-batches for each of its ranks: samples and
 * micro-batches of a step are the same whatever is chosen. Replaces s->options. */
enum gn_status gn_session_choose_mesh(struct gn_session *s, struct gn_mesh_shape *out, struct gn_err *err);
/* Collective; failures are agreed on. Where the model is cut, this rank's part and its stage, or its slice and its group. Without them
 * nothing, here and below. */
enum gn_status gn_session_cut(struct gn_session *s, struct gn_err *err);
/* Local. Memory for the whole arrays. */
enum gn_status gn_session_alloc_whole(struct gn_session *s, struct gn_err *err);
void gn_session_pipeline_destroy(struct gn_session_pipeline *p);
/* What this rank trains, and the ranks that train the same. */
const struct gn_model *gn_session_own_model(const struct gn_session *s);
struct gn_comm *gn_session_data_comm(const struct gn_session *s);
/* With pipelines: where a stage's parameters and buffers begin in those of the whole. */
void gn_session_stage_begins(const struct gn_session *s, int stage, size_t begins[2]);
/* The same of this rank's, which it returns. */
int gn_session_stage_begin(const struct gn_session *s, size_t begins[2]);
/* Collective, failures are agreed on; after the state is there. Copies of stages, with --redundancy. */
enum gn_status gn_session_open_ring(struct gn_session *s, struct gn_err *err);
/* Whether this rank's stage reads images. */
int gn_session_reads_images(const struct gn_session *s);
/* Collective. After gn_replica_fetch: parameters, buffers and averages of all stages become the whole arrays, on rank 0, or on all ranks. */
enum gn_status gn_session_gather(struct gn_session *s, int everywhere, struct gn_err *err);
/* Borrows the whole averages. */
void gn_session_whole_average(const struct gn_session *s, struct gn_ema *out);
/* Collective; failures are agreed on. GN_ERR_UNSUPPORTED: what ranks of a tensor group exchange in this plan lies in memory differently, because
 * their processors do. NULL is fine. */
enum gn_status gn_session_check_exchanges(struct gn_session *s, const struct gn_plan *plan, struct gn_err *err);
/* For a checkpoint: which elements of slots this rank has, and copies of them in torch's order, freed by gn_session_free_split. */
void gn_session_set_stage_range(const struct gn_session *s, struct gn_checkpoint_arrays *a);
enum gn_status gn_session_split_stage(struct gn_session *s, struct gn_checkpoint_arrays *a, struct gn_err *err);
/* Collective. Rank 0 has read the whole arrays, and reads the slots: each rank takes its part of all, in torch's order. folder: of a checkpoint,
 * NULL: without one. */
enum gn_status gn_session_restore_stage(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err);
/* Collective. Logs the mesh, and what each stage has, sends and will wait; after the last step what was measured. */
enum gn_status gn_session_log_mesh(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_log_bubble(struct gn_session *s, struct gn_err *err);
/* "mesh": {...} of the log's line at start. */
void gn_session_put_mesh(const struct gn_session *s, struct gn_json *j);
/* Prefixes the text with the stages of lost ranks. */
void gn_session_name_lost(const struct gn_session *s, struct gn_err *err);

#endif
