#include "transport/tune/tune.h"

#include "src/base/clock.h"
#include "src/base/sort.h"
#include "transport/coll/comm.h"
#include "transport/select/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_BYTES 64
#define FACTOR 4
#define CANDIDATES_MAX 8
/* Algorithms that the model predicts to be slower than the best by this factor are not measured. */
#define PREDICTED_FACTOR 3
#define ROUNDS 5
/* Enough to use up a shaped link's burst, as in long runs. */
#define ITERATIONS_MAX 200
#define WARMUP 2
/* The model's selection stays unless another takes less than this fraction of its time. */
#define BETTER_FACTOR 0.95

struct candidate {
	const struct gn_algorithm *algorithm;
	size_t piece_bytes; /* slice size; 0: by the model */
	uint32_t pieces;
	struct gn_coll *coll;
	double predicted_s, round_s[ROUNDS], median_s;
	int drain_iterations, iterations; /* drain_iterations: not timed, to use up a shaped link's burst */
};

struct trial {
	struct gn_comm *comm;
	float *buffer;
	size_t bytes;
	double seconds, burst_bytes;
	struct candidate list[CANDIDATES_MAX];
	int count;
};

static int by_prediction(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->predicted_s < y->predicted_s || x->predicted_s > y->predicted_s)
		return x->predicted_s < y->predicted_s ? -1 : 1;
	return (x->algorithm > y->algorithm) - (x->algorithm < y->algorithm);
}

/* Adds a candidate unless there is one of the same algorithm and number of slices. */
static enum gn_status add_candidate(struct trial *t, const struct gn_algorithm *a, size_t piece_bytes, struct gn_err *err)
{
	struct gn_select_args how = {.what = GN_COLLECTIVE_ALLREDUCE, .bytes = t->bytes, .map = gn_comm_map(t->comm),
				     .cost = gn_comm_cost(t->comm), .algo = a->name, .piece_bytes = piece_bytes};
	struct gn_choice choice;
	enum gn_status status = gn_select(&how, &choice, err);

	if (status || t->count == CANDIDATES_MAX)
		return status;
	for (int i = 0; i < t->count; i++)
		if (t->list[i].algorithm == a && t->list[i].pieces == choice.pieces)
			return GN_OK;
	t->list[t->count++] = (struct candidate){.algorithm = a, .piece_bytes = piece_bytes, .pieces = choice.pieces,
						 .predicted_s = choice.predicted_s};
	return GN_OK;
}

static void set_iterations(struct trial *t)
{
	for (int i = 0; i < t->count; i++) {
		struct candidate *c = &t->list[i];

		c->iterations = (int)fmin(ITERATIONS_MAX, fmax(1, t->seconds / ROUNDS / c->predicted_s));
		c->drain_iterations = (int)fmin(c->iterations, ceil(t->burst_bytes / (double)t->bytes));
	}
}

/* The same on all ranks: a function of costs that are. */
static enum gn_status list_algorithms(struct trial *t, struct gn_err *err)
{
	size_t all;
	const struct gn_algorithm *a = gn_algorithms(&all);
	enum gn_status status = GN_OK;

	t->count = 0;
	for (size_t i = 0; i < all && !status; i++)
		if (a[i].what == GN_COLLECTIVE_ALLREDUCE)
			status = add_candidate(t, &a[i], 0, err);
	qsort(t->list, (size_t)t->count, sizeof *t->list, by_prediction);
	while (t->count > 1 && t->list[t->count - 1].predicted_s > PREDICTED_FACTOR * t->list[0].predicted_s)
		t->count--;
	set_iterations(t);
	return status;
}

/* The fastest algorithm, first with its own slice size, then with all candidate sizes: longer messages may be faster because they
 * use rendezvous, which copies less. */
static enum gn_status find_slice_sizes(struct trial *t, const struct candidate *best, struct gn_err *err)
{
	int sizes;
	const size_t *piece_bytes = gn_select_piece_bytes(&sizes);
	const struct candidate first = *best;
	enum gn_status status = GN_OK;

	t->list[0] = first;
	t->count = 1;
	for (int i = 0; i < sizes && !status; i++)
		status = add_candidate(t, first.algorithm, piece_bytes[i], err);
	set_iterations(t);
	return status;
}

static enum gn_status run_candidate(struct candidate *c, int times, double *each_s, struct gn_err *err)
{
	double start = gn_clock_s();
	enum gn_status status = GN_OK;

	for (int i = 0; i < times && !status; i++) {
		status = gn_coll_start(c->coll, NULL, err);
		if (!status)
			status = gn_coll_wait(c->coll, err);
	}
	*each_s = (gn_clock_s() - start) / times;
	return status;
}

