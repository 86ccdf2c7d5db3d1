/* gannet train: recipes, and a run in one world. */
#include "src/cmd/train_internal.h"

#include "src/base/data_key.h"
#include "src/base/file.h"
#include "src/base/version.h"
#include "src/cmd/stop.h"
#include "src/jobs/sweep_status.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/combine.h"
#include "src/train/loop/input.h"
#include "src/train/loop/served.h"
#include "src/train/model/init.h"
#include "src/train/model/model.h"
#include "src/train/optim/lr.h"
#include "src/train/optim/recipe.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/shard.h"
#include "src/train/plan/device.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/coll/affinity_report.h"
#include "transport/coll/coll_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of gannet train that do not fit together, or need others. */

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

/* Before any collective call; without what a recipe fills in. */
static enum gn_status train_check_alone(const struct gn_train_options *given, struct gn_err *err)
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

/* Logs the recipe: "goyal for a global batch of 256: epochs=90 ...; given: lr". */
static void log_recipe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t batch,
			struct gn_strbuf *out)
{
	int given = 0, missing = 0;

	gn_strbuf_printf(out, "%s for a global batch of %lld", name, (long long)batch);
	if (recipe->batch && recipe->batch != batch)
		gn_strbuf_printf(out, " (the nearest published one is %lld%s)", (long long)recipe->batch,
				 batch > 2 * recipe->batch || 2 * batch < recipe->batch ? ", far from it" : "");
	gn_strbuf_puts(out, ":");
	for (size_t i = 0; i < recipe->count; i++)
		if (filled[i])
			gn_strbuf_printf(out, " %s=%s", recipe->choices[i].option, recipe->choices[i].value);
	for (size_t i = 0; i < recipe->count; i++)
		if (!filled[i])
			gn_strbuf_printf(out, "%s%s", given++ ? " " : "; given: ", recipe->choices[i].option);
	for (const char *const *m = recipe->missing; m && *m; m++)
		gn_strbuf_printf(out, "%s%s", missing++ ? ", " : "; missing here: ", *m);
}

/* Sets the options of the recipe that were not given; *batch: the global one. */
static enum gn_status fill_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				  int filled[GN_RECIPE_CHOICES_MAX], int64_t *batch, struct gn_err *err)
{
	enum gn_status status;

	*batch = o->global_batch ? o->global_batch : o->batch * ranks * o->accumulate;
	status = gn_recipe_find(o->recipe, *batch, recipe, err);
	if (!status)
		gn_recipe_fit(recipe, gn_options_given(&gn_train_command, o, "side") ? o->side : 0, *batch,
			      !gn_options_given(&gn_train_command, o, "lr") && !gn_options_given(&gn_train_command, o, "lr-batch"));
	for (size_t i = 0; !status && i < recipe->count; i++)
		status = gn_options_fill(&gn_train_command, o, recipe->choices[i].option, recipe->choices[i].value, &filled[i], err);
	return status ? gn_err_prefix(err, "recipe %s", o->recipe) : GN_OK;
}

/* The same for a run, with the recipe in its log. Strings of recipe are borrowed by o. */
static enum gn_status apply_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				   struct gn_strbuf *text, struct gn_err *err)
{
	int filled[GN_RECIPE_CHOICES_MAX];
	int64_t batch;
	enum gn_status status = fill_recipe(o, ranks, recipe, filled, &batch, err);

	if (status)
		return status;
	for (size_t i = 0; i < recipe->count; i++) {
		const char *option = recipe->choices[i].option;

		if (!strcmp(option, "warmup-epochs") && filled[i])
			o->warmup_of = recipe->epochs;
		if (!strcmp(option, "milestones") && filled[i])
			o->milestones_of = recipe->epochs;
	}
	log_recipe(o->recipe, recipe, filled, batch, text);
	o->recipe_text = gn_strbuf_text(text);
	return gn_train_check_options(o, err);
}

