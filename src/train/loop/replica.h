/* A model in training on this rank: its arrays on the device, its plan and optimizer, and the sums over ranks that make all replicas alike.
 *
 * Parameters, optimizer state, moving averages and BN buffers are on the device for the whole run. The host's copies of them are current
 * after gn_replica_fetch, and are what the device gets by gn_replica_send; on the host both are the same memory, current after
 * gn_replica_fetch, too. All ranks compute on the
 * same kind of device.
 *
 * Order of creation: init, share, set_plan, connect; each is called by all ranks, and what it returns is this rank's alone unless it says
 * otherwise. Thread safety: one thread. Internal to src/train and its commands.
 */
#ifndef GN_TRAIN_LOOP_REPLICA_H
#define GN_TRAIN_LOOP_REPLICA_H

#include "kernels/op.h"
#include "src/train/loop/state_copy.h"
#include "src/train/metrics/trace.h"
#include "src/train/optim/optimizer.h"
#include "src/train/parallel/compress.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/pipe_predictor.h"
#include "src/train/parallel/pipe_stage.h"
#include "src/train/parallel/reducer.h"
#include "src/train/parallel/server_client.h"
#include "src/train/parallel/shard.h"
#include "src/train/parallel/sharing.h"
#include "src/train/parallel/tensor_group.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan.h"
#include "src/train/plan/weight_layouts.h"

/* The inputs of micro-batches in flight in a stage of a pipeline that recomputes activations: images or what the stage before has sent, and the
 * targets of the images. Host memory. Zeroed: there are none. Members may be read by everybody. */
struct gn_kept_inputs {
	int count; /* micro-batches at a time */
	size_t input_bytes, column_bytes, place_bytes; /* a column: labels, pair labels or lambdas, 4 bytes an image */
	size_t bytes;				       /* of the next two together */
	char *places;				       /* [count] of place_bytes */
	float *buffers;				       /* room for batch norm's, for the caller */
};

/* Copies input and targets of a micro-batch, in the place of number - count. */
void gn_kept_inputs_put(struct gn_kept_inputs *k, int number, const void *input, const struct gn_targets *targets);
/* Borrowed until that place is taken again. */
const void *gn_kept_inputs_get(const struct gn_kept_inputs *k, int number, struct gn_targets *targets);

/* Floats that are summed with gradients and BN buffers. */
enum gn_piggyback {
	GN_PIGGYBACK_LOSS,
	GN_PIGGYBACK_CORRECT,
	GN_PIGGYBACK_STOP,
	GN_PIGGYBACK_SAVE,
	GN_PIGGYBACK_WEIGHT,
	GN_PIGGYBACK_WRITING,
	GN_PIGGYBACK_REGROUP,
	GN_PIGGYBACK_LEAVE,
	/* of asynchronous pipelines: micro-batches that LOSS and CORRECT are of; squares of the norms of updates; of predictors (pipe_predictor.h)
	 * what they missed, and what they were to predict */
	GN_PIGGYBACK_BATCHES,
	GN_PIGGYBACK_NORM2,
	GN_PIGGYBACK_MISSED,
	GN_PIGGYBACK_WANTED,
	GN_PIGGYBACK_COUNT = 16
};

/* A stage of an asynchronous pipeline, from one pause of all stages to the next: step_async.c. */
struct gn_async_run {
	int is_open;
	uint64_t first;			  /* the step with which it began */
	int actions, forwards, backwards; /* done since then */
	float news[GN_PIGGYBACK_COUNT];	  /* that the stage before does not have yet; in the order of what piggybacks, as the next two */
	float known[GN_PIGGYBACK_COUNT];  /* first stage: of the step, summed over pipelines */
	float asked[GN_PIGGYBACK_COUNT];  /* first stage: the same of the whole run, of which the flags count */
	uint64_t runs, batches;		  /* that have ended; their micro-batches */
};

/* Copies of a state to the host, beside a step. */
struct gn_replica_fetch {
	struct gn_stream *stream; /* NULL: there were none yet */
	struct gn_event *begun, *done;
	int is_open;
};

