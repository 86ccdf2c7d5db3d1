/* What the multi-rank tests start: every collective by every algorithm, checked.
 * usage: coll_probe TRANSPORT [caller|thread]   all of them, with progress by whom; exit code 1 when an element is wrong
 * PROBE_TYPES in the environment: the number of types that are tried, of f32, f64, ...; all of them by default.
 * Values are small whole numbers, so that sums are exact in any order and type. */
#include "src/base/half.h"
#include "src/base/log.h"
#include "transport/schedule/algo.h"
#include "transport/coll/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct test {
	struct gn_world *world;
	struct gn_comm *comm;
	const char *transport, *progress;
	struct gn_coll_args a;
	int rank, size, shared;
	char *in, *out;
	size_t in_count, out_count, room; /* elements; room in each buffer */
};

static double given(int rank, size_t i)
{
	return (double)((i * 7 + (size_t)rank * 13) % 13) - 6;
}

static void put(enum gn_dtype type, char *data, size_t i, double value)
{
	switch (type) {
	case GN_F32:
		((float *)(void *)data)[i] = (float)value;
		break;
	case GN_F64:
		((double *)(void *)data)[i] = value;
		break;
	case GN_I32:
		((int32_t *)(void *)data)[i] = (int32_t)value;
		break;
	case GN_I64:
		((int64_t *)(void *)data)[i] = (int64_t)value;
		break;
	case GN_F16:
		((uint16_t *)(void *)data)[i] = gn_f16_of_f32((float)value);
		break;
	case GN_BF16:
		((uint16_t *)(void *)data)[i] = gn_bf16_of_f32((float)value);
		break;
	default:
		data[i] = (char)(value + 6);
	}
}

static double get(enum gn_dtype type, const char *data, size_t i)
{
	switch (type) {
	case GN_F32:
		return (double)((const float *)(const void *)data)[i];
	case GN_F64:
		return ((const double *)(const void *)data)[i];
	case GN_I32:
		return ((const int32_t *)(const void *)data)[i];
	case GN_I64:
		return (double)((const int64_t *)(const void *)data)[i];
	case GN_F16:
		return (double)gn_f32_of_f16(((const uint16_t *)(const void *)data)[i]);
	case GN_BF16:
		return (double)gn_f32_of_bf16(((const uint16_t *)(const void *)data)[i]);
	default:
		return data[i] - 6;
	}
}

/* Element i of what everyone's whole buffers reduce to. */
static double reduced(const struct test *t, size_t i)
{
	double acc = given(0, i);

	for (int r = 1; r < t->size; r++) {
		double v = given(r, i);

		if (t->a.reduction == GN_MAX)
			acc = v > acc ? v : acc;
		else if (t->a.reduction == GN_MIN)
			acc = v < acc ? v : acc;
		else
			acc += v;
	}
	if (t->a.reduction != GN_AVERAGE)
		return acc;
	/* as in the type: through it for small floats, toward zero for integers */
	if (t->a.type == GN_I32 || t->a.type == GN_I64)
		return (double)((int64_t)acc / t->size);
	acc /= t->size;
	if (t->a.type == GN_F16)
		return (double)gn_f32_of_f16(gn_f16_of_f32((float)acc));
	if (t->a.type == GN_BF16)
		return (double)gn_f32_of_bf16(gn_bf16_of_f32((float)acc));
	return t->a.type == GN_F32 ? (double)(float)acc : acc;
}

static size_t block_start(const struct test *t, int rank)
{
	size_t at = 0;

	for (int r = 0; r < rank; r++)
		at += t->a.counts ? t->a.counts[r] : t->a.count;
	return at;
}

