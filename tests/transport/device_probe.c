/* A rank for tests of collectives in device memory, on a device that works late (tests/transport/late_device.h): random sizes, types,
 * reductions and algorithms, operations in host memory among them, several in flight, some started after an event; each result is
 * compared bit by bit with the host's by the same algorithm.
 * usage: device_probe TRANSPORT SEED ROUNDS [FAULT RANK AFTER]
 *        device_probe TRANSPORT choose WHICH    which of two ways is faster, of which WHICH (0: library, 1: ucx) is slow on rank 0 alone
 * RANK does FAULT in round AFTER: exit  ends without a word while operations are in flight    work  something that was queued fails
 * free  frees an operation in flight
 * PROBE_HOW: "staged" or "direct"; PROBE_PROGRESS as --progress. Exit codes as gannet's; 99: a wrong result. Prints what was compared. */
#include "src/base/half.h"
#include "src/base/log.h"
#include "src/base/philox.h"
#include "tests/transport/exit_code.h"
#include "tests/transport/late_device.h"
#include "transport/schedule/algo.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WRONG 99
#define OPS_MAX 6

struct run {
	struct gn_comm *comm;
	struct gn_log *log;
	struct gn_device *device;
	struct gn_stream *stream;
	struct gn_event *event; /* recorded again for each operation */
	uint64_t seed, round, ops, bytes, works;
	const char *how, *fault;
	uint64_t fault_round;
	size_t chunk_bytes;
};

struct op {
	struct gn_coll_args args;
	struct gn_coll *coll;
	char *given, *there, *expected;
};

/* The same on all ranks: number `which` of this round. */
static uint32_t chance(const struct run *r, uint32_t which)
{
	uint32_t counter[4] = {(uint32_t)r->round, 0, which, 0}, key[2] = {(uint32_t)r->seed, 7}, out[4];

	gn_philox(counter, key, out);
	return out[0];
}

static int is_due(const struct run *r, const char *fault)
{
	return !strcmp(r->fault, fault) && r->round == r->fault_round;
}

static int is_staged(const struct run *r)
{
	return !strcmp(r->how, "staged");
}

static size_t bytes_of(const struct op *op)
{
	return op->args.count * gn_dtype_bytes(op->args.type);
}

/* Sums of these round, so that another order of ranks shows. */
static void fill(const struct run *r, const struct op *op, uint32_t salt)
{
	for (size_t i = 0; i < op->args.count; i++) {
		uint32_t x = (uint32_t)(i * 2654435761u) + (uint32_t)gn_comm_rank(r->comm) * 40503u + salt * 977u +
			     (uint32_t)r->round;
		float value;

		x = (x ^ x >> 15) * 2246822519u;
		value = ldexpf((float)(int32_t)x, -24 - (int)(x & 7));
		if (op->args.type == GN_F32)
			((float *)(void *)op->given)[i] = value;
		else if (op->args.type == GN_F64)
			((double *)(void *)op->given)[i] = value / 3.0;
		else if (op->args.type == GN_I64)
			((int64_t *)(void *)op->given)[i] = (int32_t)x;
		else
			((uint16_t *)(void *)op->given)[i] = gn_bf16_of_f32(value);
	}
	memcpy(op->expected, op->given, bytes_of(op));
}

static const char *some_algorithm(const struct run *r, uint32_t which)
{
	/* chunks lie elsewhere than the whole: those that add up an element's ranks in one order */
	static const char *const stable[] = {"ring", "recursive-doubling", "halving-doubling"};
	size_t count, allreduces = 0;
	const struct gn_algorithm *all = gn_algorithms(&count);

	while (allreduces < count && all[allreduces].what == GN_COLLECTIVE_ALLREDUCE)
		allreduces++;
	return is_staged(r) ? stable[chance(r, which) % 3] : all[chance(r, which) % allreduces].name;
}

static enum gn_status make_op(struct run *r, uint32_t n, struct op *op, struct gn_err *err)
{
	static const enum gn_dtype types[] = {GN_F32, GN_F64, GN_I64, GN_BF16};
	static const enum gn_reduction reductions[] = {GN_SUM, GN_MAX, GN_AVERAGE};
	static const size_t most[] = {1, 3, 1000, 30000, 200000};

