/* What the multi-rank tests start: collectives with checked results, at many sizes.
 * usage: rank_probe TRANSPORT             run all checks once
 *        rank_probe TRANSPORT brief       a few of them
 *        rank_probe TRANSPORT forever     allreduce until something ends it; says "ready" after ten
 *        rank_probe TRANSPORT leave       rank 1 leaves early while the others reduce
 *        rank_probe TRANSPORT give-up     rank 1 gives up for a reason
 *        rank_probe TRANSPORT give-up-amid  the same when messages for it have come already
 *        rank_probe TRANSPORT mismatch N  rank 1 reduces one element less than the others' N
 * Exit codes as gannet's. */
#include "src/base/log.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small whole numbers: sums are exact in any order. */
static int32_t given(int rank, size_t i, int round)
{
	return (int32_t)((i * 7 + (size_t)rank * 13 + (size_t)round * 5) % 101) - 50;
}

static const char *const algorithms[] = {"auto", "ring", "recursive-doubling"};
#define ORDINARY 2 /* that one in ordinary memory */

static int check_allreduce(struct gn_comm *c, size_t count, int algo, int out_of_place, struct gn_err *err)
{
	int rank = gn_comm_rank(c), size = gn_comm_size(c), wrong = 0;
	float *in = malloc(count * sizeof *in + 4), *out;
	struct gn_coll_args args = {.count = count, .algorithm = algorithms[algo]};
	struct gn_coll *coll = NULL;
	void *memory;

	if (!in)
		abort();
	/* memory of the communicator's, somewhere inside of it; for the last algorithm ordinary memory */
	if (gn_comm_alloc(c, count * sizeof *out + 100, &memory, err))
		return -1;
	out = algo == ORDINARY ? malloc(count * sizeof *out + 4) : (float *)memory + 5;
	if (!out)
		abort();
	args.in = out_of_place ? in : NULL;
	args.out = out;
	if (gn_coll_prepare(c, &args, &coll, err))
		return -1;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < count; i++)
			in[i] = out[i] = (float)given(rank, i, round);
		for (size_t i = 0; out_of_place && i < count; i++)
			out[i] = -1e30f;
		if (gn_coll_start(coll, NULL, err) || gn_coll_wait(coll, err))
			return -1;
		for (size_t i = 0; i < count; i++) {
			int32_t sum = 0;

			for (int r = 0; r < size; r++)
				sum += given(r, i, round);
			wrong += out[i] != (float)sum;
			wrong += out_of_place && in[i] != (float)given(rank, i, round);
		}
	}
	gn_coll_free(coll);
	free(in);
	if (algo == ORDINARY)
		free(out);
	gn_comm_free(c, memory);
	return wrong;
}

/* Real fractions: every rank must hold the same bits. */
static int check_same_bits(struct gn_comm *c, size_t count, const char *algo, struct gn_err *err)
{
	float *data, *first = malloc(count * sizeof *first);
	struct gn_coll *coll = NULL;
	void *memory;
	int wrong;

	if (!first)
		abort();
	if (gn_comm_alloc(c, count * sizeof *data, &memory, err))
		return -1;
	data = memory;
	for (size_t i = 0; i < count; i++)
		data[i] = 1.0f / (float)(3 + i + 17 * (size_t)gn_comm_rank(c));
	if (gn_coll_allreduce(c, data, count, GN_F32, NULL, algo, &coll, err) || gn_coll_start(coll, NULL, err) ||
	    gn_coll_wait(coll, err))
		return -1;
	memcpy(first, data, count * sizeof *data);
	if (gn_comm_broadcast(c, first, count * sizeof *first, 0, err))
		return -1;
	wrong = memcmp(first, data, count * sizeof *data) != 0;
	gn_coll_free(coll);
	gn_comm_free(c, memory);
	free(first);
	return wrong;
}

static int check_broadcast(struct gn_comm *c, size_t len, int root, struct gn_err *err)
{
	unsigned char *data = malloc(len + 1);
	int wrong = 0;

	if (!data)
		abort();
	for (size_t i = 0; i < len; i++)
		data[i] = gn_comm_rank(c) == root ? (unsigned char)(i * 31 + 7) : 0;
	if (gn_comm_broadcast(c, data, len, root, err))
		return -1;
	for (size_t i = 0; i < len; i++)
		wrong += data[i] != (unsigned char)(i * 31 + 7);
	free(data);
	return wrong;
}

