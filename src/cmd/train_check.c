/* Options of gannet train that do not fit together, or need others. */
#include "src/cmd/train_internal.h"

#include "src/base/file.h"
#include "src/train/loop/combine.h"
#include "src/train/loop/carried.h"
#include "src/train/model/init.h"
#include "src/train/optim/lr.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/shard.h"
#include "transport/coll/coll_device.h"

#include <string.h>

/* Refuses contradictory and missing lengths of the run. */
static enum gn_status check_length(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->steps && gn_options_given(&gn_train_command, o, "epochs"))
		return gn_err_set(err, GN_ERR_USAGE, "--epochs and --steps both set the length of the run: give only one");
	if (!o->steps && !o->epochs && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "--epochs 0 only evaluates: give --val DIR");
	return GN_OK;
}

static enum gn_status check_batch(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->global_batch && o->accumulate > 1)
		return gn_err_set(err, GN_ERR_USAGE, "--accumulate and --global-batch both set the batches of a step: give only one");
	if (o->global_batch % o->batch)
		return gn_err_set(err, GN_ERR_USAGE, "--global-batch %lld is no multiple of --batch %lld", (long long)o->global_batch,
				  (long long)o->batch);
	return GN_OK;
}

static enum gn_status check_elastic(const struct gn_train_options *o, struct gn_err *err)
{
	struct gn_mesh_shape shape;
	const int is_pipeline = o->parallel && !gn_mesh_parse(o->parallel, 0, &shape, NULL) && shape.pipeline != 1;
	int least, most;
	enum gn_status status = gn_elastic_parse(o->elastic, &least, &most, err);

	if (status)
		return status;
	if (least && !o->checkpoint && is_pipeline)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic with --parallel goes back to the last checkpoint when no rank that is left has a stage: give "
				  "--checkpoint DIR");
	if (o->redundancy && (!least || (gn_shard_mode_of(o->shard) == GN_SHARD_NONE && !is_pipeline)))
		return gn_err_set(err, GN_ERR_USAGE, "--redundancy copies parts of the optimizer state, or stages, so that their loss is survived: give --elastic MIN and "
				  "--shard optimizer or gradients, or pipelines");
	if (o->spares && !least)
		return gn_err_set(err, GN_ERR_USAGE, "--spares take the place of lost ranks: give --elastic MIN");
	if (o->slow_replace && !least)
		return gn_err_set(err, GN_ERR_USAGE, "--slow-replace gives the place of a slow rank to one that waits: give --elastic MIN and --spares N, or "
				  "--elastic MIN:MAX");
	if (o->slow_replace && !(o->slow_factor > 0))
		return gn_err_set(err, GN_ERR_USAGE, "--slow-replace is of slow ranks: --slow-factor 0 finds none");
	if (o->join && !most)
		return gn_err_set(err, GN_ERR_USAGE, "--join is for a run with --elastic MIN:MAX: give its options by --options %s/options", o->join);
	if (o->join && o->checkpoint != o->join && !gn_file_is_same(o->join, o->checkpoint))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint %s is not the folder of the run that --join names: leave --checkpoint out",
				  o->checkpoint);
	if (most && !o->join && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic MIN:MAX is for others that find the run by its folder: give --checkpoint DIR");
	return GN_OK;
}

static enum gn_status check_needs(const struct gn_train_options *o, struct gn_err *err)
{
	int keeps = strcmp(o->keep_best, "none") != 0;
	const char *asks = keeps ? "--keep-best" : o->patience ? "--patience" : o->eval_steps ? "--eval-steps" : o->eval_first ? "--eval-first"
			   : NULL;

	if (!strcmp(o->init_head, "skip") && !gn_init_is_file(o->init))
		return gn_err_set(err, GN_ERR_USAGE, "--init-head skip is of a file of weights: give --init FILE.safetensors");
	if (gn_lr_scale_check(&o->lr_scale, err))
		return GN_ERR_USAGE;
	if (!o->parallel && gn_options_given(&gn_train_command, o, "pipe-schedule"))
		return gn_err_set(err, GN_ERR_USAGE, "--pipe-schedule is of pipelines: give --parallel data=D,pipeline=P, too");
	if (asks && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "%s is of evaluations: give --val DIR", asks);
	if (keeps && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--keep-best keeps a checkpoint: give --checkpoint DIR");
	if (o->checkpoint_key && !o->checkpoint && !strcmp(o->resume, "none"))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-key encrypts checkpoints: give --checkpoint DIR");
	if (gn_elastic_least(o) && gn_shard_mode_of(o->shard) != GN_SHARD_NONE && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic with --shard goes back to the last checkpoint after a loss, for a part of the optimizer "
				  "state is lost with its rank: give --checkpoint DIR");
	if (check_elastic(o, err))
		return GN_ERR_USAGE;
	if (o->checkpoint_local && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-local holds what goes on to the shared folder: give --checkpoint DIR");
	if (!strcmp(o->keep_best, "ema-top1") && !(o->ema > 0))
		return gn_err_set(err, GN_ERR_USAGE, "--keep-best ema-top1 is of the moving average: give --ema X");
	return GN_OK;
}

enum gn_status gn_train_check_alone(const struct gn_train_options *given, struct gn_err *err)
{
	struct gn_train_options filled = *given;
	const struct gn_train_options *o = &filled;
	enum gn_status status = check_length(o, err);

	/* who joins a run has its folder, which a file of options does not repeat */
	if (!filled.checkpoint)
		filled.checkpoint = filled.join;
	if (!status)
		status = check_batch(o, err);
	if (!status)
		status = check_needs(o, err);
	/* before any collective call: how auto is resolved, and whether NCCL is available, is known only later */
	if (!status)
		status = gn_coll_backend_check(o->comm, strcmp(o->device, "auto") ? o->device : "cuda", gn_device_is_built("cuda"), err);
	return status ? status : gn_train_check_options(o, err);
}