/* Element i of rank's output, or of the block of it that has a meaning. */
static double wanted(const struct test *t, size_t i)
{
	int rank = 0;

	switch (t->a.what) {
	case GN_COLLECTIVE_BROADCAST:
		return given(t->a.root, i);
	case GN_COLLECTIVE_REDUCE_SCATTER:
		return reduced(t, (size_t)t->rank * t->a.count + i);
	case GN_COLLECTIVE_ALLGATHER:
		while (block_start(t, rank + 1) <= i)
			rank++;
		return given(rank, i - block_start(t, rank));
	case GN_COLLECTIVE_ALL_TO_ALL:
		return given((int)(i / t->a.count), (size_t)t->rank * t->a.count + i % t->a.count);
	default:
		return reduced(t, i);
	}
}

static void measure(struct test *t)
{
	size_t all = block_start(t, t->size);

	t->in_count = t->out_count = t->a.count;
	if (t->a.what == GN_COLLECTIVE_REDUCE_SCATTER || t->a.what == GN_COLLECTIVE_ALL_TO_ALL)
		t->in_count = all;
	if (t->a.what == GN_COLLECTIVE_ALLGATHER || t->a.what == GN_COLLECTIVE_ALL_TO_ALL)
		t->out_count = all;
	if (t->a.what == GN_COLLECTIVE_ALLGATHER && t->a.counts)
		t->in_count = t->a.counts[t->rank];
}

/* In place, input and result stand somewhere within one buffer. */
static size_t in_place_at(const struct test *t)
{
	return t->a.what == GN_COLLECTIVE_ALLGATHER ? block_start(t, t->rank) : 0;
}

static size_t result_at(const struct test *t, int in_place)
{
	return in_place && t->a.what == GN_COLLECTIVE_REDUCE_SCATTER ? (size_t)t->rank * t->a.count : 0;
}

static int has_result(const struct test *t)
{
	return t->a.what != GN_COLLECTIVE_REDUCE || t->rank == t->a.root;
}

static int count_wrong(const struct test *t, int in_place)
{
	size_t element = gn_dtype_bytes(t->a.type);
	const char *result = t->out + result_at(t, in_place) * element;
	int wrong = 0;

	for (size_t i = 0; i < t->out_count && has_result(t); i++)
		wrong += get(t->a.type, result, i) != wanted(t, i);
	for (size_t i = 0; i < t->in_count && !in_place; i++)
		wrong += get(t->a.type, t->in, i) != given(t->rank, i);
	return wrong;
}

/* Returns wrong elements, or -1. */
static int run(struct test *t, int in_place, struct gn_err *err)
{
	size_t element = gn_dtype_bytes(t->a.type);
	char *base = in_place ? t->out + in_place_at(t) * element : t->in;
	struct gn_coll *coll;
	int wrong = 0;

	t->a.in = in_place ? NULL : t->in;
	t->a.out = t->out;
	if (gn_coll_prepare(t->comm, &t->a, &coll, err))
		return -1;
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < t->room && !in_place; i++)
			put(t->a.type, t->out, i, -5);
		for (size_t i = 0; i < t->in_count; i++)
			put(t->a.type, base, i, given(t->rank, i));
		if (gn_coll_start(coll, NULL, err) || gn_coll_wait(coll, err))
			return -1;
		wrong += count_wrong(t, in_place);
	}
	gn_coll_free(coll);
	return wrong;
}

static int check(struct test *t, struct gn_err *err)
{
	int both = t->a.what != GN_COLLECTIVE_ALL_TO_ALL, wrong = 0, got;

	measure(t);
	for (int in_place = 0; in_place <= both; in_place++) {
		got = run(t, in_place, err);
		if (got)
			fprintf(stderr, "rank %d: %s by %s, %zu of %s, %s, root %d, %s: %d wrong\n", t->rank,
				gn_collective_name(t->a.what), t->a.algorithm, t->a.count, gn_dtype_name(t->a.type),
				gn_reduction_name(t->a.reduction), t->a.root, in_place ? "in place" : "out of place", got);
		if (got < 0)
			return -1;
		wrong += got;
	}
	return wrong;
}

