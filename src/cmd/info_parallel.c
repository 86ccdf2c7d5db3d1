/* gannet info --plan MODEL --parallel MESH: what a step of a mesh should take (src/train/parallel/pipe_forecast.h). */
#include "src/cmd/info.h"

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/base/strbuf.h"
#include "src/base/thread_pool.h"
#include "src/cmd/cmd.h"
#include "src/train/parallel/bucket_autotune.h"
#include "src/train/parallel/pipe_forecast.h"
#include "src/train/plan/device.h"

#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS_SHOWN = 4, BESIDE_MAX = 255 };

/* What all meshes share. */
struct question {
	const struct gn_info_plan_options *o;
	struct gn_pipe_question ask;
	struct gn_model *model;
	struct gn_mesh_shape shape; /* but with auto */
	struct answer {
		double step_s;
		char *text; /* a row, or a JSON object */
	} *answers;	    /* with auto, of one mesh each */
	size_t count, room;
};

/* Processes that measure a network's pieces as long as this one does, as the other ranks of a node would compute beside it. */

static void measure_for_ever(const struct gn_model *model, const struct gn_plan_options *plan, pid_t parent)
{
	struct gn_cut_costs costs = {.pieces = NULL};
	struct gn_err err;

	while (getppid() == parent && !gn_cut_costs_measure(model, plan, 1, &costs, &err))
		gn_cut_costs_release(&costs);
	_exit(0);
}

/* Starts processes that measure pieces until they are stopped: with this one as many as the ranks of a node, and no more than there are
 * processors for. Before any other thread. Returns their number. */
static int info_beside_start(const struct gn_model *model, const struct gn_plan_options *plan, int ranks, pid_t pids[BESIDE_MAX])
{
	const int room = gn_cpu_count() / omp_get_max_threads(), all = ranks < room ? ranks : room;
	const pid_t parent = getpid();
	int count = 0;

	/* no thread but this one is there yet */
	while (count + 1 < all && count < BESIDE_MAX) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			measure_for_ever(model, plan, parent);
		}
		pids[count++] = pid;
	}
	return count;
}

static void info_beside_stop(const pid_t *pids, int count)
{
	for (int i = 0; i < count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < count; i++)
		waitpid(pids[i], NULL, 0);
}

/* Of gannet sim's machine, what has no option here is its default. */
static enum gn_status read_machine(const struct gn_info_plan_options *o, struct gn_sim_topology *out, struct gn_err *err)
{
	const struct gn_sim_machine *given = &o->sim.machine;
	struct gn_sim_options sim = o->sim;

	sim.machine = (struct gn_sim_machine){given->nodes, given->ranks_per_node, -1, given->link_gbit, given->link_us, given->node_gb,
					      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
	return gn_sim_machine_read(&sim, out, err);
}

/* What can be wrong is found before anything is measured. */
static enum gn_status check(struct question *q, struct gn_err *err)
{
	const struct gn_info_plan_options *o = q->o;
	int *nodes;
	enum gn_status status;

	if (gn_mesh_is_auto(o->parallel) && (o->recompute || gn_pipe_kind_is_async(q->ask.kind)))
		return gn_err_set(err, GN_ERR_USAGE, "--parallel auto compares meshes that train alike: give the mesh with %s%s",
				  o->recompute ? "--recompute" : "--pipe-schedule ", o->recompute ? "" : o->schedule);
	if (gn_mesh_is_auto(o->parallel))
		return o->cut ? gn_err_set(err, GN_ERR_USAGE, "--cut and --parallel auto: each mesh has cuts of its own; give the mesh") : GN_OK;
	status = gn_mesh_parse(o->parallel, gn_sim_ranks(&q->ask.machine), &q->shape, err);
	if (!status && q->shape.pipeline == 1 && (o->cut || o->recompute))
		return gn_err_set(err, GN_ERR_USAGE, "--%s is of pipelines, and --parallel %s has none", o->cut ? "cut" : "recompute", o->parallel);
	if (!status && gn_pipe_kind_is_async(q->ask.kind) && (o->recompute || q->shape.pipeline == 1 || q->shape.tensor > 1))
		return gn_err_set(err, GN_ERR_USAGE, "--pipe-schedule %s is of pipelines without tensor groups and --recompute", o->schedule);
	if (status || !o->cut)
		return status;
	nodes = calloc((size_t)q->shape.pipeline, sizeof *nodes);
	status = nodes ? gn_cuts_parse(q->model, o->cut, q->shape.pipeline, nodes, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuts");
	free(nodes);
	return status;
}

static enum gn_status ask(struct question *q, struct gn_err *err)
{
	const struct gn_info_plan_options *o = q->o;
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	struct gn_reducer_config config;
	enum gn_status status = read_machine(o, &q->ask.machine, err);

