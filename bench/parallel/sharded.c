/* What a sharded optimizer costs and saves: bench/parallel/sharded MODEL OPTIMIZER SIDE BATCH ROUNDS [TRANSPORT], on each rank, in pairs of
 * steps with and without it, of the same batch of pictures. Each is the second of two, since parameters come beside the forward of the
 * next one. Rank 0 prints one JSON object: medians of both steps on the slowest rank, and of the ratios of pairs, time with to time
 * without; bytes of optimizer state and average, by formula and resident (growth of private memory when they are first written). Resident
 * bytes have to be within 3 % (or 6 MiB) of the formula, and both trainings have to have the same parameters: the same bits with two ranks,
 * else within 1e-6 of the largest after a first step (a network with so small batches makes more of it in the next). Exit codes: 0,
 * 1 with the reason, 2 usage. */
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/sort.h"
#include "src/train/loop/input.h"
#include "src/train/loop/replica.h"
#include "src/train/loop/step.h"
#include "src/train/model/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN, SHARDED, WAYS };
#define BUCKET_BYTES ((size_t)4 << 20)
#define ROUNDS_MAX 1000
/* What three arrays in pages of 2 MiB may take more. */
#define HUGE_PAGES_BYTES (3 * (2 << 20))

struct bench {
	struct gn_comm *comm;
	struct gn_model *model;
	const char *optimizer;
	int side, batch, rounds;
	float *images;
	int32_t *labels;
	struct gn_replica replicas[WAYS];
	double formula[WAYS], resident[WAYS], ms[WAYS][ROUNDS_MAX], ratio[ROUNDS_MAX];
	double apart; /* of parameters, at most */
};

static double private_bytes(void)
{
	char line[256];
	double kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "RssAnon: %lf kB", &kib);
	if (f)
		fclose(f);
	return kib * 1024;
}

static enum gn_status next_batch(void *context, const void **images, struct gn_targets *targets, struct gn_err *err)
{
	const struct bench *b = context;

	(void)err;
	*images = b->images;
	*targets = (struct gn_targets){.labels = b->labels};
	return GN_OK;
}

static enum gn_status create_replica(struct bench *b, int way, struct gn_err *err)
{
	struct gn_replica *r = &b->replicas[way];
	struct gn_plan_options po = {.backend = GN_BACKEND_HOST, .batch = b->batch};
	const struct gn_reducer_config config = {BUCKET_BYTES, 1};
	const struct gn_replica_options ro = {
		.comm = b->comm, .model = b->model, .device = po, .batches = 1, .algo = "auto", .ema = 0.999,
		.optimizer = {.name = b->optimizer, .momentum = 0.9, .beta2 = 0.999, .trust = 0.001, .weight_decay = 1e-4, .eps = -1},
		.shard = way == SHARDED ? GN_SHARD_OPTIMIZER : GN_SHARD_NONE, .shard_bucket_bytes = BUCKET_BYTES,
	};
	const struct gn_optim_update nothing = {.lr = 0, .grad_scale = 1, .step = 1};
	struct gn_update_result result;
	size_t whole;
	double before;
	enum gn_status status;

	r->next = next_batch;
	r->next_context = b;
	status = gn_replica_init(r, &ro, err);
	if (status)
		return status;
	status = gn_replica_share(r, err);
	if (status)
		return status;
	b->formula[way] = (double)gn_replica_state_bytes(r, &whole);
	po.training = 1;
	status = gn_replica_set_plan(r, b->model, &po, err);
	if (!status)
		status = gn_init_params(b->model, "seed:1", r->params.host, r->buffers.host, err);
	if (status)
		return status;
	gn_weight_layouts_in(r->layouts, r->params.host);
	status = gn_replica_connect(r, &config, err);
	before = private_bytes();
	gn_ema_set(&r->ema, r->params.host, r->buffers.host);
	if (!status)
		status = gn_optimizer_step(r->optimizer, &nothing, &result, err);
	b->resident[way] = private_bytes() - before;
	return status;
}

static enum gn_status one_step(struct bench *b, int way, int number, double *ms, struct gn_err *err)
{
	const struct gn_train_step step = {.number = (uint64_t)number, .updates = (uint64_t)number + 1, .lr = strcmp(b->optimizer, "lamb") ? 0.01 : 1e-3};
	struct gn_interval sums = {0};
	struct gn_step_result result = {0};
	uint64_t began = gn_clock_ns();
	enum gn_status status = gn_step_run(&b->replicas[way], &step, &sums, &result, err);

	*ms = (double)(gn_clock_ns() - began) * 1e-6;
	return status || !result.skipped ? status : gn_err_set(err, GN_ERR_FAILED, "the gradients of step %d are not finite", number);
}

/* As long as it takes the slowest rank. The second step begins with parameters on their way, as in training, and ends so. */
static enum gn_status two_steps(struct bench *b, int way, int round, struct gn_err *err)
{
	enum gn_status status = gn_comm_barrier(b->comm, err);
	double took = 0;

	for (int k = 1; k <= 2 && !status; k++)
		status = one_step(b, way, 2 * round + k, &took, err);
	if (!status)
		status = gn_replica_fetch(&b->replicas[way], err);
	if (!status)
		status = gn_comm_allreduce(b->comm, &took, 1, GN_F64, gn_reduce_max(GN_F64), err);
	b->ms[way][round] = took;
	return status;
}

