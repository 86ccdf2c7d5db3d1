#include "src/train/loop/combine.h"

#include "data/shard/folders.h"
#include "src/train/loop/augment_options.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/class_weights.h"
#include "src/train/loop/served.h"
#include "src/train/parallel/compress.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/pipe_schedule.h"
#include "src/train/parallel/server.h"
#include "src/train/parallel/shard.h"

#include <stdio.h>
#include <string.h>

static enum gn_compress_method method_of(const struct gn_train_options *o)
{
	struct gn_compress_spec s = {.method = GN_COMPRESS_NONE};

	gn_compress_parse(o->compress, &s, NULL);
	return s.method;
}

/* Of so many ranks; 0: of any. Without --parallel, and where it cannot be read, nothing is divided. */
static struct gn_mesh_shape mesh_of(const struct gn_train_options *o, int ranks)
{
	struct gn_mesh_shape shape = {.pipeline = 1, .tensor = 1};

	if (o->parallel)
		gn_mesh_parse(o->parallel, ranks, &shape, NULL);
	return shape;
}

/* Or may: "data=2" is of pipelines where there are more than two ranks. */
static int may_be_pipeline(const struct gn_train_options *o)
{
	return mesh_of(o, (int)o->mesh_ranks).pipeline != 1;
}

/* A row a feature: its index, the members of struct gn_train_feature up to the value that was given, and whether the options ask for it. */
#define FEATURES(X) \
	X(COMPRESS, "--compress", "--compress topk:0.1", o->compress, method_of(o) != GN_COMPRESS_NONE) \
	X(AUTO_COMPRESS, "--compress auto", "--compress auto", o->compress, method_of(o) == GN_COMPRESS_AUTO) \
	/* what it does to a gradient depends on what else is in its bucket or matrix */ \
	X(JOINT_COMPRESS, "--compress except bf16 and fp16", "--compress topk:0.1", o->compress, \
	  asks_COMPRESS(o) && method_of(o) != GN_COMPRESS_BF16 && method_of(o) != GN_COMPRESS_FP16) \
	X(AUTO_MESH, "--parallel auto", "--parallel auto", o->parallel, o->parallel && gn_mesh_is_auto(o->parallel)) \
	/* an element's fate depends on others that are not of its tensor */ \
	X(LOSSY, "--compress int8, topk:F or dgc:F", "--compress int8", o->compress, \
	  method_of(o) == GN_COMPRESS_INT8 || method_of(o) == GN_COMPRESS_TOPK || method_of(o) == GN_COMPRESS_DGC) \
	X(DGC, "--compress dgc:F", "--compress dgc:0.1", o->compress, method_of(o) == GN_COMPRESS_DGC) \
	X(LOCAL, "--local-steps", "--local-steps 4", NULL, o->local_steps > 1) \
	X(SHARD, "--shard", "--shard optimizer", NULL, gn_shard_mode_of(o->shard) != GN_SHARD_NONE) \
	X(SHARD_GRADIENTS, "--shard gradients", "--shard gradients", NULL, gn_shard_mode_of(o->shard) == GN_SHARD_GRADIENTS) \
	X(GPU, "--device cuda or auto", "--device cuda", o->device, !strcmp(o->device, "cuda") || !strcmp(o->device, "auto")) \
	X(SHARED, "--algo shared", "--algo shared", NULL, !strcmp(o->algo, "shared")) \
	X(NETWORK, "--transport tcp, rc or ud", "--transport tcp", o->transport, \
	  !strcmp(o->transport, "tcp") || !strcmp(o->transport, "rc") || !strcmp(o->transport, "ud")) \
	/* algorithms that only an allreduce has */ \
	X(ALLREDUCE, "--algo except auto and ring", "--algo double-tree", o->algo, strcmp(o->algo, "auto") && strcmp(o->algo, "ring")) \
	X(OTHER_THAN_SGD, "--optimizer other than sgd", "--optimizer adamw", o->optimizer, strcmp(o->optimizer, "sgd") != 0) \
	X(LARGE_BATCH, "--optimizer lars or lamb", "--optimizer lars", o->optimizer, \
	  !strcmp(o->optimizer, "lars") || !strcmp(o->optimizer, "lamb")) \
	X(NESTEROV, "--nesterov", "--nesterov", NULL, o->nesterov) \
	X(AVERAGE, "--ema", "--ema 0.99", NULL, o->ema > 0) \
	X(SERVERS, "--update except allreduce", "--update sync --servers 1", o->update, gn_train_servers(o).mode != GN_UPDATE_ALLREDUCE) \
	/* workers take steps one by one */ \
	X(ASYNC, "--update async or ssp:N", "--update async --servers 1", o->update, gn_train_servers(o).mode > GN_UPDATE_SYNC) \
	X(CLIP, "--clip", "--clip 1", NULL, o->clip > 0) \
	X(SYNC_BN, "--sync-bn", "--sync-bn all", NULL, o->sync_bn != NULL) \
	X(HALVING, "--halving", "--halving 2:2", NULL, o->halving != NULL) \
	X(TRACE, "--trace", "--trace t.json", NULL, o->trace != NULL) \
	X(CLASS_WEIGHTS, "--class-weights", "--class-weights balanced", NULL, o->class_weights != NULL) \
	X(ELASTIC, "--elastic", "--elastic 2", NULL, gn_elastic_least(o) > 0) \
	/* others may join */ \
	X(GROWTH, "--elastic MIN:MAX", "--elastic 2:4 --checkpoint c", NULL, gn_elastic_most(o) > 0) \
	X(LOCAL_FOLDER, "--checkpoint-local", "--checkpoint c --checkpoint-local l", NULL, o->checkpoint_local != NULL) \
	X(PIPELINE, "--parallel with pipeline", "--parallel data=1,pipeline=2", o->parallel, \
	  asks_AUTO_MESH(o) || mesh_of(o, (int)o->mesh_ranks).pipeline > 1) \
	/* which needs a pipeline */ \
	X(ASYNC_PIPELINE, "--pipe-schedule pipedream or decoupled", "--pipe-schedule pipedream", o->pipe_schedule, \
	  gn_pipe_kind_is_async(gn_pipe_kind_of(o->pipe_schedule))) \
	X(RESIZE, "--resize-schedule", "--resize-schedule 0:16,1:28", NULL, o->resize_schedule != NULL) \
	X(FREEZE, "--freeze", "--freeze conv1.*", NULL, o->freeze.count > 0) \
	X(KEPT_BATCH, "--elastic with --elastic-batch keep", "--elastic 2", NULL, \
	  gn_elastic_least(o) > 0 && !(o->elastic_batch && !strcmp(o->elastic_batch, "scale"))) \
	X(SCALED_BATCH, "--elastic with --elastic-batch scale", "--elastic 2 --elastic-batch scale", NULL, \
	  gn_elastic_least(o) > 0 && !asks_KEPT_BATCH(o)) \
	X(GLOBAL_BATCH, "--global-batch", "--global-batch 64", NULL, o->global_batch > 0) \
	X(TENSOR, "--parallel with tensor", "--parallel data=1,tensor=2", o->parallel, mesh_of(o, 0).tensor > 1) \
	X(RECOMPUTE, "--recompute", "--parallel data=1,pipeline=2 --recompute", NULL, o->recompute) \
	X(HOST_OPTIMIZER, "--optimizer adamw or rmsprop", "--optimizer adamw", o->optimizer, \
	  !strcmp(o->optimizer, "adamw") || !strcmp(o->optimizer, "rmsprop"))