	if (!status && o->inference)
		status = gn_err_set(err, GN_ERR_USAGE, "--inference and --parallel: evaluation is not predicted");
	if (!status && o->batch % o->micro_batches)
		status = gn_err_set(err, GN_ERR_USAGE, "--micro-batches %lld does not divide --batch %lld", (long long)o->micro_batches,
				    (long long)o->batch);
	q->ask.plan = (struct gn_plan_options){.batch = (int)(o->batch / o->micro_batches), .training = 1, .dropout = 1};
	if (!status)
		status = gn_device_choose("host", o->precision, 0, &q->ask.plan, err);
	if (!status)
		status = gn_model_create(o->model, (int)o->classes, 0, side, &q->model, err);
	q->ask.kind = gn_pipe_kind_of(o->schedule);
	if (!status)
		status = check(q, err);
	if (status)
		return status;
	q->ask.model = q->model;
	q->ask.recomputes = o->recompute;
	q->ask.micro = q->ask.batches = (int)o->micro_batches;
	q->ask.cut = o->cut;
	gn_bucket_autotune_default(0, GN_OVERLAP_YES, q->model, &config);
	q->ask.bucket_bytes = (double)config.bucket_bytes;
	return GN_OK;
}

static enum gn_status cost(struct question *q, int slices, struct gn_err *err)
{
	const struct gn_info_plan_options *o = q->o;