/* All types with the sum, all reductions with one, roots in turn, counts that do not divide. */
static int check_algorithm(struct test *t, struct gn_err *err)
{
	static const size_t counts[] = {0, 1, 5, 3001};
	size_t own[64];
	const char *some = getenv("PROBE_TYPES");
	int types = some ? atoi(some) : GN_DTYPE_COUNT, wrong = 0, got = 0, turn = 0;

	for (size_t k = 0; k < 4 && got >= 0; k++)
		for (int type = 0; type < types && got >= 0; type++)
			for (int red = 0; red < GN_REDUCTION_COUNT && got >= 0; red++) {
				int reduces = t->a.what == GN_COLLECTIVE_ALLREDUCE || t->a.what == GN_COLLECTIVE_REDUCE ||
					      t->a.what == GN_COLLECTIVE_REDUCE_SCATTER;

				if ((type == GN_BYTES && reduces && (red == GN_SUM || red == GN_AVERAGE)) || (red && !reduces))
					continue;
				t->a.count = counts[k];
				t->a.type = (enum gn_dtype)type;
				t->a.reduction = (enum gn_reduction)red;
				t->a.root = turn++ % t->size;
				wrong += got = check(t, err);
			}
	if (t->a.what != GN_COLLECTIVE_ALLGATHER || got < 0 || t->size > 64)
		return got < 0 ? -1 : wrong;
	for (int r = 0; r < t->size; r++)
		own[r] = (size_t)(r * 1000) % 2500;
	t->a.counts = own;
	got = check(t, err);
	t->a.counts = NULL;
	return got < 0 ? -1 : wrong + got;
}

static size_t sent(int from, int to)
{
	return (size_t)((from * 7 + to * 3) % 5) * 70;
}

/* Blocks of lengths of their own, some empty; and what the arguments may not be. */
static int check_all_to_all_counts(struct test *t, struct gn_err *err)
{
	size_t *to = calloc((size_t)t->size, sizeof *to), *from = calloc((size_t)t->size, sizeof *from), at = 0;
	int wrong = 0;

	if (!to || !from)
		return -1;
	for (int r = 0; r < t->size; r++) {
		to[r] = sent(t->rank, r);
		from[r] = sent(r, t->rank);
		for (size_t i = 0; i < to[r]; i++)
			put(GN_I32, t->in, at++, given(t->rank + r, i));
	}
	memset(t->out, 0xff, t->room);
	t->a = (struct gn_coll_args){.what = GN_COLLECTIVE_ALL_TO_ALL, .in = t->in, .out = t->out, .type = GN_I32, .counts = to,
				     .counts_from = from};
	if (gn_comm_run(t->comm, &t->a, err))
		wrong = -1;
	at = 0;
	for (int r = 0; r < t->size && wrong >= 0; r++)
		for (size_t i = 0; i < from[r]; i++)
			wrong += get(GN_I32, t->out, at++) != given(r + t->rank, i);
	from[t->rank]++;
	wrong += wrong >= 0 && gn_comm_run(t->comm, &t->a, NULL) != GN_ERR_USAGE;
	t->a.counts_from = NULL;
	wrong += wrong >= 0 && gn_comm_run(t->comm, &t->a, NULL) != GN_ERR_USAGE;
	free(to);
	free(from);
	return wrong;
}

static int check_all(struct test *t, struct gn_err *err)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);
	int wrong = 0, got = 0;

	for (size_t i = 0; i < count && got >= 0; i++) {
		if (all[i].what == GN_COLLECTIVE_BARRIER)
			continue;
		t->a = (struct gn_coll_args){.what = all[i].what, .algorithm = all[i].name};
		wrong += got = check_algorithm(t, err);
	}
	for (int what = 0; what < GN_COLLECTIVE_COUNT && got >= 0; what++) {
		if (what == GN_COLLECTIVE_BARRIER)
			continue;
		t->a = (struct gn_coll_args){.what = (enum gn_collective)what, .algorithm = "auto"};
		wrong += got = check_algorithm(t, err);
	}
	if (got >= 0)
		wrong += got = check_all_to_all_counts(t, err);
	return got < 0 ? -1 : wrong;
}

/* An urgent small one in flight with a large one that was started before it: both are right. (That it is done first is no
 * promise: a rank that was not running finds both complete.) */