static enum gn_status prepare_all(struct trial *t, struct gn_err *err)
{
	double unused;
	enum gn_status status = GN_OK;

	for (int i = 0; i < t->count && !status; i++) {
		struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = t->buffer, .count = t->bytes / sizeof(float),
					    .type = GN_F32, .algorithm = t->list[i].algorithm->name,
					    .piece_bytes = t->list[i].piece_bytes};

		status = gn_coll_prepare(t->comm, &args, &t->list[i].coll, err);
		if (!status)
			status = run_candidate(&t->list[i], WARMUP, &unused, err);
	}
	return status;
}

/* First uses up the burst that a shaped link allows after an idle time: without that, 40 operations of 16 KiB by recursive doubling
 * seemed faster at 1 Gbit/s than by halving-doubling, which is 20 % faster in long runs. */
static enum gn_status time_candidate(struct trial *t, struct candidate *c, double *each_s, struct gn_err *err)
{
	enum gn_status status = gn_comm_barrier(t->comm, err);
	double unused;

	if (!status && c->drain_iterations)
		status = run_candidate(c, c->drain_iterations, &unused, err);
	return status ? status : run_candidate(c, c->iterations, each_s, err);
}

/* Rounds over all candidates, so that a disturbance affects all of them. A time is the slowest rank's median. */
static enum gn_status time_all(struct trial *t, struct gn_err *err)
{
	double medians[CANDIDATES_MAX];
	enum gn_status status = GN_OK;

	for (int round = 0; round < ROUNDS && !status; round++)
		for (int i = 0; i < t->count && !status; i++)
			status = time_candidate(t, &t->list[i], &t->list[i].round_s[round], err);
	for (int i = 0; i < t->count; i++) {
		gn_sort_doubles(t->list[i].round_s, ROUNDS);
		medians[i] = t->list[i].round_s[ROUNDS / 2];
	}
	if (!status)
		status = gn_comm_allreduce(t->comm, medians, (size_t)t->count, GN_F64, gn_reduce_max(GN_F64), err);
	for (int i = 0; i < t->count; i++)
		t->list[i].median_s = medians[i];
	return status;
}

/* Measures all candidates; *out is the fastest, or the first if that is about as fast. */
static enum gn_status compare(struct trial *t, const struct candidate **out, struct gn_err *err)
{
	const struct candidate *best = &t->list[0];
	enum gn_status status = prepare_all(t, err);

	if (!status)
		status = time_all(t, err);
	for (int i = 0; i < t->count; i++) {
		gn_coll_free(t->list[i].coll);
		t->list[i].coll = NULL;
		if (t->list[i].median_s < best->median_s)
			best = &t->list[i];
	}
	*out = best->median_s > BETTER_FACTOR * t->list[0].median_s ? &t->list[0] : best;
	return status;
}

static void add_pick(const struct trial *t, const struct candidate *best, struct gn_cost *cost)
{
	struct gn_cost_pick *pick = &cost->picks[cost->pick_count++];

	*pick = (struct gn_cost_pick){.bytes = (double)t->bytes, .seconds = best->median_s, .piece_bytes = (double)best->piece_bytes};
	snprintf(pick->algorithm, sizeof pick->algorithm, "%s", best->algorithm->name);
}

static enum gn_status measure_length(struct trial *t, struct gn_cost *cost, struct gn_err *err)
{
	const struct candidate *best;
	enum gn_status status = list_algorithms(t, err);

	/* for so long messages rates decide, which the model knows */
	if (status || t->list[0].predicted_s > t->seconds)
		return status;
	status = compare(t, &best, err);
	if (!status)
		status = find_slice_sizes(t, best, err);
	best = &t->list[0];
	if (!status && t->count > 1)
		status = compare(t, &best, err);
	if (!status)
		add_pick(t, best, cost);
	return status;
}

enum gn_status gn_tune_trials(struct gn_comm *c, double seconds, size_t max_bytes, struct gn_cost *cost, struct gn_err *err)
{
	/* measured; the communicator's own costs are without bursts */
	struct trial t = {.comm = c, .seconds = seconds, .burst_bytes = cost->link.burst_bytes};
	void *buffer = NULL;
	enum gn_status status;

	cost->pick_count = 0;
	if (gn_comm_all_share(c))
		return GN_OK;
	status = gn_comm_alloc(c, max_bytes > FIRST_BYTES ? max_bytes : FIRST_BYTES, &buffer, err);
	t.buffer = buffer;
	for (t.bytes = FIRST_BYTES; t.bytes <= max_bytes && cost->pick_count < GN_COST_PICKS && !status; t.bytes *= FACTOR)
		status = measure_length(&t, cost, err);
	gn_comm_free(c, buffer);
	return status;
}
