/* A rank for tests of staging (transport/coll/staged.h) on ordinary memory: random sizes, types, chunks and slots, several operations
 * in flight, each result compared bit by bit with allreduces of the same chunks straight in the host's memory.
 * usage: staged_probe TRANSPORT SEED ROUNDS [FAULT RANK AFTER]
 *        staged_probe TRANSPORT choose WHICH    which of two ways is faster, of which WHICH (0, 1) is the slow one on rank 0 alone
 * RANK does FAULT in round AFTER:
 *   exit   ends without a word while operations are in flight      copy   one of its copies fails
 *   free   frees an operation in flight
 * Exit codes as gannet's; 99: a wrong result. Prints what was compared. */
#include "src/base/half.h"
#include "src/base/log.h"
#include "src/base/philox.h"
#include "tests/transport/copier_host.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/coll_backend.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define OPS_MAX 5

struct run {
	struct gn_world *world;
	struct gn_comm *comm;
	uint64_t seed, round, ops, bytes;
	const char *fault;
	uint64_t fault_round;
	size_t chunk_bytes;
};

struct op {
	struct gn_staged *staged;
	enum gn_dtype type;
	enum gn_reduction reduction;
	const char *algorithm;
	size_t count;
	char *device, *expected;
};

/* The same on all ranks: number `which` of this round. */
static uint32_t chance(const struct run *r, uint32_t which)
{
	uint32_t counter[4] = {(uint32_t)r->round, 0, which, 0}, key[2] = {(uint32_t)r->seed, 7}, out[4];

	gn_philox(counter, key, out);
	return out[0];
}

/* Sums of these round, so that another order of ranks shows. */
static void fill(const struct run *r, const struct op *op, uint32_t salt)
{
	for (size_t i = 0; i < op->count; i++) {
		uint32_t x = (uint32_t)(i * 2654435761u) + (uint32_t)gn_comm_rank(r->comm) * 40503u + salt * 977u +
			     (uint32_t)r->round;
		float value;

		x = (x ^ x >> 15) * 2246822519u;
		value = ldexpf((float)(int32_t)x, -24 - (int)(x & 7));
		if (op->type == GN_F32)
			((float *)(void *)op->device)[i] = value;
		else if (op->type == GN_F64)
			((double *)(void *)op->device)[i] = value / 3.0;
		else if (op->type == GN_I64)
			((int64_t *)(void *)op->device)[i] = (int32_t)x;
		else
			((uint16_t *)(void *)op->device)[i] = gn_bf16_of_f32(value);
	}
	memcpy(op->expected, op->device, op->count * gn_dtype_bytes(op->type));
}

/* The same chunks, by themselves. */
static enum gn_status reduce_directly(const struct run *r, const struct op *op, struct gn_err *err)
{
	size_t each = gn_dtype_bytes(op->type), step = (r->chunk_bytes + 63) / 64 * 64 / each;
	enum gn_status status = GN_OK;

	for (size_t at = 0; at < op->count && !status; at += step) {
		struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = op->expected + at * each, .type = op->type,
					    .count = op->count - at < step ? op->count - at : step, .reduction = op->reduction,
					    .algorithm = op->algorithm};

		status = gn_comm_run(r->comm, &args, err);
	}
	return status;
}

static enum gn_status make_op(struct run *r, struct gn_stager *s, uint32_t n, struct op *op, struct gn_err *err)
{
	static const enum gn_dtype types[] = {GN_F32, GN_F64, GN_I64, GN_BF16};
	static const enum gn_reduction reductions[] = {GN_SUM, GN_AVERAGE, GN_MAX};
	/* those that add up an element's ranks in one order wherever its memory lies */
	static const char *const algorithms[] = {"ring", "recursive-doubling", "halving-doubling"};
	static const size_t most[] = {1, 3, 1000, 30000, 200000};