enum {
#define X(feature, name, example, value, test) feature,
	FEATURES(X)
#undef X
};

#define X(feature, name, example, value, test) \
	static int asks_##feature(const struct gn_train_options *o) \
	{ \
		return test; \
	} \
	static const char *value_##feature(const struct gn_train_options *o) \
	{ \
		return (void)o, value; \
	}
FEATURES(X)
#undef X

static const struct gn_train_feature features[] = {
#define X(feature, name, example, value, test) {name, example, asks_##feature, value_##feature},
	FEATURES(X)
#undef X
};

static const struct gn_train_conflict conflicts[] = {
	{&features[COMPRESS], &features[GPU], "gradients are compressed in the host's memory only"},
	{&features[COMPRESS], &features[SHARED], "ranks that read each other's gradients in place send nothing that could be compressed"},
	{&features[SHARED], &features[NETWORK], "ranks sum in memory that they share, not by messages"},
	{&features[DGC], &features[OTHER_THAN_SGD], "dgc applies the momentum of sgd on each rank before it selects"},
	{&features[DGC], &features[NESTEROV], "dgc applies the momentum of sgd on each rank before it selects"},
	{&features[LOCAL], &features[COMPRESS], "ranks average parameters, and compression is for gradients"},
	{&features[LOCAL], &features[GPU], "ranks average parameters in the host's memory only"},
	{&features[LOCAL], &features[AVERAGE], "the moving average would be of each rank's own parameters"},
	{&features[SHARD], &features[COMPRESS], "each rank gets only the sums of its part, and compression is for all of them"},
	{&features[SHARD], &features[LOCAL], "no rank has the optimizer state of all parameters"},
	{&features[SHARD], &features[GPU], "parts are updated in the host's memory only"},
	{&features[SHARD], &features[ALLREDUCE], "gradients are summed by a reduce-scatter, which has no such algorithm"},
	{&features[SERVERS], &features[COMPRESS], "servers add what workers push as it is, in fp32"},
	{&features[SERVERS], &features[LOCAL], "servers have the parameters, and workers do not average theirs"},
	{&features[SERVERS], &features[SHARD], "servers have the optimizer state already, each of its part"},
	{&features[SERVERS], &features[GPU], "gradients are pushed from the host's memory only, and parameters updated there"},
	{&features[SERVERS], &features[LARGE_BATCH], "its rates are of norms of whole tensors, and a server has parts of them"},
	{&features[SERVERS], &features[CLASS_WEIGHTS], "the loss is divided by the weights of all workers' labels, which a server does not know"},
	{&features[SERVERS], &features[CLIP], "the norm is of the whole gradient, and a server has a part of it"},
	{&features[CLASS_WEIGHTS], &features[GPU], "the weighted loss is computed on processors only"},
	{&features[ASYNC], &features[SYNC_BN], "workers do not take their steps at the same time"},
	{&features[ASYNC], &features[HALVING], "trials are compared at a step of all ranks, and each worker counts its own"},
	{&features[ASYNC], &features[TRACE], "a trace is gathered from all ranks together, which one that is lost would stop"},
	{&features[ELASTIC], &features[COMPRESS], "what a rank kept back of its gradients is lost with it"},
	{&features[ELASTIC], &features[LOCAL], "what a rank trained since the last average is lost with it"},
	{&features[ELASTIC], &features[SERVERS], "a part of the parameters is lost with its server"},
	{&features[ELASTIC], &features[GPU], "the state is kept in the host's memory only"},
	{&features[ELASTIC], &features[HALVING], "trials are compared at steps that another number of ranks moves"},
	{&features[ELASTIC], &features[TRACE], "a trace is of ranks that stay the same"},
	{&features[KEPT_BATCH], &features[SYNC_BN], "ranks whose batches are of one statistic need as many of them each: give --elastic-batch scale"},
	{&features[GLOBAL_BATCH], &features[SYNC_BN], "ranks whose batches are of one statistic need as many of them each"},
	{&features[GLOBAL_BATCH], &features[SCALED_BATCH], "the global batch that was given would not stay"},
	{&features[GLOBAL_BATCH], &features[LOCAL], "a rank trains by the mean of its own batches, of which ranks may have different numbers"},
	{&features[GLOBAL_BATCH], &features[SERVERS], "servers take the same share of each worker's gradients"},
	{&features[ELASTIC], &features[LOCAL_FOLDER], "parts of checkpoints are lost with the node that has them"},
	{&features[FREEZE], &features[CLIP], "the norm is of all gradients"},
	{&features[AUTO_MESH], &features[ELASTIC], "the ranks that are left form pipelines of as many stages as before: give --parallel pipeline=P"},
	{&features[AUTO_MESH], &features[ASYNC_PIPELINE], "each micro-batch is an update, so that what is trained depends on the mesh: give the mesh"},
	{&features[RECOMPUTE], &features[AUTO_MESH], "time and memory of meshes are predicted without it: give the mesh"},
	{&features[AUTO_MESH], &features[SYNC_BN], "which batches are of one statistic depends on the mesh that is measured to be fastest: give the mesh"},
	{&features[AUTO_MESH], &features[JOINT_COMPRESS], "what is compressed together depends on the mesh that is measured to be fastest: give the mesh"},
	{&features[PIPELINE], &features[AUTO_COMPRESS], "methods are compared on the gradients of a whole network: name one"},
	{&features[PIPELINE], &features[DGC], "it clips by the norm of a rank's whole gradient, of which a stage has a part"},
	{&features[PIPELINE], &features[LOCAL], "stages of one network cannot train by themselves"},
	{&features[PIPELINE], &features[SHARD_GRADIENTS], "a stage adds up the gradients of its micro-batches before ranks sum them: give --shard optimizer"},
	{&features[PIPELINE], &features[SERVERS], "servers have the whole network's parameters"},
	{&features[HOST_OPTIMIZER], &features[GPU], "their update is computed on processors only"},
	{&features[PIPELINE], &features[GPU], "stages compute in the host's memory only"},
	{&features[PIPELINE], &features[LOCAL_FOLDER], "each stage writes its own part of a checkpoint, and nodes keep whole ones"},
	{&features[PIPELINE], &features[RESIZE], "stages exchange activations of one size"},
	{&features[PIPELINE], &features[FREEZE], "a stage might have nothing left to train"},
	{&features[TENSOR], &features[AUTO_COMPRESS], "methods are compared on the gradients of a whole network: name one"},
	{&features[TENSOR], &features[LOSSY], "what slices have copies of is rounded or left out with its neighbours, which differ: give bf16, fp16 or powersgd:R"},
	{&features[TENSOR], &features[LOCAL], "slices of one network cannot train by themselves"},
	{&features[TENSOR], &features[SERVERS], "servers have the whole network's parameters"},
	{&features[TENSOR], &features[GPU], "activations are exchanged in the host's memory only"},
	{&features[TENSOR], &features[SYNC_BN], "statistics are of the channels that a rank has, which others do not have"},
	{&features[TENSOR], &features[ELASTIC], "slices of the network are lost with their rank"},
	{&features[TENSOR], &features[LOCAL_FOLDER], "the first rank writes the slices of all, and nodes keep what their own ranks have"},
	{&features[TENSOR], &features[RESIZE], "ranks exchange activations of one size"},
	{&features[ASYNC_PIPELINE], &features[COMPRESS], "each micro-batch is an update, and what is kept back would come many updates late"},
	{&features[ASYNC_PIPELINE], &features[SHARD], "stages keep versions of all their parameters, and update them after each micro-batch"},
	{&features[ASYNC_PIPELINE], &features[CLIP], "the norm is of all stages, which do not wait for each other"},
	{&features[ASYNC_PIPELINE], &features[CLASS_WEIGHTS], "stages update before the weights of a batch's labels have come back to them"},
	{&features[ASYNC_PIPELINE], &features[ELASTIC], "stages are at different micro-batches when one is lost"},
	{&features[ASYNC_PIPELINE], &features[TENSOR], "slices of a stage share flags at each update, and such stages when they pause"},
	{&features[ASYNC_PIPELINE], &features[GLOBAL_BATCH], "each micro-batch is an update"},
	{&features[ASYNC_PIPELINE], &features[RECOMPUTE], "a stage has updated its parameters before it would run a forward again"},
};

