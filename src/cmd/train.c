#include "src/cmd/train.h"

#include "src/config.h"
#include "src/train/device.h"
#include "src/train/recipe.h"
#include "transport/affinity.h"
#include "transport/carrier.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Set by the signal thread, read by the trainer between steps. */
static volatile sig_atomic_t stop_requested;

static void stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGUSR1);
}

static void *await_stop(void *unused)
{
	sigset_t set;
	int number;

	stop_signals(&set);
	while (!sigwait(&set, &number))
		stop_requested = 1;
	return unused;
}

/* No handler: oneDNN's generated matrix code keeps data addresses in the stack pointer, and the frame that the kernel pushes
 * for a handler would land in the middle of the heap. All threads block these signals, and one that computes nothing takes
 * them. To be called before any other thread starts. */
static enum gn_status catch_signals(struct gn_err *err)
{
	pthread_t id;
	sigset_t set;

	stop_signals(&set);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) || pthread_create(&id, NULL, await_stop, NULL))
		return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread for signals (see ulimit -u)");
	pthread_detach(id);
	return GN_OK;
}

/* Options that ranks may have of their own: where to write, and how many threads. Paths of the data differ from node to node,
 * too: what is in them is compared instead. */
static const char *const own_options[] = {"data", "val", "checkpoint", "log", "threads", "loader-threads", "prefetch",
					  "init", "tuning", "progress", NULL};

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

	for (size_t i = 0; !status && i < recipe->count; i++)
		status = gn_options_fill(&gn_train_command, o, recipe->choices[i].option, recipe->choices[i].value, &filled[i],
					 err);
	if (status)
		return gn_err_prefix(err, "recipe %s", o->recipe);
	tell_recipe(o->recipe, recipe, filled, batch, text);
	o->recipe_text = gn_strbuf_text(text);
	return GN_OK;
}

/* *told: as gn_train_run has it. */
static enum gn_status train_in_world(const struct gn_train_options *given, struct gn_world *world, struct gn_log *log,
				     int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = given->transport, .tuning = given->tuning, .rails = (int)given->rails,
				     .progress = given->progress};
	struct gn_train_options filled = *given, *o = &filled;
	struct gn_strbuf text, recipe_text;
	struct gn_recipe recipe;
	char gpu[GN_DEVICE_PCI_MAX];
	struct gn_comm *comm;
	int measure = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_strbuf_init(&text);
	gn_strbuf_init(&recipe_text);
	gn_device_pci(given->device, gn_world_local_rank(world), gpu);
	status = gn_affinity_report(comm, *gpu ? gpu : NULL, log, err);
	if (!status)
		status = gn_options_fill(&gn_train_command, o, "overlap", "yes", &measure, err);
	if (measure)
		o->overlap = GN_OVERLAP_MEASURE;
	if (!status && o->recipe)
		status = apply_recipe(o, gn_comm_size(comm), &recipe, &recipe_text, err);
	gn_options_describe(&gn_train_command, o, own_options, &text);
	if (!status && (gn_strbuf_failed(&text) || gn_strbuf_failed(&recipe_text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	if (!status)
		status = gn_train_run(o, gn_strbuf_text(&text), &stop_requested, comm, log, told, err);
	gn_strbuf_release(&text);
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

	return gn_carrier_check(o->comm, strcmp(o->device, "auto") ? o->device : "cuda", built_in, err);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_world_options world_options = {0};
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = check_comm(target, &err);
	int told = 0;

	(void)positional;
	if (!status)
		status = catch_signals(&err);
	if (!status)
		status = gn_world_create(&world_options, log, &world, &err);
	if (!status) {
		status = train_in_world(target, world, log, &told, &err);
		gn_world_destroy(world);
	}
	if (status && !told)
		gn_log_line(log, status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "train: %s", err.text);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_train = {&gn_train_command, run, sizeof(struct gn_train_options)};