	op->type = types[chance(r, 10 * n + 100) % 4];
	op->reduction = reductions[chance(r, 10 * n + 101) % 3];
	op->algorithm = algorithms[chance(r, 10 * n + 102) % 3];
	op->count = chance(r, 10 * n + 103) % most[chance(r, 10 * n + 104) % 5];
	if (r->chunk_bytes < 4096)
		op->count %= 1000;
	op->device = malloc(op->count * gn_dtype_bytes(op->type) + 1);
	op->expected = malloc(op->count * gn_dtype_bytes(op->type) + 1);
	if (!op->device || !op->expected)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	return gn_staged_prepare(s, op->device, op->count, op->type, op->reduction, op->algorithm, &op->staged, err);
}

static enum gn_status finish(const struct run *r, struct op *op, uint32_t n, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int done = 0;

	/* both ways of waiting */
	while (chance(r, 10 * n + 105) % 2 && !done && !status) {
		status = gn_staged_test(op->staged, &done, err);
		sched_yield();
	}
	return status ? status : gn_staged_wait(op->staged, err);
}

static void compare(struct run *r, const struct op *op, uint32_t n)
{
	size_t bytes = op->count * gn_dtype_bytes(op->type);

	if (memcmp(op->device, op->expected, bytes)) {
		fprintf(stderr, "WRONG: seed %llu, round %llu, operation %u of %zu elements\n", (unsigned long long)r->seed,
			(unsigned long long)r->round, n, op->count);
		_exit(WRONG);
	}
	r->ops++;
	r->bytes += bytes;
}

static int is_due(const struct run *r, const char *fault)
{
	return !strcmp(r->fault, fault) && r->round == r->fault_round;
}

/* All of them at once, twice. */
static enum gn_status run_ops(struct run *r, struct op *ops, uint32_t count, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (uint32_t again = 0; again < 2 && !status; again++) {
		for (uint32_t n = 0; n < count; n++)
			fill(r, &ops[n], 2 * n + again);
		for (uint32_t n = 0; n < count && !status; n++)
			status = gn_staged_start(ops[n].staged, NULL, err);
		if (!status && ops[0].count > 1000 && gn_staged_start(ops[0].staged, NULL, NULL) != GN_ERR_USAGE) {
			fprintf(stderr, "WRONG: started twice\n");
			_exit(WRONG);
		}
		if (is_due(r, "exit"))
			_exit(0);
		if (is_due(r, "free")) {
			gn_staged_free(ops[count - 1].staged);
			ops[count - 1].staged = NULL;
			return gn_err_set(err, GN_ERR_FAILED, "freed on purpose");
		}
		for (uint32_t n = 0; n < count && !status; n++)
			status = finish(r, &ops[count - 1 - n], count - 1 - n, err);
		for (uint32_t n = 0; n < count && !status; n++) {
			status = reduce_directly(r, &ops[n], err);
			if (!status)
				compare(r, &ops[n], n);
		}
	}
	return status;
}

static enum gn_status one_round(struct run *r, struct gn_err *err)
{
	static const size_t chunks[] = {64, 1000, 4096, 65536, 1 << 20};
	static const int slots[] = {1, 2, 3, 4, 8};
	struct copier_host_options co = {.seed = r->seed + (uint64_t)gn_comm_rank(r->comm), .unpinned = (int)(r->round & 1)};
	struct gn_stager_options so = {chunks[chance(r, 0) % 5], slots[chance(r, 1) % 5]};
	struct op ops[OPS_MAX] = {{0}};
	uint32_t count = 1 + chance(r, 2) % OPS_MAX;
	struct gn_copy_engine *copier = NULL;
	struct gn_stager *stager = NULL;
	enum gn_status status;

	r->chunk_bytes = so.chunk_bytes;
	co.pause_max_us = (int)(chance(r, 3) % 3) * (so.chunk_bytes > 4096 ? 50 : 2);
	co.fail_at = is_due(r, "copy") ? 2 : 0;
	status = copier_host_create(&co, &copier, err);
	if (!status)
		status = gn_stager_create(r->comm, copier, &so, &stager, err);
	if (!status && gn_stager_pinned(stager) == co.unpinned)
		status = gn_err_set(err, GN_ERR_FAILED, "WRONG about pinned memory");
	for (uint32_t n = 0; n < count && !status; n++)
		status = make_op(r, stager, n, &ops[n], err);
	if (!status)
		status = run_ops(r, ops, count, err);
	for (uint32_t n = 0; n < count; n++)
		gn_staged_free(ops[n].staged);
	gn_stager_destroy(stager);
	gn_copy_engine_destroy(copier);
	for (uint32_t n = 0; n < count; n++) {
		free(ops[n].device);
		free(ops[n].expected);
	}
	return status;
}