const struct gn_train_feature *gn_train_features(size_t *count)
{
	*count = sizeof features / sizeof *features;
	return features;
}

const struct gn_train_conflict *gn_train_conflicts(size_t *count)
{
	*count = sizeof conflicts / sizeof *conflicts;
	return conflicts;
}

static enum gn_status check_parallel(const struct gn_train_options *o, struct gn_err *err)
{
	struct gn_mesh_shape shape;
	enum gn_status status = o->parallel ? gn_mesh_parse(o->parallel, 0, &shape, err) : GN_OK;

	if (status)
		return status;
	if (o->micro_batches > 1 && o->batch % o->micro_batches)
		return gn_err_set(err, GN_ERR_USAGE, "--micro-batches %lld does not divide --batch %lld", (long long)o->micro_batches,
				  (long long)o->batch);
	if (o->accumulate * o->micro_batches > GN_STEP_BATCHES_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "--accumulate %lld x --micro-batches %lld: a step has at most %d batches of a rank",
				  (long long)o->accumulate, (long long)o->micro_batches, GN_STEP_BATCHES_MAX);
	if (o->parallel && shape.data && shape.pipeline == 1 && shape.tensor == 1 && asks_ELASTIC(o))
		return gn_err_set(err, GN_ERR_USAGE, "--parallel %s and --elastic cannot be combined: the number of ranks changes; leave --parallel out",
				  o->parallel);
	if (o->parallel && asks_SHARD(o) && asks_ELASTIC(o) && (shape.pipeline != 1 || shape.tensor > 1))
		return gn_err_set(err, GN_ERR_USAGE, "--parallel %s, --shard and --elastic cannot be combined: a lost rank's part of its stage's optimizer state has "
				  "no copy; leave --shard out", o->parallel);
	if (asks_AUTO_MESH(o) && o->cut)
		return gn_err_set(err, GN_ERR_USAGE, "--cut and --parallel auto: each mesh has cuts of its own; give the mesh, or leave --cut out");
	if (o->recompute && !may_be_pipeline(o))
		return gn_err_set(err, GN_ERR_USAGE, "--recompute is of stages, and needs a pipeline: give --parallel pipeline=N, too");
	if (o->cut && !may_be_pipeline(o))
		return gn_err_set(err, GN_ERR_USAGE, "--cut is where stages of a pipeline begin: give --parallel pipeline=N, too");
	return GN_OK;
}