/* Warns once of all options that were given and have no effect in combination with the others. */
static void warn_of_unused(const struct gn_train_options *given, const struct gn_train_options *o, struct gn_log *log)
{
	const struct gn_command *c = &gn_train_command;
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	enum gn_augment augment;
	struct gn_strbuf text = {0};

	gn_options_unused(c, given, &text);
	for (int i = 0; i < 2 && strcmp(o->schedule, "step"); i++)
		if (gn_options_given(c, given, i ? "lr-factor" : "milestones"))
			gn_strbuf_printf(&text, "%s--%s, which --schedule step has, not %s", text.len ? "; " : "", i ? "lr-factor" : "milestones", o->schedule);
	if (gn_options_given(c, given, "pad") && !gn_input_augment_parse(o->augment, side, &augment, NULL) &&
	    (augment == GN_AUGMENT_NONE || augment == GN_AUGMENT_CROP_FLIP))
		gn_strbuf_printf(&text, "%s--pad, which --augment shift and shift-flip have, not %s", text.len ? "; " : "",
				 augment == GN_AUGMENT_NONE ? "none" : "crop-flip");
	if (text.len && !gn_strbuf_failed(&text))
		gn_log_warn(log, "options without effect in this run: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* For gn_train_options. */
static enum gn_status is_behind(const char *log, int factor, int rung, int *behind, char why[256], struct gn_err *err)
{
	size_t place, of;
	enum gn_status status = gn_halving_place(log, factor, rung, &place, &of, err);

	if (status)
		return status;
	*behind = !gn_halving_goes_on(place, of, factor);
	snprintf(why, 256, "place %zu of %zu trial%s at 1/%.0f of the steps: %s", place, of, gn_text_plural(of), pow(factor, rung),
		 *behind ? "stopping" : "going on");
	return GN_OK;
}

enum gn_status gn_train_in_world(const struct gn_train_options *given, struct gn_world *world,
				     const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = given->transport, .tuning = given->tuning, .rails = (int)given->rails,
				     .strict = given->transport_strict, .progress = given->progress};
	struct gn_train_options filled = *given, *o = &filled;
	struct gn_strbuf agreed = {0}, all = {0}, lines = {0}, recipe_text = {0};
	struct gn_recipe recipe;
	char gpu[GN_DEVICE_PCI_MAX];
	struct gn_comm *comm;
	int measure = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_device_pci(given->device, gn_world_local_rank(world), gpu);
	status = gn_affinity_report(comm, *gpu ? gpu : NULL, log, err);
	if (!status && o->carried)
		status = gn_carried_batch(o->carried, comm, o, err);
	if (!status)
		status = gn_options_fill(&gn_train_command, o, "overlap", "yes", &measure, err);
	if (measure)
		o->overlap = GN_OVERLAP_MEASURE;
	if (!status && o->recipe)
		status = apply_recipe(o, gn_train_workers(o, gn_comm_size(comm)), &recipe, &recipe_text, err);
	if (!status && o->parallel && (!o->carried || o->carried->world == 1)) {
		o->mesh_ranks = gn_train_servers(o).mode == GN_UPDATE_ALLREDUCE ? gn_comm_size(comm) : gn_train_workers(o, gn_comm_size(comm));
		status = gn_train_check_options(o, err);
		*told = status && gn_comm_rank(comm) > 0;
	}
	if (!status && gn_comm_rank(comm) == 0 && (o->steps || o->epochs))
		warn_of_unused(given, o, log);
	gn_options_describe(&gn_train_command, o, gn_train_own_options(o), &agreed);
	gn_options_describe(&gn_train_command, o, NULL, &all);
	o->options_text = gn_strbuf_text(&all);
	gn_strbuf_printf(&lines, "# gannet train --options FILE --checkpoint DIR repeats this run (gannet %s, %d rank%s)\n", gn_version(),
			 gn_comm_size(comm), gn_text_plural((uint64_t)gn_comm_size(comm)));
	gn_options_write(&gn_train_command, o, gn_train_unrepeated, &lines);
	o->options_lines = gn_strbuf_text(&lines);
	o->is_behind = is_behind;
	if (!status && (gn_strbuf_failed(&agreed) || gn_strbuf_failed(&all) || gn_strbuf_failed(&lines) || gn_strbuf_failed(&recipe_text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	/* from here on batches are micro-batches */
	o->batch /= o->micro_batches;
	o->accumulate *= o->micro_batches;
	if (!status)
		status = gn_train_served(o, gn_strbuf_text(&agreed), stop, comm, log, told, err);
	gn_strbuf_release(&agreed);
	gn_strbuf_release(&all);
	gn_strbuf_release(&lines);
	gn_strbuf_release(&recipe_text);
	gn_comm_destroy(comm);
	return status;
}

/* For gn_cmd: with what the recipe fills in, too. */
static enum gn_status check(const void *target, int64_t ranks, struct gn_err *err)
{
	struct gn_train_options filled = *(const struct gn_train_options *)target;
	struct gn_mesh_shape shape;
	struct gn_recipe recipe;
	struct gn_strbuf text = {0};
	enum gn_status status;

	if (filled.dry_run)
		return gn_err_set(err, GN_ERR_USAGE, "--dry-run prints and ends: it is not for a job");
	status = train_check_alone(&filled, err);
	if (!status && filled.parallel)
		status = gn_mesh_parse(filled.parallel, (int)(ranks - filled.spares), &shape, err);
	if (!status && filled.recipe)
		status = apply_recipe(&filled, gn_train_workers(&filled, (int)ranks), &recipe, &text, err);
	gn_strbuf_release(&text);
	return status;
}

static enum gn_status dry_run(const struct gn_train_options *given, struct gn_err *err)
{
	struct gn_train_options o = *given;
	int filled[GN_RECIPE_CHOICES_MAX];
	struct gn_recipe recipe;
	struct gn_strbuf text = {0};
	int64_t batch;
	enum gn_status status = o.recipe ? fill_recipe(&o, 1, &recipe, filled, &batch, err)
					 : gn_err_set(err, GN_ERR_USAGE, "--dry-run prints what --recipe sets: give --recipe NAME");

	if (status)
		return status;
	gn_recipe_describe(o.recipe, &recipe, filled, batch, &text);
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the recipe");
	else
		fputs(gn_strbuf_text(&text), stdout);
	gn_strbuf_release(&text);
	return status;
}

/* Whether losses of ranks are to be survived, or ranks to be won. */
static int is_elastic(const struct gn_train_options *o, const struct gn_world *world)
{
	return gn_elastic_least(o) && (gn_world_size(world) > 1 || gn_elastic_most(o) > 1);
}

static enum gn_status train_in_job(const struct gn_train_options *o, const struct gn_world_options *how, struct gn_stop *stop, struct gn_log *log,
				   int *told, struct gn_err *err)
{
	struct gn_world *world;
	enum gn_status status = gn_world_create(how, log, &world, err);

	if (status)
		return status;
	gn_stop_begin(stop);
	if (gn_world_rank(world) > 0)
		gn_stop_be_quiet(stop);
	if (is_elastic(o, world)) {
		const char *ends = getenv(GN_BOOTSTRAP_ENDS_ALL);

		if (ends && *ends == '1' && gn_world_rank(world) == 0)
			gn_log_warn(log, "--elastic goes on after a loss only until gannet launch ends the other ranks, --grace seconds later: start it with --keep-going");
		if (gn_world_size(world) == 2 && !o->checkpoint && gn_world_rank(world) == 0)
			gn_log_warn(log, "--elastic survives no loss here: one of two ranks is half of them, and goes on only with a --checkpoint folder, where "
				    "the other one would see it");
		gn_world_wait_for_nobody(world);
		status = gn_train_elastic(o, how, &world, gn_stop_flag(stop), log, told, err);
	} else {
		status = gn_train_in_world(o, world, gn_stop_flag(stop), log, told, err);
	}
	gn_world_destroy(world);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_train_options *o = target;
	struct gn_world_options how = o->world;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world = NULL; /* of a process that joins */
	struct gn_err err = {.status = GN_OK};
	enum gn_status status;
	struct gn_strbuf started_as = {0};
	int told = 0, code;

	(void)positional;
	if (o->dry_run) {
		status = dry_run(o, &err);
		gn_log_destroy(log);
		return status ? gn_cmd_fail("train", &err) : GN_EXIT_DONE;
	}
	status = train_check_alone(target, &err);
	if (!status)
		status = gn_data_key_check(o->key_file, &err);
	if (!status)
		status = gn_data_key_check(o->checkpoint_key, &err);
	if (!status)
		status = gn_stop_create(log, NULL, &stop, &err);
	how.keep_going = !status && gn_train_keeps_going(o);
	gn_strbuf_printf(&started_as, "%s ", gn_train_command.name);
	gn_options_describe(&gn_train_command, o, gn_train_own_options(o), &started_as);
	gn_strbuf_printf(&started_as, " checkpoint=%s", o->checkpoint || o->join ? "(a folder)" : "");
	gn_world_set_command(gn_strbuf_text(&started_as));
	if (status && !o->join) {
		gn_cmd_decline(log, "train", &err);
	} else if (!status && o->join) {
		gn_stop_begin(stop);
		status = gn_train_elastic(o, &how, &world, gn_stop_flag(stop), log, &told, &err);
	} else if (!status) {
		status = train_in_job(o, &how, stop, log, &told, &err);
	}
	err.told |= told;
	code = status ? gn_cmd_fail_on(log, "train", &err) : GN_EXIT_DONE;
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	gn_strbuf_release(&started_as);
	return code;
}

const struct gn_cmd gn_cmd_train = {.command = &gn_train_command, .run = run, .options_size = sizeof(struct gn_train_options), .joins = 1, .check = check};