/* Three shared operations in flight at once, a hundred times, waited for in another order. */
static int check_several_shared(struct gn_comm *c, struct gn_err *err)
{
	enum { N = 3, COUNT = 3001 };
	struct gn_coll *coll[N];
	int size = gn_comm_size(c), wrong = 0;
	int32_t *data;
	void *memory;

	if (gn_comm_alloc(c, sizeof *data * N * COUNT, &memory, err))
		return -1;
	data = memory;
	for (int k = 0; k < N; k++)
		if (gn_coll_allreduce(c, data + k * COUNT, COUNT, GN_I32, NULL, NULL, &coll[k], err))
			return -1;
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < N * COUNT; i++)
			data[i] = i + round + gn_comm_rank(c);
		for (int k = 0; k < N; k++)
			if (gn_coll_start(coll[k], NULL, err))
				return -1;
		for (int k = N; k-- > 0;)
			if (gn_coll_wait(coll[k], err))
				return -1;
		for (int i = 0; i < N * COUNT; i++)
			wrong += data[i] != (i + round) * size + size * (size - 1) / 2;
	}
	for (int k = 0; k < N; k++)
		gn_coll_free(coll[k]);
	gn_comm_free(c, memory);
	return wrong;
}

/* Three operations in flight at once, waited for in another order. */
static int check_several(struct gn_comm *c, struct gn_err *err)
{
	enum { N = 3, COUNT = 70001 };
	struct gn_coll *coll[N];
	int64_t *data[N];
	int size = gn_comm_size(c), wrong = 0;

	for (int k = 0; k < N; k++) {
		data[k] = malloc(sizeof **data * COUNT);
		if (!data[k])
			abort();
		for (int i = 0; i < COUNT; i++)
			data[k][i] = (int64_t)i * (k + 1) + gn_comm_rank(c);
		if (gn_coll_allreduce(c, data[k], COUNT, GN_I64, NULL, k == 1 ? "recursive-doubling" : "ring",
				      &coll[k], err))
			return -1;
	}
	for (int k = 0; k < N; k++)
		if (gn_coll_start(coll[k], NULL, err))
			return -1;
	for (int k = N; k-- > 0;) {
		if (gn_coll_wait(coll[k], err))
			return -1;
		for (int i = 0; i < COUNT; i++)
			wrong += data[k][i] != (int64_t)i * (k + 1) * size + (int64_t)size * (size - 1) / 2;
		gn_coll_free(coll[k]);
		free(data[k]);
	}
	return wrong;
}

/* Who is through with a collective may still owe its neighbours a part of it, and goes on giving it while it waits for them
 * elsewhere. */
static int check_owing(struct gn_comm *c, struct gn_err *err)
{
	size_t count = 200003;
	struct gn_coll *coll[5] = {0};
	int failed = 0;
	int64_t *data = calloc(5 * count, sizeof *data);

	for (int k = 0; k < 5 && !failed; k++)
		failed = !data || gn_coll_allreduce(c, data + (size_t)k * count, count, GN_I64, NULL, algorithms[k % 3], &coll[k], err);
	for (int round = 0; round < 20 && !failed; round++) {
		for (int k = 0; k < 5 && !failed; k++)
			failed = gn_coll_start(coll[k], NULL, err) != GN_OK;
		for (int k = 0; k < 5 && !failed; k++)
			failed = gn_coll_wait(coll[k], err) != GN_OK;
		failed = failed || gn_world_barrier(gn_comm_world(c), err);
	}
	for (int k = 0; k < 5; k++)
		gn_coll_free(coll[k]);
	free(data);
	return failed ? -1 : 0;
}

static int all_checks(struct gn_comm *c, struct gn_err *err)
{
	static const size_t counts[] = {0, 1, 2, 7, 257, 8191, 400009};
	int wrong = 0, got = 0;

	for (size_t k = 0; k < sizeof counts / sizeof *counts && got >= 0; k++)
		for (int variant = 0; variant < 6 && got >= 0; variant++) {
			got = check_allreduce(c, counts[k], variant / 2, variant % 2, err);
			if (got > 0)
				fprintf(stderr, "allreduce of %zu: variant %d: %d wrong\n", counts[k], variant, got);
			wrong += got;
		}
	for (int algo = 0; algo < 3 && got >= 0; algo++)
		wrong += got = check_same_bits(c, 100003, algorithms[algo], err);
	for (size_t k = 0; k < sizeof counts / sizeof *counts && got >= 0; k++)
		for (int root = 0; root < gn_comm_size(c) && got >= 0; root++)
			wrong += got = check_broadcast(c, counts[k], root, err);
	for (int i = 0; i < 100 && got >= 0; i++)
		got = gn_comm_barrier(c, err) ? -1 : 0;
	if (got >= 0)
		wrong += got = check_several(c, err);
	if (got >= 0)
		wrong += got = check_several_shared(c, err);
	if (got >= 0)
		got = check_owing(c, err);
	return got < 0 ? got : wrong;
}