static int check_priority(struct test *t, struct gn_err *err)
{
	enum { LARGE = 4000000 };
	struct gn_coll_args large = {.count = LARGE, .algorithm = "ring"}, small = {.count = 100, .algorithm = "ring", .priority = 1};
	float *data = calloc(LARGE, sizeof *data), few[100];
	struct gn_coll *slow, *quick;
	int wrong = 0;

	if (!data)
		abort();
	large.out = data;
	small.out = few;
	if (gn_coll_prepare(t->comm, &large, &slow, err) || gn_coll_prepare(t->comm, &small, &quick, err))
		return -1;
	for (int i = 0; i < LARGE; i++)
		data[i] = 1;
	for (int i = 0; i < 100; i++)
		few[i] = (float)i;
	if (gn_coll_start(slow, NULL, err) || gn_coll_start(quick, NULL, err) || gn_coll_wait(quick, err) || gn_coll_wait(slow, err))
		return -1;
	for (int i = 0; i < LARGE; i++)
		wrong += data[i] != (float)t->size;
	for (int i = 0; i < 100; i++)
		wrong += few[i] != (float)(i * t->size);
	gn_coll_free(slow);
	gn_coll_free(quick);
	free(data);
	return wrong;
}

/* Blocks that are cut into several pieces of unequal length. */
static int check_large_blocks(struct test *t, struct gn_err *err)
{
	static const enum gn_collective whats[] = {GN_COLLECTIVE_REDUCE_SCATTER, GN_COLLECTIVE_ALLGATHER, GN_COLLECTIVE_ALL_TO_ALL};
	struct test large = *t;
	int wrong = 0, got = 0;

	large.room = (size_t)t->size * 300007;
	large.in = malloc(large.room * sizeof(float));
	large.out = malloc(large.room * sizeof(float));
	if (!large.in || !large.out)
		abort();
	for (int i = 0; i < 3 && got >= 0; i++) {
		large.a = (struct gn_coll_args){.what = whats[i], .algorithm = "direct", .count = 300007};
		wrong += got = check(&large, err);
	}
	free(large.in);
	free(large.out);
	return got < 0 ? -1 : wrong;
}

static int check_refusals(struct test *t, struct gn_err *err)
{
	char byte[8] = {0};
	const struct gn_coll_args wrong[] = {
		{.what = GN_COLLECTIVE_ALLREDUCE, .out = byte, .count = 1, .type = GN_BYTES},
		{.what = GN_COLLECTIVE_ALLREDUCE, .out = byte, .count = SIZE_MAX / 8, .type = GN_F64},
		{.what = GN_COLLECTIVE_ALLREDUCE, .out = byte, .count = 1, .algorithm = "no-such-algorithm"},
		{.what = GN_COLLECTIVE_BROADCAST, .out = byte, .count = 1, .root = t->size},
		{.what = GN_COLLECTIVE_REDUCE, .out = byte, .count = 1, .root = -1},
		{.what = GN_COLLECTIVE_ALL_TO_ALL, .out = byte, .count = 1},
		{.what = GN_COLLECTIVE_COUNT, .out = byte, .count = 1},
	};
	struct gn_coll *coll;
	int taken = 0;

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		taken += gn_coll_prepare(t->comm, &wrong[i], &coll, err) != GN_ERR_USAGE;
	return taken;
}