	gn_cut_costs_release(&q->ask.costs);
	q->ask.slices = slices;
	if (o->gb_per_s > 0 && o->gflop_per_s > 0)
		return gn_cut_costs_estimate(q->model, &q->ask.plan, slices, o->gb_per_s * 1e9, o->gflop_per_s * 1e9, &q->ask.costs, err);
	return gn_cut_costs_measure(q->model, &q->ask.plan, slices, &q->ask.costs, err);
}

/* --- output --- */

/* Images of a data rank. */
static int64_t batch_of(const struct question *q, const struct gn_pipe_forecast *a)
{
	return q->o->batch / q->o->micro_batches * a->schedule.batches;
}

static double images_per_s(const struct question *q, const struct gn_pipe_forecast *a)
{
	return (double)batch_of(q, a) * a->mesh.shape.data / a->step.step_s;
}

/* What a rank of the stage sends for its sum. */
static double sum_bytes(const struct gn_pipe_forecast *a, int stage)
{
	double data = a->mesh.shape.data;

	return 2 * (data - 1) / data * a->stages[stage].gradient_bytes;
}

static void draw(const struct gn_mesh *mesh, const struct gn_sim_topology *machine)
{
	const char **hosts = calloc((size_t)mesh->size, sizeof *hosts);
	char(*names)[16] = calloc((size_t)machine->nodes, sizeof *names);
	struct gn_strbuf text = {0};

	if (hosts && names) {
		for (int r = 0; r < mesh->size; r++) {
			int node = gn_sim_node_of(machine, r);

			snprintf(names[node], sizeof names[node], "node%d", node);
			hosts[r] = names[node];
		}
		gn_mesh_draw(mesh, hosts, ROWS_SHOWN, &text);
		fputs(gn_strbuf_text(&text), stdout);
	}
	gn_strbuf_release(&text);
	free(hosts);
	free(names);
}

static double most_memory(const struct gn_pipe_forecast *a)
{
	double most = 0;

	for (int s = 0; s < a->schedule.stages; s++)
		most = fmax(most, a->ranks[s].memory_bytes);
	return most;
}

static void cut_text(const struct question *q, const struct gn_pipe_forecast *a, struct gn_strbuf *out)
{
	gn_cuts_text(q->model, a->nodes, a->schedule.stages - 1, out);
}

static void put_json(const struct question *q, const struct gn_pipe_forecast *a, struct gn_strbuf *out)
{
	struct gn_strbuf cut = {0};
	struct gn_json j;

	cut_text(q, a, &cut);
	gn_json_begin(&j);
	gn_json_put(&j, "plan %s batch %ld side %d precision %s data %d pipeline %d tensor %d micro_batches %d schedule %s cut %s algo %s "
		    "step_ms %.3f sum_ms %.3f bubble %.4f images_per_s %.2f network_bytes %lu stages [", gn_model_name(q->model),
		    batch_of(q, a), gn_model_side(q->model), gn_device_precision(&q->ask.plan), a->mesh.shape.data, a->mesh.shape.pipeline,
		    a->mesh.shape.tensor, a->schedule.batches, q->o->schedule, gn_strbuf_text(&cut),
		    a->mesh.shape.data > 1 ? a->step.sum->name : "", 1e3 * a->step.step_s, 1e3 * a->step.sum_s, a->step.bubble,
		    images_per_s(q, a), a->step.network_bytes);
	for (int s = 0; s < a->schedule.stages; s++)
		gn_json_put(&j, "{ first %s forward_ms %.3f backward_ms %.3f update_ms %.3f output_bytes %.0f sum_bytes %.0f "
			    "param_bytes %.0f memory_bytes %.0f exchange_bytes %.0f exchange_ms %.3f crosses? %d }",
			    gn_model_node(q->model, s ? a->nodes[s - 1] : 1)->name, 1e3 * a->stages[s].forward_s,
			    1e3 * a->stages[s].backward_s, 1e3 * a->stages[s].update_s, a->stages[s].out_bytes * a->schedule.batches,
			    sum_bytes(a, s), a->ranks[s].param_bytes, a->ranks[s].memory_bytes,
			    a->ranks[s].exchange_bytes * a->schedule.batches, 1e3 * a->ranks[s].exchange_s,
			    s + 1 < a->schedule.stages && gn_mesh_crosses(&a->mesh, s));
	gn_json_put(&j, "] }");
	gn_strbuf_puts(out, gn_json_text(&j));
	gn_json_release(&j);
	gn_strbuf_release(&cut);
}

static void print_details(const struct question *q, const struct gn_pipe_forecast *a)
{
	struct gn_strbuf cut = {0};

	draw(&a->mesh, &q->ask.machine);
	printf("\n%5s  %-24s %10s %10s %9s %12s %10s %10s\n", "stage", "first layer", "forward ms", "backward ms", "update ms", "output MB", "sum MB",
	       "memory MB");
	for (int s = 0; s < a->schedule.stages; s++)
		printf("%5d  %-24s %10.3f %10.3f %9.3f %9.3f %s %10.3f %10.1f\n", s, gn_model_node(q->model, s ? a->nodes[s - 1] : 1)->name,
		       1e3 * a->stages[s].forward_s, 1e3 * a->stages[s].backward_s, 1e3 * a->stages[s].update_s,
		       a->stages[s].out_bytes * a->schedule.batches * 1e-6, s + 1 == a->schedule.stages ? "  " : gn_mesh_crosses(&a->mesh, s) ? "=>" : "->",
		       sum_bytes(a, s) * 1e-6, a->ranks[s].memory_bytes * 1e-6);
	puts("forward and backward of a micro-batch; output of a step, each way; sum: what each rank sends for the sum of gradients");
	for (int s = 0; s < a->schedule.stages && a->mesh.shape.tensor > 1; s++)
		printf("stage %d: a rank has %.4g MB of parameters, and sends %.3f MB a step to the others of its tensor group, which takes %.3f ms of each "
		       "micro-batch\n", s, a->ranks[s].param_bytes * 1e-6, a->ranks[s].exchange_bytes * a->schedule.batches * 1e-6, 1e3 * a->ranks[s].exchange_s);
	cut_text(q, a, &cut);
	printf("\n%s, batch %lld of %dx%d a data rank in %d micro-batch%s, %s, %s%s%s\n", gn_model_name(q->model), (long long)batch_of(q, a),
	       gn_model_side(q->model), gn_model_side(q->model), a->schedule.batches, a->schedule.batches == 1 ? "" : "es",
	       gn_device_precision(&q->ask.plan), q->o->schedule, *gn_strbuf_text(&cut) ? ", --cut " : "", gn_strbuf_text(&cut));
	printf("step %.1f ms, %.1f images/s; bubble %.1f %%, sums %.1f ms%s%s, %.3f MB a step between nodes\n", 1e3 * a->step.step_s,
	       images_per_s(q, a), 100 * a->step.bubble, 1e3 * a->step.sum_s, a->mesh.shape.data > 1 ? " by " : "",
	       a->mesh.shape.data > 1 ? a->step.sum->name : "", (double)a->step.network_bytes * 1e-6);
	gn_strbuf_release(&cut);
}

static void put_row(const struct question *q, const struct gn_pipe_forecast *a, struct gn_strbuf *out)
{
	struct gn_strbuf cut = {0};

	cut_text(q, a, &cut);
	gn_strbuf_printf(out, "%6d %9d %7d %10.1f %10.1f %8.1f %10.1f %14.3f %12.1f  %s", a->mesh.shape.data, a->mesh.shape.pipeline, a->mesh.shape.tensor, 1e3 * a->step.step_s,
	       images_per_s(q, a), 100 * a->step.bubble, 1e3 * a->step.sum_s, (double)a->step.network_bytes * 1e-6, most_memory(a) * 1e-6,
	       *gn_strbuf_text(&cut) ? gn_strbuf_text(&cut) : "-");
	gn_strbuf_release(&cut);
}

/* --- which meshes --- */

static enum gn_status answer_one(const struct question *q, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	struct gn_pipe_forecast a;
	enum gn_status status = gn_pipe_forecast_make(&q->ask, &q->shape, 1, &a, err);

	if (!status && q->o->json) {
		put_json(q, &a, &text);
		puts(gn_strbuf_text(&text));
	} else if (!status) {
		print_details(q, &a);
	}
	gn_strbuf_release(&text);
	gn_pipe_forecast_release(&a);
	return status;
}

static enum gn_status add_answer(struct question *q, const struct gn_pipe_forecast *a, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	char *copy;

	(q->o->json ? put_json : put_row)(q, a, &text);
	copy = gn_strbuf_failed(&text) ? NULL : strdup(gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	if (!copy || gn_array_grow(&q->answers, &q->room, q->count, sizeof *q->answers)) {
		free(copy);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for forecasts");
	}
	q->answers[q->count++] = (struct answer){a->step.step_s, copy};
	return GN_OK;
}

static enum gn_status answer_slices(struct question *q, struct gn_err *err)
{
	const int groups = gn_sim_ranks(&q->ask.machine) / q->ask.slices;
	enum gn_status status = GN_OK;

	for (int stages = 1; stages <= groups && stages <= q->ask.costs.count && !status; stages++) {
		const struct gn_mesh_shape shape = {groups / stages, stages, q->ask.slices};
		struct gn_pipe_forecast a;

		if (groups % stages)
			continue;
		status = gn_pipe_forecast_make(&q->ask, &shape, stages * q->ask.slices, &a, err);
		if (!status)
			status = add_answer(q, &a, err);
		/* some stage has nothing that so many ranks divide */
		if (status == GN_ERR_USAGE && q->ask.slices > 1)
			status = GN_OK;
		gn_pipe_forecast_release(&a);
	}
	return status;
}

static int compare_answers(const void *a, const void *b)
{
	double left = ((const struct answer *)a)->step_s, right = ((const struct answer *)b)->step_s;

	return (left > right) - (left < right);
}

/* The fastest first. */
static void print_answers(const struct question *q)
{
	qsort(q->answers, q->count, sizeof *q->answers, compare_answers);
	if (!q->o->json)
		printf("%6s %9s %7s %10s %10s %8s %10s %14s %12s  %s\n", "data", "pipeline", "tensor", "step ms", "images/s", "bubble %", "sums ms",
		       "network MB", "most MB", "cut");
	for (size_t i = 0; i < q->count; i++)
		if (q->o->json)
			printf("%s%s%s", i ? ", " : "{\"meshes\": [", q->answers[i].text, i + 1 < q->count ? "" : "]}\n");
		else
			printf("%s%s\n", q->answers[i].text, i ? "" : "  <- fastest");
	if (!q->o->json)
		puts("all have the same samples a step: of a mesh --batch and --micro-batches for each of its ranks; network MB: between nodes, "
		     "of all ranks in a step; most MB: of the rank that holds most");
}

static enum gn_status answer_all(struct question *q, struct gn_err *err)
{
	const struct gn_sim_topology *m = &q->ask.machine;
	const int ranks = gn_sim_ranks(m);
	enum gn_status status = GN_OK;

	for (int slices = 1; slices <= ranks && !status; slices++) {
		if (!gn_pipe_forecast_has_slices(q->model, m, slices))
			continue;
		status = cost(q, slices, err);
		if (!status)
			status = answer_slices(q, err);
	}
	if (!status)
		print_answers(q);
	for (size_t i = 0; i < q->count; i++)
		free(q->answers[i].text);
	free(q->answers);
	return status;
}

int gn_info_parallel(const struct gn_info_plan_options *o)
{
	struct question q = {.o = o};
	pid_t beside[BESIDE_MAX];
	struct gn_err err;
	enum gn_status status = ask(&q, &err);
	int count = status || (o->gb_per_s > 0 && o->gflop_per_s > 0) ? 0
		    : info_beside_start(q.model, &q.ask.plan, q.ask.machine.ranks_per_node, beside);

	if (!status && gn_mesh_is_auto(o->parallel) && isatty(STDERR_FILENO))
		fprintf(stderr, "gannet info: measuring and comparing meshes of %d ranks: this takes minutes\n", gn_sim_ranks(&q.ask.machine));
	if (!status && gn_mesh_is_auto(o->parallel)) {
		status = answer_all(&q, &err);
	} else if (!status) {
		status = cost(&q, q.shape.tensor, &err);
		if (!status)
			status = answer_one(&q, &err);
	}
	info_beside_stop(beside, count);
	gn_cut_costs_release(&q.ask.costs);
	gn_model_destroy(q.model);
	return status ? gn_cmd_fail("info", &err) : GN_EXIT_DONE;
}