static int a_few_checks(struct gn_comm *c, struct gn_err *err)
{
	int wrong = 0, got = 0;

	for (int variant = 0; variant < 6 && got >= 0; variant++)
		wrong += got = check_allreduce(c, 8191, variant / 2, variant % 2, err);
	for (int root = 0; root < gn_comm_size(c) && got >= 0; root++)
		wrong += got = check_broadcast(c, 257, root, err);
	return got < 0 ? got : wrong;
}

static int forever(struct gn_comm *c, struct gn_err *err)
{
	struct gn_coll *coll;
	void *data;

	if (gn_comm_alloc(c, 1000000 * sizeof(float), &data, err) || gn_coll_allreduce(c, data, 1000000, GN_F32, NULL, NULL, &coll, err))
		return -1;
	for (long i = 0;; i++) {
		if (gn_coll_start(coll, NULL, err) || gn_coll_wait(coll, err)) {
			gn_coll_free(coll);
			return -1;
		}
		if (i == 10) {
			printf("ready %d %d\n", gn_comm_rank(c), (int)getpid());
			fflush(stdout);
		}
	}
}

/* The others have begun an operation when rank 1 gives up. */
static int give_up_amid(struct gn_comm *c, int *code, struct gn_err *err)
{
	struct gn_world *w = gn_comm_world(c);
	float data[1000] = {0};
	struct gn_coll *coll;
	int failed = gn_coll_allreduce(c, data, 1000, GN_F32, NULL, "ring", &coll, err) || gn_coll_start(coll, NULL, err) ||
		     gn_coll_wait(coll, err) || gn_world_barrier(w, err);

	if (!failed && gn_world_rank(w) != 1)
		failed = gn_coll_start(coll, NULL, err) != GN_OK;
	failed = failed || gn_world_barrier(w, err);
	if (!failed && gn_world_rank(w) == 1) {
		gn_world_abort(w, GN_ERR_DATA, "shard 7 is broken");
		*code = 3;
	} else {
		failed = failed || gn_coll_wait(coll, err);
	}
	gn_coll_free(coll);
	return failed ? -1 : 0;
}

static int mismatch(struct gn_comm *c, size_t count, struct gn_err *err)
{
	float *data = calloc(count, sizeof *data);
	enum gn_status status;

	if (!data)
		abort();
	status = gn_comm_allreduce(c, data, count - (gn_comm_rank(c) == 1), GN_F32, NULL, err);
	if (!status)
		status = gn_comm_barrier(c, err);
	free(data);
	return status ? -1 : 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	struct gn_comm_options options = {.transport = argc > 1 ? argv[1] : "auto"};
	struct gn_world_options limits = {.limits = {.join_s = getenv("PROBE_TIMEOUT_MS") ? atoi(getenv("PROBE_TIMEOUT_MS")) / 1e3 : 0}};
	struct gn_world *world = NULL;
	struct gn_comm *comm = NULL;
	struct gn_log *log = NULL;
	struct gn_err err;
	int code = 0, wrong = 0;

	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	if (gn_world_create(&limits, log, &world, &err)) {
		code = exit_code(&err);
		gn_log_destroy(log);
		return code;
	}
	if (gn_comm_create(world, &options, log, &comm, &err)) {
		code = exit_code(&err);
	} else if (gn_world_rank(world) == 1 && !strcmp(mode, "leave")) {
		code = 0;
	} else if (gn_world_rank(world) == 1 && !strcmp(mode, "give-up")) {
		gn_world_abort(world, GN_ERR_DATA, "shard 7 is broken");
		code = 3;
	} else {
		if (!strcmp(mode, "mismatch") && argc > 3)
			wrong = mismatch(comm, (size_t)atol(argv[3]), &err);
		else if (!strcmp(mode, "give-up-amid"))
			wrong = give_up_amid(comm, &code, &err);
		else
			wrong = !*mode ? all_checks(comm, &err) : !strcmp(mode, "brief") ? a_few_checks(comm, &err) : forever(comm, &err);
		if (wrong < 0)
			code = exit_code(&err);
		else
			printf("rank %d of %d on %d nodes by %s: %d wrong\n", gn_world_rank(world), gn_world_size(world),
			       gn_world_nodes(world), gn_world_bootstrap(world), wrong);
	}
	gn_comm_destroy(comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return code ? code : wrong != 0;
}