/* Of parameters, in units of the largest. */
static enum gn_status check_params(struct bench *b, double limit, struct gn_err *err)
{
	const struct gn_array *p = &b->replicas[PLAIN].params, *s = &b->replicas[SHARDED].params;
	double largest = 0, apart = 0;

	for (size_t i = 0; i < p->count; i++) {
		largest = fmax(largest, fabs(p->host[i]));
		apart = fmax(apart, fabs((double)p->host[i] - (double)s->host[i]));
	}
	b->apart = fmax(b->apart, apart / largest);
	return b->apart <= limit ? GN_OK : gn_err_set(err, GN_ERR_FAILED, "parameters are %g apart, more than %g", b->apart, limit);
}

static enum gn_status check_memory(const struct bench *b, struct gn_err *err)
{
	for (int way = 0; way < WAYS; way++)
		if (fabs(b->resident[way] - b->formula[way]) > fmax(0.03 * b->formula[way], HUGE_PAGES_BYTES))
			return gn_err_set(err, GN_ERR_FAILED, "%.0f bytes are resident, not %.0f", b->resident[way], b->formula[way]);
	return GN_OK;
}

static enum gn_status run(struct bench *b, struct gn_err *err)
{
	int is_exact = gn_comm_size(b->comm) == 2;
	double took;
	enum gn_status status = GN_OK;

	for (int way = 0; way < WAYS && !status; way++) {
		status = one_step(b, way, 0, &took, err);
		if (!status)
			status = gn_replica_fetch(&b->replicas[way], err);
	}
	if (!status)
		status = check_params(b, is_exact ? 0 : 1e-6, err);
	for (int round = 0; round < b->rounds && !status; round++) {
		status = two_steps(b, round % 2 ? SHARDED : PLAIN, round, err);
		if (!status)
			status = two_steps(b, round % 2 ? PLAIN : SHARDED, round, err);
		b->ratio[round] = b->ms[SHARDED][round] / b->ms[PLAIN][round];
		if (!status && is_exact)
			status = check_params(b, 0, err);
	}
	return status;
}

/* Of all rounds but the first, which warms up. */
static double median(double *values, int rounds)
{
	gn_sort_doubles(values + 1, (size_t)rounds - 1);
	return values[rounds / 2];
}

static void print(struct bench *b)
{
	static const char *const names[] = {"plain", "sharded"};
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "model", gn_model_name(b->model));
	gn_json_string(&j, "optimizer", b->optimizer);
	gn_json_int(&j, "ranks", gn_comm_size(b->comm));
	gn_json_int(&j, "batch", b->batch);
	gn_json_int(&j, "side", b->side);
	for (int way = 0; way < WAYS; way++) {
		gn_json_object(&j, names[way]);
		gn_json_fixed(&j, "ms", median(b->ms[way], b->rounds), 2);
		gn_json_fixed(&j, "state_bytes", b->formula[way], 0);
		gn_json_fixed(&j, "resident_bytes", b->resident[way], 0);
		gn_json_end(&j);
	}
	gn_json_fixed(&j, "ratio", median(b->ratio, b->rounds), 4);
	gn_json_double(&j, "apart", b->apart);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

static enum gn_status create(struct bench *b, struct gn_world *world, const char *model, const char *transport, struct gn_err *err)
{
	const struct gn_comm_options options = {.transport = transport, .tuning = "none"};
	enum gn_status status = gn_comm_create(world, &options, NULL, &b->comm, err);

	if (!status)
		status = gn_model_create(model, 1000, 3, b->side, &b->model, err);
	if (status)
		return status;
	gn_input_threads(0, world, NULL);
	b->images = gn_alloc_aligned((size_t)b->batch * 3 * (size_t)b->side * (size_t)b->side * sizeof(float));
	b->labels = calloc((size_t)b->batch, sizeof *b->labels);
	if (!b->images || !b->labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a batch");
	gn_init_formula_batch(b->batch, 3, b->side, 1000, b->images, b->labels);
	for (int i = 0; i < b->batch; i++) /* ranks have other gradients */
		b->labels[i] = (b->labels[i] + 7 * gn_comm_rank(b->comm)) % 1000;
	for (int way = 0; way < WAYS && !status; way++)
		status = create_replica(b, way, err);
	return status;
}

int main(int argc, char **argv)
{
	struct bench b = {.rounds = 0};
	struct gn_world *world = NULL;
	struct gn_err err;
	enum gn_status status;

	if (argc < 6 || argc > 7 || (b.side = atoi(argv[3])) < 1 || (b.batch = atoi(argv[4])) < 1 || (b.rounds = atoi(argv[5])) < 2 || b.rounds > ROUNDS_MAX)
		return 2;
	b.optimizer = argv[2];
	status = gn_world_create(NULL, NULL, &world, &err);
	if (!status)
		status = create(&b, world, argv[1], argc > 6 ? argv[6] : "auto", &err);
	if (!status)
		status = run(&b, &err);
	if (!status)
		status = check_memory(&b, &err);
	if (!status && gn_comm_rank(b.comm) == 0)
		print(&b);
	if (status)
		fprintf(stderr, "bench/parallel/sharded: %s\n", err.text);
	for (int way = WAYS; way-- > 0 && b.comm;)
		gn_replica_release(&b.replicas[way]);
	gn_model_destroy(b.model);
	free(b.images);
	free(b.labels);
	gn_comm_destroy(b.comm);
	gn_world_destroy(world);
	return status ? 1 : 0;
}
