/* What slow workers cost by how parameters are updated: bench/parallel/stragglers [SECONDS [ROUNDS]], on each of 5 ranks: 4 workers and a
 * parameter server. Computing is replaced by a timer; gradients of lenet are pushed, applied and answered as `gannet train --update` does.
 * One worker is 4 times slower: async beside sync. One step in 10, drawn for each worker, takes 3 steps longer: ssp:3 beside sync. Rank 0
 * prints one JSON object: steps of all workers a second, and ratios, medians over ROUNDS (3) of runs of SECONDS (4) in turns. Ratios have
 * to be at least 2.5 and 1.3, and no worker of ssp:3 more than 3 steps ahead. Exit codes: 0, 1 with the reason, 2 usage. */
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/philox.h"
#include "src/base/sort.h"
#include "src/train/parallel/server_client.h"
#include "transport/coll/agree.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5, ROUNDS_MAX = 99, CLASSES = 10, SIDE = 28, SLOWER = 4, LONGER_STEPS = 3, ONE_IN = 10 };
#define STEP_MS 40.0

/* Whose steps take how long, and what is compared. */
static const struct pattern {
	const char *name, *update;
	int one_is_slow;
	double wanted;
} patterns[] = {{"one worker 4 times slower", "async", 1, 2.5}, {"3 steps longer in 10 % of steps", "ssp:3", 0, 1.3}};
enum { PATTERNS = 2, WAYS = 2 };

struct bench {
	struct gn_comm *comm;
	struct gn_model *model;
	double seconds;
	int rounds;
	double rate[PATTERNS][WAYS][ROUNDS_MAX], ratio[PATTERNS][ROUNDS_MAX]; /* ways: sync, the pattern's */
	uint32_t ahead_most;
};

/* One run of one way. */
struct run {
	struct bench *b;
	struct gn_server_spec spec;
	int one_is_slow;
	struct gn_messages *messages;
	struct gn_server *server;
	struct gn_server_client *client;
	struct gn_server_pushes *pushes;
	float *params, *grads;
	struct gn_err err; /* of a push */
};

/* --- a worker --- */

static void compute(const struct run *run, uint64_t step)
{
	int worker = gn_server_client_worker(run->client);
	double ms = run->one_is_slow && worker == RANKS - 2 ? SLOWER * STEP_MS : STEP_MS;
	struct gn_rng rng;
	struct timespec t;

	gn_rng_init(&rng, 1, GN_RNG_TEST, (uint32_t)worker, (uint32_t)step);
	if (!run->one_is_slow && gn_rng_below(&rng, ONE_IN) == 0)
		ms += LONGER_STEPS * STEP_MS;
	t = (struct timespec){.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000};
	nanosleep(&t, NULL);
}

static int is_pushed(void *context)
{
	struct run *run = context;
	int done = 0;

	return gn_server_pushes_test(run->pushes, &done, &run->err) || done;
}

static enum gn_status push(struct run *run, struct gn_err *err)
{
	enum gn_status status = gn_server_pushes_start(run->pushes, err);

	run->err.status = GN_OK;
	if (!status)
		status = gn_server_client_wait(run->client, is_pushed, run, err);
	if (!status && run->err.status)
		*err = run->err;
	return status ? status : run->err.status;
}

/* Until the first worker's time is over. */
static enum gn_status train(struct run *run, double *rate, struct gn_err *err)
{
	size_t elements = gn_model_param_elements(run->b->model);
	struct gn_server_commit commit = {.lr = 0.001, .grad_scale = 1.0 / (RANKS - 1)};
	uint64_t began = gn_clock_ns(), steps = 0;
	enum gn_status status = GN_OK;

	while (!status && !commit.stop) {
		compute(run, steps++);
		commit.updates = steps;
		commit.stop = !gn_server_client_worker(run->client) && (double)(gn_clock_ns() - began) * 1e-9 >= run->b->seconds;
		status = push(run, err);
		if (!status)
			status = gn_server_client_commit(run->client, &commit, run->params, elements, err);
		/* at the stop workers are let go without the bound */
		if (!status && !commit.stop && run->spec.mode == GN_UPDATE_SSP && gn_server_client_state(run->client)->ahead_most > run->b->ahead_most)
			run->b->ahead_most = gn_server_client_state(run->client)->ahead_most;
	}
	*rate = (double)steps / ((double)(gn_clock_ns() - began) * 1e-9);
	return status;
}

static enum gn_status work(struct run *run, double *rate, struct gn_err *err)
{
	size_t elements = gn_model_param_elements(run->b->model);
	struct gn_server_client_options co = {.comm = run->b->comm, .messages = run->messages, .spec = run->spec};
	struct gn_server_open open = {.classes = CLASSES, .channels = 1, .side = SIDE};
	struct gn_server_arrays a = {.params = run->params = calloc(elements, sizeof(float)), .elements = elements, .slot_count = 1};
	enum gn_status status;

