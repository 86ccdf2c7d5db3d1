/* Time of one training step of a plan, or of inference: bench/plan MODEL BATCH SIDE CLASSES [STEPS
 * [inference|bf16|keep|bf16-keep]]; keep: nothing is made again before backward. Prints medians in milliseconds, the
 * arena, and the loss after the last step, which must be finite for the times to mean anything; then, by kind of layer, the
 * sums of every node's least time, which say where a step's time goes when nothing disturbs it. Threads: OMP_NUM_THREADS. */
#include "kernels/optim.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/sort.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/model/init.h"
#include "src/train/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 1000
#define NODES_MAX 1000

struct job {
	struct gn_model *model;
	struct gn_plan *plan;
	struct gn_weight_layouts *arrange;
	float *params, *grads, *momentum, *buffers, *images;
	int32_t *labels;
	int batch, side, classes, steps, inference, bf16, keep;
	struct gn_plan_profiler profiler;
	uint64_t began_ns; /* of the operator that runs */
	double now[NODES_MAX][2], least[NODES_MAX][2]; /* seconds of each node, forward and backward */
	double forward[STEPS_MAX], backward[STEPS_MAX], update[STEPS_MAX], loss;
};

/* A node can have several operators. */
static void ran(void *context, const struct gn_plan_mark *m)
{
	struct job *j = context;
	const uint64_t now = gn_clock_ns();

	if (m->ended && m->node >= 0 && m->node < NODES_MAX)
		j->now[m->node][m->backward] += (double)(now - j->began_ns) * 1e-9;
	j->began_ns = now;
}

static void keep_least(struct job *j)
{
	for (int i = 0; i < NODES_MAX; i++)
		for (int k = 0; k < 2; k++) {
			if (j->least[i][k] == 0 || j->now[i][k] < j->least[i][k])
				j->least[i][k] = j->now[i][k];
			j->now[i][k] = 0;
		}
}

/* A batch norm that runs together with the sum behind it counts as the sum. */
static void print_kinds(const struct job *j)
{
	static const char *const names[] = {"input",	"convolution", "batch norm", "relu",	"max pool",
					    "avg pool", "sum",	       "linear",     "dropout"};
	double sums[sizeof names / sizeof *names][2] = {{0}}, all = 0;
	int count = gn_model_node_count(j->model);

	for (int i = 0; i < count && i < NODES_MAX; i++)
		for (int k = 0; k < 2; k++) {
			sums[gn_model_node(j->model, i)->kind][k] += j->least[i][k];
			all += j->least[i][k];
		}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (sums[i][0] + sums[i][1] > 0)
			printf("  %-12s forward %8.2f ms, backward %8.2f ms, %5.1f %%\n", names[i], 1e3 * sums[i][0],
			       1e3 * sums[i][1], 100 * (sums[i][0] + sums[i][1]) / all);
	printf("  all          %.2f ms: %.1f images/s without updates\n", 1e3 * all, j->batch / all);
}

static enum gn_status prepare(struct job *j, const char *model, struct gn_err *err)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = j->batch, .training = !j->inference,
				    .frozen = j->inference, .bf16 = j->bf16, .keep = j->keep, .dropout = 1};
	enum gn_status s = gn_model_create(model, j->classes, 0, j->side, &j->model, err);
	size_t count;

	if (s)
		return s;
	count = gn_model_param_elements(j->model);
	j->params = gn_alloc_aligned(count * sizeof(float));
	j->grads = gn_alloc_aligned(count * sizeof(float));
	j->momentum = gn_alloc_aligned(count * sizeof(float));
	j->buffers = gn_alloc_aligned(gn_model_buffer_elements(j->model) * sizeof(float) + 1);
	j->images = gn_alloc_aligned((size_t)j->batch * gn_model_channels(j->model) * j->side * j->side *
				     sizeof(float));
	j->labels = gn_alloc_aligned(j->batch * sizeof *j->labels);
	if (!j->params || !j->grads || !j->momentum || !j->buffers || !j->images || !j->labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	gn_init_formula_batch(j->batch, gn_model_channels(j->model), j->side, j->classes, j->images, j->labels);
	s = gn_init_params(j->model, "seed:1", j->params, j->buffers, err);
	if (!s)
		s = gn_weight_layouts_create(j->model, &j->arrange, err);
	if (s)
		return s;
	j->profiler = (struct gn_plan_profiler){ran, j};
	o.profiler = &j->profiler;
	o.weights = gn_weight_layouts_layouts(j->arrange);
	s = gn_plan_create(j->model, &o, j->params, j->grads, j->buffers, &j->plan, err);
	if (!s)
		s = gn_weight_layouts_take(j->arrange, j->plan, err);
	if (s)
		return s;
	gn_weight_layouts_in(j->arrange, j->params);
	return gn_plan_freeze(j->plan, err);
}