	op->args = (struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .type = types[chance(r, 10 * n + 100) % 4],
					 .reduction = reductions[chance(r, 10 * n + 101) % (is_staged(r) ? 3 : 2)],
					 .algorithm = some_algorithm(r, 10 * n + 102),
					 .count = chance(r, 10 * n + 103) % most[chance(r, 10 * n + 104) % 5],
					 .memory = chance(r, 10 * n + 106) % 4 ? GN_MEMORY_DEVICE : GN_MEMORY_HOST};
	if (r->chunk_bytes < 4096)
		op->args.count %= 1000;
	op->given = malloc(bytes_of(op) + 1);
	op->there = malloc(bytes_of(op) + 1);
	op->expected = malloc(bytes_of(op) + 1);
	if (!op->given || !op->there || !op->expected)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	op->args.out = op->there;
	return gn_coll_prepare(r->comm, &op->args, &op->coll, err);
}

/* In the host's memory, by the same algorithm: whole, or in the chunks of staging. */
static enum gn_status expect(const struct run *r, const struct op *op, struct gn_err *err)
{
	struct gn_coll_args args = op->args;
	size_t each = gn_dtype_bytes(args.type), step = (r->chunk_bytes + 63) / 64 * 64 / each;
	int whole = !is_staged(r) || args.memory == GN_MEMORY_HOST;
	enum gn_status status = GN_OK;

	args.memory = GN_MEMORY_HOST;
	for (size_t at = 0; at < op->args.count && !status; at += args.count) {
		args.out = op->expected + at * each;
		args.count = whole || op->args.count - at < step ? op->args.count - at : step;
		status = gn_comm_run(r->comm, &args, err);
	}
	return status;
}

static void fail(const struct run *r, const char *what, uint32_t n)
{
	fprintf(stderr, "WRONG: seed %llu, round %llu, operation %u: %s\n", (unsigned long long)r->seed, (unsigned long long)r->round, n,
		what);
	_exit(WRONG);
}

/* Device memory gets its values late. */
static enum gn_status start(struct run *r, struct op *op, struct gn_err *err)
{
	enum gn_status status;

	if (op->args.memory == GN_MEMORY_HOST) {
		memcpy(op->there, op->given, bytes_of(op));
		return gn_coll_start(op->coll, NULL, err);
	}
	memset(op->there, 0xee, bytes_of(op));
	status = gn_stream_copy(r->stream, op->there, op->given, bytes_of(op), err);
	if (!status)
		status = gn_event_record(r->event, r->stream, err);
	return status ? status : gn_coll_start(op->coll, r->event, err);
}

static enum gn_status finish(const struct run *r, struct op *op, uint32_t n, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int done = 0;

	/* both ways of waiting */
	while (chance(r, 10 * n + 105) % 2 && !done && !status) {
		status = gn_coll_test(op->coll, &done, err);
		sched_yield();
	}
	return status ? status : gn_coll_wait(op->coll, err);
}

static enum gn_status run_ops(struct run *r, struct op *ops, uint32_t count, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (uint32_t n = 0; n < count && !status; n++)
		status = start(r, &ops[n], err);
	if (!status && gn_coll_start(ops[0].coll, NULL, NULL) != GN_ERR_USAGE)
		fail(r, "started twice", 0);
	if (is_due(r, "exit"))
		_exit(0);
	if (is_due(r, "free")) {
		gn_coll_free(ops[count - 1].coll);
		ops[count - 1].coll = NULL;
		return gn_err_set(err, GN_ERR_FAILED, "freed on purpose");
	}
	for (uint32_t n = count; n-- > 0 && !status;)
		status = finish(r, &ops[n], n, err);
	for (uint32_t n = 0; n < count && !status; n++) {
		status = expect(r, &ops[n], err);
		if (!status && memcmp(ops[n].there, ops[n].expected, bytes_of(&ops[n])))
			fail(r, "other bits", n);
		r->ops++;
		r->bytes += bytes_of(&ops[n]);
	}
	return status;
}

/* All operations at once, twice. */
static enum gn_status run_twice(struct run *r, struct op *ops, struct gn_err *err)
{
	uint32_t count = 1 + chance(r, 2) % OPS_MAX;
	enum gn_status status = GN_OK;

	for (uint32_t n = 0; n < count && !status; n++)
		status = make_op(r, n, &ops[n], err);
	for (uint32_t again = 0; again < 2 && !status; again++) {
		for (uint32_t n = 0; n < count; n++)
			fill(r, &ops[n], 2 * n + again);
		status = run_ops(r, ops, count, err);
	}
	return status;
}