	a.slots[0] = run->grads = calloc(elements, sizeof(float)); /* zeros, as the momentum is */
	if (!run->params || !run->grads)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for parameters");
	status = gn_server_client_create(&co, &run->client, err);
	if (!status)
		status = gn_server_client_open(run->client, &open, &a, err);
	if (!status)
		status = gn_server_pushes_create(run->client, run->grads, elements, 0, elements, &run->pushes, err);
	if (!status)
		status = train(run, rate, err);
	return status ? status : gn_server_client_leave(run->client, gn_server_client_worker(run->client) == 0, err);
}

static enum gn_status serve(struct run *run, struct gn_err *err)
{
	struct gn_server_options so = {.comm = run->b->comm, .messages = run->messages, .spec = run->spec, .model = "lenet",
				       .optimizer = {.name = "sgd", .momentum = 0.9, .eps = -1}, .device = {.backend = GN_BACKEND_HOST}};
	enum gn_status status = gn_server_create(&so, &run->server, err);

	return status ? status : gn_server_wait(run->server, err);
}

/* Collective. *rate: steps of all workers a second. */
static enum gn_status run_way(struct bench *b, const char *update, int one_is_slow, double *rate, struct gn_err *err)
{
	struct run run = {.b = b, .one_is_slow = one_is_slow};
	enum gn_status status = gn_server_parse(update, "1", &run.spec, err);

	*rate = 0;
	if (!status)
		status = gn_messages_create(b->comm, &run.messages, err);
	if (!status)
		status = gn_comm_rank(b->comm) < gn_server_first(&run.spec, RANKS) ? work(&run, rate, err) : serve(&run, err);
	gn_server_destroy(run.server);
	gn_messages_destroy(run.messages);
	gn_server_pushes_free(run.pushes);
	gn_server_client_destroy(run.client);
	free(run.params);
	free(run.grads);
	return status ? status : gn_comm_allreduce(b->comm, rate, 1, GN_F64, NULL, err);
}

/* --- all of them --- */

static enum gn_status run_rounds(struct bench *b, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int round = 0; round < b->rounds; round++)
		for (int p = 0; p < PATTERNS; p++) {
			for (int k = 0; k < WAYS && !status; k++) {
				int way = (k + round) % WAYS;

				status = run_way(b, way ? patterns[p].update : "sync", patterns[p].one_is_slow, &b->rate[p][way][round], err);
			}
			b->ratio[p][round] = b->rate[p][1][round] / b->rate[p][0][round];
		}
	return status;
}

static double median(double *values, int count)
{
	gn_sort_doubles(values, (size_t)count);
	return values[count / 2];
}

static enum gn_status print(struct bench *b, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "computing", "a timer of 40 ms");
	gn_json_int(&j, "workers", RANKS - 1);
	for (int p = 0; p < PATTERNS; p++) {
		double ratio = median(b->ratio[p], b->rounds);

		gn_json_object(&j, patterns[p].name);
		gn_json_fixed(&j, "sync steps/s", median(b->rate[p][0], b->rounds), 2);
		gn_json_string(&j, "beside", patterns[p].update);
		gn_json_fixed(&j, "steps/s", median(b->rate[p][1], b->rounds), 2);
		gn_json_fixed(&j, "ratio", ratio, 3);
		gn_json_end(&j);
		if (ratio < patterns[p].wanted)
			status = gn_err_set(err, GN_ERR_FAILED, "%s: %s is %.2f times as fast as sync, not %.1f", patterns[p].name,
					    patterns[p].update, ratio, patterns[p].wanted);
	}
	gn_json_int(&j, "ahead_most", b->ahead_most);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
	if (!status && b->ahead_most > 3)
		status = gn_err_set(err, GN_ERR_FAILED, "a worker of ssp:3 was %u steps ahead", b->ahead_most);
	return status;
}

int main(int argc, char **argv)
{
	const struct gn_comm_options options = {.transport = "auto", .tuning = "none"};
	struct bench b = {.seconds = argc > 1 ? atof(argv[1]) : 4, .rounds = argc > 2 ? atoi(argv[2]) : 3};
	struct gn_world *world = NULL;
	struct gn_err err;
	enum gn_status status;

	if (argc > 3 || !(b.seconds > 0) || b.rounds < 1 || b.rounds > ROUNDS_MAX)
		return 2;
	status = gn_world_create(NULL, NULL, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, NULL, &b.comm, &err);
	if (!status && gn_comm_size(b.comm) != RANKS)
		status = gn_err_set(&err, GN_ERR_USAGE, "start %d ranks: gannet launch -n %d -- bench/parallel/stragglers", RANKS, RANKS);
	omp_set_num_threads(1);
	if (!status)
		status = gn_model_create("lenet", CLASSES, 1, SIDE, &b.model, &err);
	if (!status)
		status = run_rounds(&b, &err);
	if (!status && gn_comm_rank(b.comm) == 0)
		status = print(&b, &err);
	if (status)
		fprintf(stderr, "bench/parallel/stragglers: %s\n", err.text);
	gn_model_destroy(b.model);
	gn_comm_destroy(b.comm);
	gn_world_destroy(world);
	return status ? 1 : 0;
}