/* As it was given: "--update async". */
static void name_given(const struct gn_train_options *o, const struct gn_train_feature *f, char *out, size_t size)
{
	if (f->value(o))
		snprintf(out, size, "%.*s %s", (int)strcspn(f->name, " "), f->name, f->value(o));
	else
		snprintf(out, size, "%s", f->name);
}

static enum gn_status refuse(const struct gn_train_options *o, const struct gn_train_conflict *c, struct gn_err *err)
{
	char one[80], other[80];

	name_given(o, c->one, one, sizeof one);
	name_given(o, c->other, other, sizeof other);
	return gn_err_set(err, GN_ERR_USAGE, "%s and %s cannot be combined: %s%s", one, other, c->reason,
			  strstr(c->reason, ": give ") ? "" : "; leave one of them out");
}

enum gn_status gn_train_check_options(const struct gn_train_options *o, struct gn_err *err)
{
	struct gn_compress_spec spec;
	struct gn_loader_options lo = {0};
	struct gn_server_spec servers;
	enum gn_status status = gn_compress_parse(o->compress, &spec, err);

	if (!status)
		status = gn_augment_options_parse(o, &lo, err);
	if (!status)
		status = gn_class_weights_check(o->class_weights, err);
	if (!status)
		status = gn_server_parse(o->update, o->servers, &servers, err);
	if (!status && o->stage)
		status = gn_folders_check("--stage", o->stage, err);
	if (!status)
		status = check_parallel(o, err);
	if (!status && o->local_from && o->local_steps <= 1)
		status = gn_err_set(err, GN_ERR_USAGE, "--local-from says when --local-steps begin: give --local-steps, too");

	for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts && !status; i++) {
		const struct gn_train_conflict *c = &conflicts[i];

		if (c->one->is_asked(o) && c->other->is_asked(o))
			status = refuse(o, c, err);
	}
	return status;
}