struct gn_replica_options {
	struct gn_comm *comm;	       /* borrowed, as the next two */
	const struct gn_model *model;
	struct gn_log *log;
	struct gn_plan_options device; /* of these only the device and the precision; alike on all ranks but for gpu */
	struct gn_optimizer_options optimizer;
	double ema;		       /* decay of the moving average; 0: none */
	const double *class_weights;   /* host: of the plans' loss, whose mean is over the global batch's weights; NULL: none */
	int batches;		       /* of this rank, whose gradients make a step; at least 1 */
	int step_batches;	       /* of all ranks; 0: as many on each */
	int async_batches;	       /* micro-batches of a step, each of which is an update (batches is 1): pipe is asynchronous; 0: it is not */
	const char *algo, *gpu_comm;   /* what sums: as gn_sharing_options and gn_gpu_attach take it */
	struct gn_compress_options compress; /* of these spec, seed, momentum and clip; of one rank nothing is compressed */
	struct gn_local_steps local;	     /* of these every and from_epoch */
	enum gn_shard_mode shard;	     /* host; of one rank nothing is sharded */
	size_t shard_bucket_bytes;	     /* that of the reducer's config */
	int has_copies;			     /* with shard: each rank has a copy of another one's part */
	int undoes;			     /* host; the state before the last update is kept */
	struct gn_server_client *servers;    /* host; who updates the parameters; borrowed; NULL: the replica does */
	struct gn_pipe_stage *pipe;	     /* host; model is that stage's part, and comm is of the ranks of this stage; borrowed; NULL: it is whole */
	int recomputes;			     /* with pipe, synchronous: activations of one micro-batch at a time, of the others their inputs */
	struct gn_tensor_group *tensor;	     /* host; model is a slice, and comm is of the ranks with the same one; borrowed; NULL: it is whole */
};

/* Zeroed: there is none. Members may be read by everybody, and are set by the functions below but for these: next, trace. */
struct gn_replica {
	struct gn_replica_options options;
	struct gn_plan_device device;
	struct gn_weight_layouts *layouts; /* of params, gradients, slots and averages */
	struct gn_array params, buffers;   /* buffers: in flat */
	float *shared_params;		   /* of params, the communicator's memory, when they are sharded; else NULL */
	float *flat;			   /* on the device: gradients, then BN buffers, then what piggybacks */
	float *piggyback;		   /* in flat */
	struct gn_buffer flat_buffer;	   /* on a GPU; on the host flat is the communicator's memory */
	struct gn_buffer step_buffer;	   /* of the next two */
	float *kept_buffers;		   /* BN buffers before the step */
	float *accumulated;		   /* gradients of the step's batches before the last; NULL when a step is one batch */
	int divides;			   /* each batch's gradients are summed over ranks, and accumulated is this rank's parts, packed */
	int is_partial;			   /* the batch that runs is not the step's last: set by the step */
	struct gn_shard *shard;		   /* NULL: optimizer and averages are of all parameters */
	struct gn_redundancy *redundancy;  /* NULL: no rank has a copy of another one's part */
	struct gn_stage_ring *ring;	   /* with pipe; borrowed; NULL: no rank has a copy of another one's stage */
	struct gn_state_copy undo;	   /* the state before the last update that was begun */
	struct gn_optimizer *optimizer;
	struct gn_ema ema;
	struct gn_compressor *compressor;  /* NULL: gradients are summed as they are */
	struct gn_local_steps local;	   /* is_active is the caller's */
	struct gn_reducer *reducer;
	struct gn_plan *plan;
	struct gn_plan **more_plans;	   /* with pipe: micro-batch k runs in plan number k % plan_count, of which the first is plan */
	int plan_count;			   /* 1 without pipe, and where kept is used */
	struct gn_kept_inputs kept;	   /* of micro-batches in flight, when options.recomputes and there are several */
	float *versions;		   /* pipedream: the parameters of each plan's forward; NULL: of all plans they are params */
	struct gn_buffer version_buffer;
	struct gn_pipe_predictor *predictor; /* decoupled, but on the last stage; else NULL */
	struct gn_async_run async;
	float *results;			   /* host: what piggybacked, after the step */
	struct gn_replica_fetch fetch;
	int staged;			   /* the next step's first batch is */
	/* The next batch: images as gn_plan_stage takes them, borrowed until the next call. */
	enum gn_status (*next)(void *context, const void **images, struct gn_targets *targets, struct gn_err *err);
	void *next_context;
	struct gn_trace *trace;		   /* NULL: none */
};

/* Collective, failures are agreed on. gn_device_choose for all ranks, which compute on GPUs, each of them, or on their hosts' processors;
 * with "auto" on GPUs where every rank has one. gpu_comm: what was asked to sum GPU memory, or NULL; "nccl" without GPUs is
 * GN_ERR_USAGE. */
enum gn_status gn_replica_choose_device(struct gn_comm *comm, const char *device, const char *precision, const char *gpu_comm,
					struct gn_plan_options *out, struct gn_err *err);
/* Local. Opens the device; memory for parameters, unless they are sharded. */
enum gn_status gn_replica_init(struct gn_replica *r, const struct gn_replica_options *options, struct gn_err *err);
/* Collective. Memory for what ranks sum, and for sharded parameters; then, local, optimizer and averages. */
enum gn_status gn_replica_share(struct gn_replica *r, struct gn_err *err);
/* Local. Another plan, of a model with the same parameters; what po says of device, weights, batches and loss is set here. The first plan
 * chooses weight layouts. With pipe: one for each micro-batch in flight, or with recomputes one alone; all stages of a pipeline call it, and a
 * stage waits for those before it. */
