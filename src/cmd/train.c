#include "src/cmd/train.h"

#include "src/cmd/stop.h"
#include "src/config.h"
#include "src/train/plan/device.h"
#include "src/train/loop/input.h"
#include "src/train/model/model.h"
#include "src/train/optim/recipe.h"
#include "transport/topology/affinity.h"
#include "transport/coll/coll_backend.h"

#include <stdlib.h>
#include <string.h>

/* Options that ranks may have of their own: where to write, and how many threads. Paths of the data differ from node to node,
 * too: what is in them is compared instead. */
static const char *const own_options[] = {"data", "val", "checkpoint", "log", "threads", "loader-threads", "prefetch",
					  "init", "tuning", "progress", "join-timeout", "heartbeat-timeout", "stall-timeout", "socket-ifname", NULL};

/* "goyal for a global batch of 256: epochs=90 ...; given: lr" */
static void tell_recipe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t batch,
			struct gn_strbuf *out)
{
	int given = 0;

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
}

/* Fills in what the recipe says and nobody gave. recipe's texts are borrowed by o. */
static enum gn_status apply_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				   struct gn_strbuf *text, struct gn_err *err)
{
	int filled[GN_RECIPE_CHOICES_MAX];
	int64_t batch = o->batch * ranks * o->accumulate;
	enum gn_status status = gn_recipe_find(o->recipe, batch, recipe, err);

	for (size_t i = 0; !status && i < recipe->count; i++) {
		const char *option = recipe->choices[i].option;

		status = gn_options_fill(&gn_train_command, o, option, recipe->choices[i].value, &filled[i], err);
		if (!strcmp(option, "warmup-epochs") && filled[i])
			o->warmup_of = recipe->epochs;
		if (!strcmp(option, "milestones") && filled[i])
			o->milestones_of = recipe->epochs;
	}
	if (status)
		return gn_err_prefix(err, "recipe %s", o->recipe);
	tell_recipe(o->recipe, recipe, filled, batch, text);
	o->recipe_text = gn_strbuf_text(text);
	return GN_OK;
}

/* One warning of options that were given and do nothing beside the others. */
static void warn_of_idle(const struct gn_train_options *given, const struct gn_train_options *o, struct gn_log *log)
{
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	int milestones = gn_options_given(&gn_train_command, given, "milestones");
	int factor = gn_options_given(&gn_train_command, given, "lr-factor");
	enum gn_augment augment;
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	if (strcmp(o->schedule, "step") && (milestones || factor))
		gn_strbuf_printf(&text, "%s%s%s, which --schedule step has, not %s", milestones ? "--milestones" : "",
				 milestones && factor ? " and " : "", factor ? "--lr-factor" : "", o->schedule);
	if (gn_options_given(&gn_train_command, given, "pad") && !gn_input_augment_parse(o->augment, side, &augment, NULL) &&
	    (augment == GN_AUGMENT_NONE || augment == GN_AUGMENT_CROP_FLIP))
		gn_strbuf_printf(&text, "%s--pad, which --augment shift and shift-flip have, not %s", text.len ? "; " : "",
				 augment == GN_AUGMENT_NONE ? "none" : "crop-flip");
	if (text.len && !gn_strbuf_failed(&text))
		gn_log_warn(log, "options that do nothing here: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* *told: as gn_train_run has it. */
static enum gn_status train_in_world(const struct gn_train_options *given, struct gn_world *world,
				     const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = given->transport, .tuning = given->tuning, .rails = (int)given->rails,
				     .strict = given->transport_strict, .progress = given->progress};
	struct gn_train_options filled = *given, *o = &filled;
	struct gn_strbuf agreed, all, recipe_text;
	struct gn_recipe recipe;
	char gpu[GN_DEVICE_PCI_MAX];
	struct gn_comm *comm;
	int measure = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_strbuf_init(&agreed);
	gn_strbuf_init(&all);
	gn_strbuf_init(&recipe_text);
	gn_device_pci(given->device, gn_world_local_rank(world), gpu);
	status = gn_affinity_report(comm, *gpu ? gpu : NULL, log, err);
	if (!status)
		status = gn_options_fill(&gn_train_command, o, "overlap", "yes", &measure, err);
	if (measure)
		o->overlap = GN_OVERLAP_MEASURE;
	if (!status && o->recipe)
		status = apply_recipe(o, gn_comm_size(comm), &recipe, &recipe_text, err);
	if (!status && gn_comm_rank(comm) == 0 && (o->steps || o->epochs))
		warn_of_idle(given, o, log);
	gn_options_describe(&gn_train_command, o, own_options, &agreed);
	gn_options_describe(&gn_train_command, o, NULL, &all);
	o->options_text = gn_strbuf_text(&all);
	if (!status && (gn_strbuf_failed(&agreed) || gn_strbuf_failed(&all) || gn_strbuf_failed(&recipe_text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	if (!status)
		status = gn_train_run(o, gn_strbuf_text(&agreed), stop, comm, log, told, err);
	gn_strbuf_release(&agreed);
	gn_strbuf_release(&all);
	gn_strbuf_release(&recipe_text);
	gn_comm_destroy(comm);
	return status;
}

/* Before any rank waits for another. What auto comes to is found later, and then whether NCCL can be had. */
static enum gn_status check_comm(const struct gn_train_options *o, struct gn_err *err)
{
#ifdef HAVE_CUDA
	int built_in = 1;
#else
	int built_in = 0;
#endif

	return gn_coll_backend_check(o->comm, strcmp(o->device, "auto") ? o->device : "cuda", built_in, err);
}

/* Options that say two things, or nothing. */
static enum gn_status check_length(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->steps && gn_options_given(&gn_train_command, o, "epochs"))
		return gn_err_set(err, GN_ERR_USAGE, "--epochs and --steps both say how long the run is: give one of them");
	if (!o->steps && !o->epochs && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "--epochs 0 trains nothing and only evaluates: give --val DIR");
	return GN_OK;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_train_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = check_length(target, &err);
	int told = 0;

	(void)positional;
	if (!status)
		status = check_comm(target, &err);
	if (!status)
		status = gn_stop_create(log, &stop, &err);
	if (!status)
		status = gn_world_create(&o->world, log, &world, &err);
	if (!status) {
		gn_stop_begin(stop);
		if (gn_world_rank(world) > 0)
			gn_stop_be_quiet(stop);
		status = train_in_world(target, world, gn_stop_flag(stop), log, &told, &err);
		gn_world_destroy(world);
	}
	if (status && !told)
		gn_log_line(log, status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "train: %s", err.text);
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_train = {&gn_train_command, run, sizeof(struct gn_train_options)};