static enum gn_status one_step(struct job *j, int step, struct gn_err *err)
{
	struct gn_sgd sgd = {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4, .grad_scale = 1};
	double t0 = gn_clock_s(), t1, t2;
	const float *logits;
	enum gn_status s = gn_plan_forward(j->plan, j->images, (uint64_t)step, &logits, err);

	if (!s)
		s = gn_plan_loss(j->plan, j->labels, &j->loss, err);
	t1 = gn_clock_s();
	if (!s && !j->inference)
		s = gn_plan_backward(j->plan, NULL, NULL, err);
	t2 = gn_clock_s();
	if (!j->inference)
		gn_sgd_step(&sgd, j->params, j->grads, j->momentum, gn_model_param_elements(j->model));
	j->forward[step] = t1 - t0;
	j->backward[step] = t2 - t1;
	j->update[step] = gn_clock_s() - t2;
	return s;
}

/* Without the first step, which touches memory for the first time. */
static double median_ms(double *times, int count)
{
	gn_sort_doubles(times + 1, count - 1);
	return 1e3 * times[1 + (count - 1) / 2];
}

static void release(struct job *j)
{
	gn_plan_destroy(j->plan);
	gn_weight_layouts_destroy(j->arrange);
	gn_model_destroy(j->model);
	free(j->params);
	free(j->grads);
	free(j->momentum);
	free(j->buffers);
	free(j->images);
	free(j->labels);
}

int main(int argc, char **argv)
{
	struct job *j = calloc(1, sizeof *j);
	struct gn_err err;
	enum gn_status s;
	double f, b, u;

	if (!j || argc < 5) {
		fputs("usage: bench/plan MODEL BATCH SIDE CLASSES [STEPS [inference|bf16|keep|bf16-keep]]\n", stderr);
		free(j);
		return 2;
	}
	j->batch = atoi(argv[2]);
	j->side = atoi(argv[3]);
	j->classes = atoi(argv[4]);
	j->steps = argc > 5 ? atoi(argv[5]) : 12;
	j->steps = j->steps < 3 ? 3 : j->steps > STEPS_MAX ? STEPS_MAX : j->steps;
	j->inference = argc > 6 && !strcmp(argv[6], "inference");
	j->bf16 = argc > 6 && !strncmp(argv[6], "bf16", 4);
	j->keep = argc > 6 && strstr(argv[6], "keep");
	s = prepare(j, argv[1], &err);
	for (int i = 0; !s && i < j->steps; i++) {
		s = one_step(j, i, &err);
		keep_least(j);
	}
	if (s) {
		fprintf(stderr, "bench/plan: %s\n", err.text);
	} else {
		f = median_ms(j->forward, j->steps);
		b = median_ms(j->backward, j->steps);
		u = median_ms(j->update, j->steps);
		printf("%s batch %d side %d: forward %.2f ms, backward %.2f ms, update %.2f ms, %.1f images/s, arena "
		       "%.1f MB, loss %g\n",
		       argv[1], j->batch, j->side, f, b, u, 1e3 * j->batch / (f + b + u),
		       (double)gn_plan_bytes(j->plan) / 1e6, j->loss);
		print_kinds(j);
		s = isfinite(j->loss) ? GN_OK : GN_ERR_FAILED;
	}
	release(j);
	free(j);
	return s ? 1 : 0;
}
