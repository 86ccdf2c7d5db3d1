/* A rank for tests of collectives in memory that is not the host's (transport/coll/reduce_executor.h), on some that works late: random sizes, types,
 * reductions and algorithms, several operations in flight, each result compared bit by bit with the host's by the same
 * algorithm; and a carrier's, whose starts wait for what comes before.
 * usage: direct_probe TRANSPORT SEED ROUNDS [FAULT RANK AFTER]
 * RANK does FAULT in round AFTER: exit  ends without a word while operations are in flight    work  something that was queued fails
 * PROBE_PROGRESS as --progress. Exit codes as gannet's; 99: a wrong result. Prints what was compared. */
#include "src/base/philox.h"
#include "tests/transport/exit_code.h"
#include "tests/transport/memory_host.h"
#include "transport/schedule/algo.h"
#include "transport/coll/coll_backend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define OPS_MAX 5

struct run {
	struct gn_comm *comm;
	uint64_t seed, round, ops, bytes, works;
	const char *fault;
	uint64_t fault_round;
	int by_carrier; /* of the operations, those before */
};

struct op {
	struct gn_coll_args args;
	struct gn_coll *coll;
	struct gn_coll_backend_op *carried;
	struct memory_host_event event;
	char *there, *expected;
};

/* The same on all ranks: number `which` of this round. */
static uint32_t chance(const struct run *r, uint32_t which)
{
	uint32_t counter[4] = {(uint32_t)r->round, 1, which, 0}, key[2] = {(uint32_t)r->seed, 7}, out[4];

	gn_philox(counter, key, out);
	return out[0];
}

static size_t bytes_of(const struct op *op)
{
	return op->args.count * gn_dtype_bytes(op->args.type);
}

static void fill(const struct run *r, struct op *op, uint32_t salt)
{
	for (size_t i = 0; i < op->args.count; i++) {
		uint32_t x = ((uint32_t)i * 2654435761u + (uint32_t)gn_comm_rank(r->comm) * 40503u + salt * 977u) * 2246822519u;

		if (op->args.type == GN_F32)
			((float *)(void *)op->there)[i] = (float)(int32_t)x / (float)(1u << (x & 15));
		else if (op->args.type == GN_F64)
			((double *)(void *)op->there)[i] = (double)(int32_t)x / 3;
		else
			((int32_t *)(void *)op->there)[i] = (int32_t)(x >> 8);
	}
	memcpy(op->expected, op->there, bytes_of(op));
}

static const char *some_algorithm(const struct run *r, uint32_t which)
{
	size_t count, allreduces = 0;
	const struct gn_algorithm *all = gn_algorithms(&count);

	while (allreduces < count && all[allreduces].what == GN_COLLECTIVE_ALLREDUCE)
		allreduces++;
	return all[chance(r, which) % allreduces].name;
}

static enum gn_status make_op(struct run *r, struct gn_reduce_executor *m, struct gn_coll_backend *carrier, uint32_t n, struct op *op,
			      struct gn_err *err)
{
	static const enum gn_dtype types[] = {GN_F32, GN_F64, GN_I32};
	static const size_t most[] = {1, 3, 1000, 30000, 200000};
	int carried = (int)n < r->by_carrier;

	op->args = (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .type = carried ? GN_I32 : types[chance(r, 10 * n) % 3],
					 .reduction = carried ? GN_SUM : (enum gn_reduction)(chance(r, 10 * n + 1) % GN_AVERAGE),
					 .count = chance(r, 10 * n + 2) % most[chance(r, 10 * n + 3) % 5],
					 .algorithm = carried ? NULL : some_algorithm(r, 10 * n + 4)};
	op->there = malloc(bytes_of(op) + 1);
	op->expected = malloc(bytes_of(op) + 1);
	if (!op->there || !op->expected)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	op->args.out = op->there;
	op->args.memory = m;
	return carried ? gn_coll_backend_prepare(carrier, op->there, op->args.count, GN_I32, GN_SUM, &op->carried, err)
		       : gn_coll_prepare(r->comm, &op->args, &op->coll, err);
}

/* In the host's memory, by the same algorithm; sums of integers by any. */
static enum gn_status expect(const struct run *r, const struct op *op, struct gn_err *err)
{
	struct gn_coll_args args = op->args;

	args.out = op->expected;
	args.memory = NULL;
	return gn_comm_run(r->comm, &args, err);
}