/* Both through the same interface as a GPU's; the choice is checked for sums, too. */
static enum gn_status choose(struct run *r, int slow, struct gn_err *err)
{
	struct copier_host_options co[2] = {{.seed = 1}, {.seed = 2}};
	struct gn_coll_backend *carriers[2] = {NULL, NULL};
	enum { BYTES = 1 << 20 };
	float *device = calloc(BYTES, 1);
	struct gn_coll_backend_op *op = NULL;
	struct gn_log *log = NULL;
	enum gn_status status = device ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	int best = -1;

	co[slow].pause_us = gn_comm_rank(r->comm) ? 0 : 30000;
	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	for (int i = 0; i < 2 && !status; i++) {
		struct gn_copy_engine *copier;

		status = copier_host_create(&co[i], &copier, err);
		if (!status)
			status = gn_coll_backend_staged_create(r->comm, copier, NULL, &carriers[i], err);
	}
	if (!status)
		status = gn_coll_backend_choose(r->comm, carriers, 2, device, BYTES, log, &best, err);
	for (size_t i = 0; i < BYTES / sizeof *device; i++)
		device[i] = 1;
	if (!status)
		status = gn_coll_backend_prepare(carriers[best], device, BYTES / sizeof *device, GN_F32, GN_SUM, &op, err);
	if (!status)
		status = gn_coll_backend_start(op, NULL, err);
	if (!status)
		status = gn_coll_backend_wait(op, err);
	for (size_t i = 0; !status && i < BYTES / sizeof *device; i++)
		if (device[i] != (float)gn_comm_size(r->comm))
			status = gn_err_set(err, GN_ERR_FAILED, "WRONG sum at %zu", i);
	if (!status)
		printf("rank %d takes %d\n", gn_comm_rank(r->comm), best);
	gn_coll_backend_free(op);
	gn_coll_backend_destroy(carriers[0]);
	gn_coll_backend_destroy(carriers[1]);
	gn_log_destroy(log);
	free(device);
	return status;
}

static int run(struct run *r, char **argv, int argc)
{
	uint64_t rounds = strtoull(argv[3], NULL, 10);
	struct gn_err err;

	if (!strcmp(argv[2], "choose"))
		return choose(r, rounds != 0, &err) ? exit_code(&err) : 0;
	r->seed = strtoull(argv[2], NULL, 10);
	r->fault = argc > 6 && atoi(argv[5]) == gn_comm_rank(r->comm) ? argv[4] : "";
	r->fault_round = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
	for (r->round = 0; r->round < rounds; r->round++)
		if (one_round(r, &err)) {
			if (err.status != GN_ERR_PEER_LOST)
				gn_world_abort(r->world, err.text);
			return exit_code(&err);
		}
	printf("rank %d: %llu operations, %llu bytes: the same bits\n", gn_comm_rank(r->comm), (unsigned long long)r->ops,
	       (unsigned long long)r->bytes);
	return 0;
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argc > 3 ? argv[1] : NULL, .progress = getenv("PROBE_PROGRESS")};
	struct gn_log *log = NULL;
	struct run r = {0};
	struct gn_err err;
	int code;

	if (argc < 4)
		return 2;
	gn_log_create(2, GN_LOG_WARN, &log, NULL);
	if (gn_world_create(NULL, log, &r.world, &err)) {
		gn_log_destroy(log);
		return exit_code(&err);
	}
	code = gn_comm_create(r.world, &options, log, &r.comm, &err) ? exit_code(&err) : run(&r, argv, argc);
	gn_comm_destroy(r.comm);
	gn_world_destroy(r.world);
	gn_log_destroy(log);
	return code;
}