static enum gn_status open_device(struct run *r, const struct late_device_options *options, struct gn_err *err)
{
	enum gn_status status = late_device_create(options, &r->device, err);

	if (!status)
		status = gn_stream_create(r->device, &r->stream, err);
	return status ? status : gn_event_create(r->device, &r->event, err);
}

static void close_device(struct run *r)
{
	gn_comm_detach(r->comm);
	gn_stream_destroy(r->stream);
	gn_event_destroy(r->event);
	gn_device_close(r->device);
	r->stream = NULL;
	r->event = NULL;
	r->device = NULL;
}

static enum gn_status one_round(struct run *r, struct gn_err *err)
{
	static const size_t chunks[] = {64, 1000, 4096, 65536, 1 << 20};
	static const int slots[] = {1, 2, 3, 4, 8};
	struct late_device_options lo = {.seed = r->seed + (uint64_t)gn_comm_rank(r->comm), .unpinned = (int)(r->round & 1)};
	struct gn_comm_device how = {.how = r->how, .reduce = late_device_reduce, .chunk_bytes = chunks[chance(r, 0) % 5],
				     .slots = slots[chance(r, 1) % 5]};
	struct op ops[OPS_MAX] = {{.given = NULL}};
	enum gn_status status;

	r->chunk_bytes = is_staged(r) ? how.chunk_bytes : 1 << 20;
	lo.pause_max_us = (int)(chance(r, 3) % 3) * (r->chunk_bytes > 4096 ? 50 : 2);
	lo.fail_at = is_due(r, "work") ? 2 : 0;
	status = open_device(r, &lo, err);
	how.device = r->device;
	if (!status)
		status = gn_comm_attach(r->comm, &how, r->log, err);
	if (!status)
		status = run_twice(r, ops, err);
	r->works += status ? 0 : late_device_works(r->device);
	/* after a failure copies may be queued still */
	if (r->stream)
		(void)gn_stream_wait(r->stream, NULL);
	for (uint32_t n = 0; n < OPS_MAX; n++) {
		gn_coll_free(ops[n].coll);
		free(ops[n].given);
		free(ops[n].there);
		free(ops[n].expected);
	}
	close_device(r);
	return status;
}

/* --- a library that sums in host memory, for the choice --- */

/* What is slow takes none of the machine's time: it moves this process's clock on, instead of the library's clock_gettime(). */
static atomic_int skipped_s;

int clock_gettime(clockid_t id, struct timespec *t)
{
	int code = (int)syscall(SYS_clock_gettime, id, t);

	if (!code && id == CLOCK_MONOTONIC)
		t->tv_sec += skipped_s;
	return code;
}

static void skip_time(void)
{
	skipped_s += 10;
}

struct library {
	struct gn_coll_backend base;
	struct gn_comm *comm;
	int is_slow;
};

struct library_op {
	struct gn_coll_backend_op base;
	struct gn_coll_args args;
	struct gn_coll *coll;
	int started, inside;
};

static enum gn_status library_prepare(struct gn_coll_backend *b, const struct gn_coll_args *args, struct gn_coll_backend_op **out,
				      struct gn_err *err)
{
	struct library_op *op = calloc(1, sizeof *op);
	enum gn_status status;

	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	op->base.backend = b;
	op->args = *args;
	op->args.memory = GN_MEMORY_HOST;
	status = gn_coll_prepare(((struct library *)b)->comm, &op->args, &op->coll, err);
	*out = &op->base;
	return status;
}

static enum gn_status library_start(struct gn_coll_backend_op *base, const struct gn_event *before, struct gn_err *err)
{
	struct library_op *op = (struct library_op *)base;

	(void)before;
	(void)err;
	if (((struct library *)base->backend)->is_slow)
		skip_time();
	op->started = 0;
	return GN_OK;
}

/* gn_coll_test() calls this again. */
static enum gn_status library_test(struct gn_coll_backend_op *base, int *done, struct gn_err *err)
{
	struct library_op *op = (struct library_op *)base;
	enum gn_status status = GN_OK;

	if (op->inside)
		return GN_OK;
	op->inside = 1;
	if (!op->started)
		status = gn_coll_start(op->coll, NULL, err);
	op->started = 1;
	if (!status)
		status = gn_coll_test(op->coll, done, err);
	op->inside = 0;
	return status;
}