enum gn_status gn_replica_set_plan(struct gn_replica *r, const struct gn_model *model, const struct gn_plan_options *po, struct gn_err *err);
/* Collective, failures are agreed on. What sums gradients in buckets of this kind. */
enum gn_status gn_replica_connect(struct gn_replica *r, const struct gn_reducer_config *config, struct gn_err *err);
/* Collective, failures are agreed on. The same with another method of compression, from its initial state. After connect. */
enum gn_status gn_replica_compress(struct gn_replica *r, const struct gn_compress_spec *spec, const struct gn_reducer_config *config,
				   struct gn_err *err);
/* The same for a run that goes on at this step: of its epoch is what gn_compressor_sent_bytes says from now on. */
enum gn_status gn_replica_compress_from(struct gn_replica *r, uint64_t step, uint64_t epoch, struct gn_err *err);
/* Local. After another reducer was set: cuts the plan's backward where its buckets end. */
enum gn_status gn_replica_cut(struct gn_replica *r, struct gn_err *err);
void gn_replica_release(struct gn_replica *r);

/* Before the next ones allocate their memory; there may be none. */
void gn_replica_destroy_plans(struct gn_replica *r);
/* The plan of micro-batch number k of a step; with pipe. And bytes of all plans and kept inputs. */
struct gn_plan *gn_replica_plan_of(const struct gn_replica *r, int k);
size_t gn_replica_plan_bytes(const struct gn_replica *r);
/* Batches of a step by rank: the mean, and the most of any rank. */
double gn_replica_mean_batches(const struct gn_replica *r);
int gn_replica_most_batches(const struct gn_replica *r);
/* Whether several ranks sum in memory of GPUs. */
int gn_replica_sums_on_gpus(const struct gn_replica *r);
/* For reducers beside the replica's own. */
struct gn_sharing_options gn_replica_sharing_options(struct gn_replica *r);
/* Bring all that a run's state is made of to the host's copies, and to the device. Block; fetch is collective where the optimizer is
 * sharded, whose last update may still be on its way to all ranks. */
enum gn_status gn_replica_fetch(struct gn_replica *r, struct gn_err *err);
enum gn_status gn_replica_send(struct gn_replica *r, struct gn_err *err);
/* Whether the same can be done beside the next step: on a device, where each rank has the whole state and updates it itself. */
int gn_replica_fetches_beside(const struct gn_replica *r);
/* Queues the copies on a stream of their own; end blocks until they are there. Between the two the host's copies are not to be touched, and what the
 * replica updates waits for them (guard; gn_replica_update calls it). */
enum gn_status gn_replica_fetch_begin(struct gn_replica *r, struct gn_err *err);
enum gn_status gn_replica_fetch_guard(struct gn_replica *r, struct gn_err *err);
enum gn_status gn_replica_fetch_end(struct gn_replica *r, struct gn_err *err);
/* Waits for its work. */
void gn_replica_fetch_close(struct gn_replica *r);
/* Collective; blocks. Where ranks have drifted apart in local steps: the averages of parameters and optimizer state on all of them. */
enum gn_status gn_replica_average(struct gn_replica *r, struct gn_err *err);
/* Whether there is a moving average. */
int gn_replica_has_average(const struct gn_replica *r);
/* Between steps, in host memory: the average of all parameters, as gn_ema_swap takes it; borrowed until the next step. Sharded: collective;
 * it is then where gradients are. */
enum gn_status gn_replica_whole_average(struct gn_replica *r, struct gn_ema *out, struct gn_err *err);
/* What of parameters, and, on the first worker, of optimizer state parameter servers have. Borrowed. */
struct gn_server_arrays gn_replica_served_arrays(const struct gn_replica *r);
/* Blocks. An update of the parameters after the sums are there: queued, or by servers. stop: what this worker was asked; *stop becomes 1
 * when another one was. *norm: of the gradient, where servers know it. */
enum gn_status gn_replica_update(struct gn_replica *r, const struct gn_optim_update *u, int *stop, double *norm, struct gn_err *err);
/* Into a copy of what this rank has of the run's state. buffers: the replica's, or those that it has kept. */
enum gn_status gn_replica_copy_state(const struct gn_replica *r, struct gn_state_copy *c, const float *buffers, const struct gn_run_state *state,
				     struct gn_err *err);
/* Bytes of optimizer state and averages of parameters, here, and without sharding. */
size_t gn_replica_state_bytes(const struct gn_replica *r, size_t *whole);

#endif