static void compare(struct run *r, const struct op *op, uint32_t n)
{
	if (memcmp(op->there, op->expected, bytes_of(op))) {
		fprintf(stderr, "WRONG: seed %llu, round %llu, operation %u of %zu elements by %s\n", (unsigned long long)r->seed,
			(unsigned long long)r->round, n, op->args.count, op->args.algorithm ? op->args.algorithm : "a carrier");
		_exit(WRONG);
	}
	r->ops++;
	r->bytes += bytes_of(op);
}

static enum gn_status finish(struct op *op, struct gn_err *err)
{
	return op->carried ? gn_coll_backend_wait(op->carried, err) : gn_coll_wait(op->coll, err);
}

static enum gn_status run_ops(struct run *r, struct op *ops, uint32_t count, struct gn_err *err)
{
	int dies = !strcmp(r->fault, "exit") && r->round == r->fault_round;
	enum gn_status status = GN_OK;

	for (uint32_t n = 0; n < count; n++)
		fill(r, &ops[n], n);
	/* a carrier keeps its own order, the others come behind */
	for (uint32_t n = 0; n < count && !status && ops[n].carried; n++) {
		ops[n].event.looks = (int)(chance(r, 10 * n + 5) % 50) * (gn_comm_rank(r->comm) + 1);
		status = gn_coll_backend_start(ops[n].carried, &ops[n].event, err);
	}
	if (dies)
		_exit(0);
	for (uint32_t n = 0; n < count && !status && ops[n].carried; n++)
		status = finish(&ops[n], err);
	for (uint32_t n = 0; n < count && !status; n++)
		if (ops[n].coll)
			status = gn_coll_start(ops[n].coll, err);
	for (uint32_t n = count; n-- > 0 && !status;)
		if (ops[n].coll)
			status = finish(&ops[n], err);
	for (uint32_t n = 0; n < count && !status; n++) {
		status = expect(r, &ops[n], err);
		if (!status)
			compare(r, &ops[n], n);
	}
	return status;
}

static enum gn_status one_round(struct run *r, struct gn_err *err)
{
	struct memory_host_options mo = {.seed = r->seed + (uint64_t)gn_comm_rank(r->comm)};
	struct op ops[OPS_MAX] = {{.there = NULL}};
	uint32_t count = 2 + chance(r, 1000) % (OPS_MAX - 1);
	struct gn_coll_backend *carrier = NULL;
	struct gn_reduce_executor *m = NULL;
	enum gn_status status;

	r->by_carrier = (int)(chance(r, 1001) % 3);
	mo.fail_at = !strcmp(r->fault, "work") && r->round == r->fault_round;
	status = memory_host_create(&mo, &m, err);
	if (!status)
		status = gn_coll_backend_direct_create(r->comm, m, &carrier, err);
	for (uint32_t n = 0; n < count && !status; n++)
		status = make_op(r, m, carrier, n, &ops[n], err);
	if (!status)
		status = run_ops(r, ops, count, err);
	r->works += status ? 0 : memory_host_works(m);
	for (uint32_t n = 0; n < count; n++) {
		gn_coll_backend_free(ops[n].carried);
		gn_coll_free(ops[n].coll);
		free(ops[n].there);
		free(ops[n].expected);
	}
	gn_coll_backend_destroy(carrier);
	return status;
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argv[1], .progress = getenv("PROBE_PROGRESS")};
	struct gn_world *world = NULL;
	struct run r = {.fault = ""};
	struct gn_err err;
	enum gn_status status;

	if (argc != 4 && argc != 7)
		return 2;
	status = gn_world_create(NULL, NULL, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, NULL, &r.comm, &err);
	r.seed = strtoull(argv[2], NULL, 10);
	if (!status && argc == 7 && atoi(argv[5]) == gn_comm_rank(r.comm)) {
		r.fault = argv[4];
		r.fault_round = strtoull(argv[6], NULL, 10);
	}
	for (; !status && r.round < strtoull(argv[3], NULL, 10); r.round++)
		status = one_round(&r, &err);
	if (!status)
		printf("rank %d: %llu operations of %llu bytes, %llu works there: the same bits\n", gn_comm_rank(r.comm),
		       (unsigned long long)r.ops, (unsigned long long)r.bytes, (unsigned long long)r.works);
	gn_comm_destroy(r.comm);
	gn_world_destroy(world);
	return status ? exit_code(&err) : 0;
}
