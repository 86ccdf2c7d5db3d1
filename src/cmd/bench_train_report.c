#include "src/cmd/bench_train_internal.h"

#include "src/base/sort.h"
#include "src/cmd/cmd.h"
#include "src/train/plan/plan_cost.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

static const char *const part_names[PARTS] = {"forward", "backward", "communication_exposed", "optimizer", "step"};

static enum gn_status gather(struct train_bench *b, struct gn_err *err)
{
	double all[3] = {b->first_begins_s, b->first_ends_s, (double)b->peak_bytes};
	enum gn_status status = gn_comm_allreduce(b->comm, all, 3, GN_F64, gn_reduce_max(GN_F64), err);

	for (int i = 0; i < PARTS && !status; i++)
		status = gn_comm_allreduce(b->comm, b->times[i], (size_t)b->o->iters, GN_F64, gn_reduce_max(GN_F64), err);
	b->first_begins_s = all[0];
	b->first_ends_s = all[1];
	b->peak_bytes = (uint64_t)all[2];
	return status;
}

/* Of sorted times. */
static double median_of(const double *times, int64_t n)
{
	return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

/* Of a rank's step, each operator's passes over its tensors; without the update. */
static void add_up(const struct train_bench *b, double *flops, double *bytes)
{
	int ways = b->o->inference ? 1 : 2;

	for (int i = 0; i < gn_plan_op_count(b->plan); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(b->plan, i, &c);
		for (int k = 0; k < ways; k++) {
			*flops += c.flops[k];
			*bytes += c.bytes[k];
		}
	}
}

/* How a device computes a step: graphs, and the engines of operators that have them. */
static void print_engines(const struct train_bench *b, struct gn_json *j)
{
	const struct gn_plan_graphs g = gn_plan_graphs(b->plan);
	struct gn_op_engine engines[GN_OP_ENGINES_MAX];
	struct gn_plan_cost c;

	gn_json_put(j, "graph { graphs %d nodes %lu obstacle %s } engines [", g.graphs, g.nodes, g.obstacle);
	for (int i = 0; i < gn_plan_op_count(b->plan); i++) {
		const int count = gn_plan_op_engines(b->plan, i, engines);

		gn_plan_op_cost(b->plan, i, &c);
		for (int k = 0; k < count; k++)
			gn_json_put(j, "{ name %s pass %s engine %ld ms %.4f }", c.name, engines[k].pass, engines[k].engine, engines[k].ms);
	}
	gn_json_end(j);
}

static void print_json(struct train_bench *b, double images_per_s, double flops, double bytes)
{
	int64_t n = b->o->iters, steps = n + b->o->warmup;
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "op %s model %s batch %ld side %ld dtype %s device %s manner %s winograd %d ranks %d threads %d steps %ld images_per_s %.3f "
		    "step_flops %.0f step_bytes %.0f", b->o->inference ? "inference" : "train", b->o->model, b->o->batch, b->o->side,
		    b->precision, gn_plan_mode(b->plan)[0] ? "cuda" : "host", gn_plan_mode(b->plan), gn_plan_winograd(b->plan), gn_comm_size(b->comm),
		    omp_get_max_threads(), n, images_per_s, flops, bytes);
	for (int i = 0; i < PARTS; i++) {
		gn_json_object(&j, part_names[i]);
		gn_json_put(&j, "p10_ms %.3f median_ms %.3f p90_ms %.3f }", b->times[i][n / 10] * 1e3, median_of(b->times[i], n) * 1e3,
			    b->times[i][n * 9 / 10] * 1e3);
	}
	gn_json_array(&j, "steps_ms");
	for (int64_t i = 0; i < n; i++)
		gn_json_fixed(&j, NULL, b->in_order[i] * 1e3, 3);
	gn_json_put(&j, "] losses [");
	for (int64_t i = 0; i < GN_BENCH_LOSSES && i < steps; i++)
		gn_json_double(&j, NULL, b->losses[i]);
	gn_json_put(&j, "] arena_bytes %lu peak_bytes %lu first_step_begins_s %.2f first_step_ends_s %.2f", gn_plan_bytes(b->plan),
		    b->peak_bytes, b->first_begins_s, b->first_ends_s);
	if (gn_plan_mode(b->plan)[0])
		print_engines(b, &j);
	if (b->profile)
		gn_bench_profile_json(b, &j);
	gn_cmd_print_json(&j);
}

static void print(struct train_bench *b)
{
	int64_t n = b->o->iters;
	double images_per_s, flops = 0, bytes = 0, step_s;

	memcpy(b->in_order, b->times[STEP], (size_t)n * sizeof *b->in_order);
	for (int i = 0; i < PARTS; i++)
		gn_sort_doubles(b->times[i], (size_t)n);
	step_s = median_of(b->times[STEP], n);
	images_per_s = (double)b->o->batch * gn_comm_size(b->comm) / step_s;
	add_up(b, &flops, &bytes);
	if (b->o->json) {
		print_json(b, images_per_s, flops, bytes);
		fflush(stdout); /* where both go to one file, the tables come after the whole line */
		if (b->profile)
			gn_bench_profile_print(b, stderr);
		return;
	}
	printf("# %s %s, %s, batch %lld of side %lld, %d rank%s, %d threads: %.1f images/s\n", b->o->model,
	       b->o->inference ? "inference" : "training", b->precision, (long long)b->o->batch, (long long)b->o->side,
	       gn_comm_size(b->comm), gn_comm_size(b->comm) > 1 ? "s" : "", omp_get_max_threads(), images_per_s);
	printf("%-22s %10s %10s %10s\n", "ms", "p10", "median", "p90");
	for (int i = 0; i < PARTS; i++)
		if (i == STEP || (i == EXPOSED && !b->o->inference && gn_replica_sums_on_gpus(&b->replica)) || (!b->is_queued && (!b->o->inference || i == FORWARD)))
			printf("%-22s %10.2f %10.2f %10.2f\n", part_names[i], b->times[i][n / 10] * 1e3,
			       median_of(b->times[i], n) * 1e3, b->times[i][n * 9 / 10] * 1e3);
	printf("a step of a rank computes %.3g GFLOP and moves %.3g GB, if no cache keeps anything from one operator to the next: %.4g "
	       "GFLOP/s, %.4g GB/s\n", flops / 1e9, bytes / 1e9, flops / step_s / 1e9, bytes / step_s / 1e9);
	printf("loss of the first step %.6f; memory of a rank at its most %.1f MB, of it the arena %.1f MB; the first step began "
	       "%.2f s after the process\n", b->losses[0], (double)b->peak_bytes / 1e6, (double)gn_plan_bytes(b->plan) / 1e6,
	       b->first_begins_s);
	if (gn_plan_mode(b->plan)[0])
		printf("%s\n", gn_plan_mode(b->plan));
	if (b->profile)
		gn_bench_profile_print(b, stdout);
}

enum gn_status gn_bench_train_report(struct train_bench *b, struct gn_err *err)
{
	enum gn_status status = gather(b, err);

	if (!status && gn_comm_rank(b->comm) == 0)
		print(b);
	return status;
}