static void library_free(struct gn_coll_backend_op *base)
{
	gn_coll_free(((struct library_op *)base)->coll);
	free(base);
}

static void library_describe(const struct gn_coll_backend *b, struct gn_strbuf *out)
{
	(void)b;
	gn_strbuf_puts(out, "library 1");
}

static void library_destroy(struct gn_coll_backend *b)
{
	free(b);
}

static enum gn_status library_create(struct gn_comm *comm, struct gn_device *device, struct gn_coll_backend **out, struct gn_err *err)
{
	static const struct gn_coll_backend_ops ops = {"library",    library_prepare,  library_start,  library_test,
						       library_free, library_describe, library_destroy};
	struct library *l = calloc(1, sizeof *l);

	(void)device;
	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	l->base.ops = &ops;
	l->comm = comm;
	l->is_slow = getenv("LIBRARY_IS_SLOW") && !gn_comm_rank(comm);
	*out = &l->base;
	return GN_OK;
}

/* The choice is checked for sums, too. */
static enum gn_status choose(struct run *r, int slow, struct gn_err *err)
{
	enum { COUNT = 1 << 18 };
	struct late_device_options lo = {.seed = 1, .slow = slow && !gn_comm_rank(r->comm) ? skip_time : NULL};
	struct gn_comm_device how = {.how = "auto", .library = library_create};
	float *data = calloc(COUNT, sizeof *data);
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = data, .count = COUNT, .type = GN_F32, .memory = GN_MEMORY_DEVICE};
	enum gn_status status = data ? open_device(r, &lo, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");

	if (!slow)
		setenv("LIBRARY_IS_SLOW", "1", 1);
	how.device = r->device;
	if (!status)
		status = gn_comm_attach(r->comm, &how, r->log, err);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = 1;
	if (!status)
		status = gn_comm_run(r->comm, &args, err);
	for (size_t i = 0; !status && i < COUNT; i++)
		if (data[i] != (float)gn_comm_size(r->comm))
			fail(r, "a sum", 0);
	if (!status)
		printf("rank %d takes %s\n", gn_comm_rank(r->comm), gn_comm_device_backend(r->comm));
	close_device(r);
	free(data);
	return status;
}

static enum gn_status run(struct run *r, char **argv, int argc, struct gn_err *err)
{
	uint64_t rounds = strtoull(argv[3], NULL, 10);
	enum gn_status status = GN_OK;

	if (!strcmp(argv[2], "choose"))
		return choose(r, rounds != 0, err);
	r->seed = strtoull(argv[2], NULL, 10);
	r->fault = argc > 6 && atoi(argv[5]) == gn_comm_rank(r->comm) ? argv[4] : "";
	r->fault_round = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
	for (r->round = 0; r->round < rounds && !status; r->round++)
		status = one_round(r, err);
	if (!status)
		printf("rank %d: %llu operations of %llu bytes, %llu works there: the same bits\n", gn_comm_rank(r->comm),
		       (unsigned long long)r->ops, (unsigned long long)r->bytes, (unsigned long long)r->works);
	return status;
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argc > 3 ? argv[1] : NULL, .progress = getenv("PROBE_PROGRESS")};
	/* for the clock that is moved on */
	struct gn_world_options patient = {.limits = {.heartbeat_s = GN_LIMITS_MAX_S, .stall_s = GN_LIMITS_MAX_S}};
	struct run r = {.how = getenv("PROBE_HOW") ? getenv("PROBE_HOW") : "staged"};
	struct gn_world *world = NULL;
	struct gn_err err;
	enum gn_status status;

	if (argc < 4)
		return 2;
	gn_log_create(2, strcmp(argv[2], "choose") ? GN_LOG_WARN : GN_LOG_INFO, &r.log, NULL);
	status = gn_world_create(strcmp(argv[2], "choose") ? NULL : &patient, r.log, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, r.log, &r.comm, &err);
	if (!status)
		status = run(&r, argv, argc, &err);
	if (status && world && err.status != GN_ERR_PEER_LOST)
		gn_world_abort(world, err.status, err.text);
	gn_comm_destroy(r.comm);
	gn_world_destroy(world);
	gn_log_destroy(r.log);
	return status ? exit_code(&err) : 0;
}