/* Started by all, and then nobody calls the communicator. The world's barrier is not its business. */
static int check_unattended_one(struct test *t, const struct gn_coll_args *args, int by_thread, struct gn_err *err)
{
	const struct timespec pause = {0, 1000000};
	float *data = args->out;
	struct gn_coll *coll;
	int wrong = 0, done;

	if (gn_coll_prepare(t->comm, args, &coll, err))
		return -1;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < args->count; i++)
			data[i] = (float)given(t->rank, i);
		if (gn_coll_start(coll, NULL, err))
			return -1;
		/* the limit is there only against what hangs */
		for (int ms = 0; by_thread && !gn_coll_done(coll) && ms < 250000; ms++)
			nanosleep(&pause, NULL);
		/* without a thread it may be: where the others came first and go on in the barrier below */
		done = gn_coll_done(coll) || !by_thread;
		if (!done)
			fprintf(stderr, "rank %d: %s: not done while nobody calls\n", t->rank, args->algorithm);
		wrong += !done;
		/* all have looked */
		if (gn_world_barrier(t->world, err) || gn_coll_wait(coll, err))
			return -1;
		for (size_t i = 0; i < args->count; i++)
			wrong += data[i] != (float)reduced(t, i);
	}
	gn_coll_free(coll);
	return wrong;
}

static int check_unattended(struct test *t, int by_thread, struct gn_err *err)
{
	static const char *const algorithms[] = {"ring", "halving-doubling", "auto", "shared"};
	enum { COUNT = 300007 };
	int wrong = 0, got = 0;
	void *own = malloc(COUNT * sizeof(float)), *node;

	if (!own)
		abort();
	if (gn_comm_alloc(t->comm, COUNT * sizeof(float), &node, err))
		return -1;
	t->a.reduction = GN_SUM;
	for (int i = 0; i < 8 && got >= 0; i++) {
		struct gn_coll_args args = {.out = i % 2 ? own : node, .count = COUNT, .algorithm = algorithms[i / 2]};

		/* where all share memory, and there is something to do */
		if (i / 2 == 3 && (strcmp(t->transport, "auto") || gn_world_nodes(t->world) > 1 || t->size == 1 ||
				   (i % 2 && t->size > 4)))
			continue;
		wrong += got = check_unattended_one(t, &args, by_thread, err);
	}
	gn_comm_free(t->comm, node);
	free(own);
	return got < 0 ? -1 : wrong;
}

static int all_checks(struct test *t, struct gn_err *err)
{
	size_t bytes = (size_t)t->size * 3100 * 8;
	void *in, *out;
	int wrong, got = 0;

	t->room = (size_t)t->size * 3100;
	wrong = check_refusals(t, err);
	/* memory of the node's and ordinary memory */
	for (t->shared = 0; t->shared < 2 && got >= 0; t->shared++) {
		if (t->shared ? gn_comm_alloc(t->comm, bytes, &out, err) != GN_OK : !(out = malloc(bytes)))
			return -1;
		in = malloc(bytes);
		if (!in)
			abort();
		t->in = in;
		t->out = out;
		wrong += got = check_all(t, err);
		if (t->shared)
			gn_comm_free(t->comm, out);
		else
			free(out);
		free(in);
	}
	if (got >= 0)
		wrong += got = check_large_blocks(t, err);
	if (got >= 0)
		wrong += got = check_priority(t, err);
	if (got >= 0)
		wrong += got = check_unattended(t, !strcmp(t->progress, "thread"), err);
	return got < 0 ? -1 : wrong;
}

int main(int argc, char **argv)
{
	struct test t = {.transport = argc > 1 ? argv[1] : "auto", .progress = argc > 2 ? argv[2] : "caller"};
	struct gn_comm_options options = {.transport = t.transport, .progress = t.progress};
	struct gn_log *log = NULL;
	struct gn_err err = {0};
	int wrong = -1;

	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	if (gn_world_create(NULL, log, &t.world, &err) || gn_comm_create(t.world, &options, log, &t.comm, &err)) {
		fprintf(stderr, "start: %s\n", err.text);
	} else {
		t.rank = gn_comm_rank(t.comm);
		t.size = gn_comm_size(t.comm);
		wrong = all_checks(&t, &err);
		if (wrong < 0)
			fprintf(stderr, "check: %s\n", err.text);
		else
			printf("rank %d of %d on %d nodes: %d wrong\n", t.rank, t.size, gn_world_nodes(t.world), wrong);
	}
	gn_comm_destroy(t.comm);
	gn_world_destroy(t.world);
	gn_log_destroy(log);
	return wrong != 0;
}
