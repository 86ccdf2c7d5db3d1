/* A rank for tests of failures: one collective after the other, all results checked, until OPERATIONS are done (0: without end),
 * a rank is sent SIGUSR1, or something breaks.
 * usage: fault_probe TRANSPORT SEED OPERATIONS [FAULT RANK AT]
 * Which collectives, of what size and on which memory follows from SEED, alike on all ranks. RANK does FAULT at operation number
 * AT, or at the first one after it that can have it:
 *   exit     ends without a word, in the middle of an operation      leave    ends in good order while others go on
 *   never    lives on, but calls nothing any more                    busy     announces to take long, and does (PROBE_BUSY_MS)
 *   opens    takes PROBE_BUSY_MS, and announces nothing, before its first collective on the new communicator (AT: ignored)
 *   size     one element less than the others        type     another type of the same size
 *   order    a barrier before the operation          mixed    an algorithm of its own
 *   outside  nothing: somebody else does, who has been told by the line "here"
 * PROBE_TIMEOUT_MS, PROBE_SILENT_MS, PROBE_STALL_MS: the world's limits. PROBE_PROGRESS: the communicator's; by a thread, the
 * rank looks on for a moment before it waits. Says how far it is, a line each: "begun", "in world", "in comm", "ready" after the
 * first operation, "more" after each further 8.
 * Exit codes as gannet's; 99: a wrong result. */
#include "src/base/log.h"
#include "src/base/philox.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/comm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WRONG 99
#define COUNT_MAX 400000

struct run {
	struct gn_comm *comm;
	struct gn_world *world;
	int rank, size;
	uint64_t seed, operations, at;
	const char *fault; /* "" when none is to come */
	int mixed;	   /* on all ranks: one is to take another algorithm */
	void *shared, *own;
	uint64_t op;
};

static volatile sig_atomic_t is_enough;

static void enough(int number)
{
	(void)number;
	is_enough = 1;
}

static void say(const char *line)
{
	puts(line);
	fflush(stdout);
}

static int limit(const char *name)
{
	return getenv(name) ? atoi(getenv(name)) : 0;
}

/* The same on all ranks: number `which` of operation `op`. */
static uint32_t chance(const struct run *r, uint32_t which)
{
	uint32_t counter[4] = {(uint32_t)r->op, (uint32_t)(r->op >> 32), which, 0};
	uint32_t key[2] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)}, out[4];

	gn_philox(counter, key, out);
	return out[0];
}

/* Small whole numbers: sums are exact in any order. */
static int given(int rank, size_t i, uint64_t op)
{
	return (int)((i * 7 + (size_t)rank * 13 + op * 5) % 101) - 50;
}

static void fill(struct run *r, void *buffer, size_t count, enum gn_dtype type)
{
	for (size_t i = 0; i < count; i++) {
		if (type == GN_F32)
			((float *)buffer)[i] = (float)given(r->rank, i, r->op);
		else
			((int32_t *)buffer)[i] = given(r->rank, i, r->op);
	}
}

static void check_sums(const struct run *r, const void *buffer, size_t count, enum gn_dtype type)
{
	for (size_t i = 0; i < count; i++) {
		int sum = 0;

		for (int q = 0; q < r->size; q++)
			sum += given(q, i, r->op);
		if (type == GN_F32 ? ((const float *)buffer)[i] != (float)sum : ((const int32_t *)buffer)[i] != sum) {
			fprintf(stderr, "WRONG element %zu of %zu in operation %llu\n", i, count, (unsigned long long)r->op);
			_exit(WRONG);
		}
	}
}

static size_t pick_count(const struct run *r)
{
	static const size_t most[] = {4, 600, 5000, 70000, COUNT_MAX};

	return 2 + chance(r, 1) % most[chance(r, 0) % 5];
}

static int is_due(const struct run *r, const char *fault)
{
	return !strcmp(r->fault, fault) && r->op >= r->at;
}

static void pause_ms(long ms)
{
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&pause, NULL);
}

static const char *progress(void)
{
	return getenv("PROBE_PROGRESS");
}

/* Leaves the operation to the thread, which may never be done with it. */
static void look_on(const struct run *r, const struct gn_coll *coll)
{
	if (!progress() || strcmp(progress(), "thread") || chance(r, 7) % 2)
		return;
	for (int ms = 0; ms < 50 && !gn_coll_done(coll); ms++)
		pause_ms(1);
}

static enum gn_status one_allreduce(struct run *r, void *buffer, size_t count, enum gn_dtype type, struct gn_err *err)
{
	static const char *const algorithms[] = {"auto", "auto", "ring", "recursive-doubling"};
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = buffer, .count = count, .type = type};
	struct gn_coll *coll = NULL;
	enum gn_status status;
	int differs = is_due(r, "size") || is_due(r, "type") || is_due(r, "mixed");

	args.algorithm = algorithms[chance(r, 4) % 4];
	if (differs && !strcmp(r->fault, "size"))
		args.count--;
	else if (differs && !strcmp(r->fault, "type"))
		args.type = type == GN_F32 ? GN_I32 : GN_F32;
	else if (differs)
		args.algorithm = "halving-doubling";
	else if (r->mixed && !strcmp(args.algorithm, "auto"))
		args.algorithm = "double-tree"; /* not what the one that differs takes */
	status = gn_coll_prepare(r->comm, &args, &coll, err);
	if (!status)
		status = gn_coll_start(coll, NULL, err);
	if (is_due(r, "exit"))
		_exit(0);
	if (!status)
		look_on(r, coll);
	if (!status)
		status = gn_coll_wait(coll, err);
	gn_coll_free(coll);
	/* nobody may call an operation complete in which one rank did something else */
	if (!status && differs) {
		fprintf(stderr, "WRONG: a mismatch was not noticed\n");
		_exit(WRONG);
	}
	if (!status)
		check_sums(r, buffer, count, type);
	return status;
}

static enum gn_status one_broadcast(struct run *r, void *buffer, size_t count, struct gn_err *err)
{
	int root = (int)(chance(r, 3) % (uint32_t)r->size);
	int32_t *data = buffer;
	enum gn_status status;

	for (size_t i = 0; i < count; i++)
		data[i] = r->rank == root ? given(root, i, r->op) : -1000;
	status = gn_comm_broadcast(r->comm, data, count * sizeof *data, root, err);
	for (size_t i = 0; !status && i < count; i++)
		if (data[i] != given(root, i, r->op)) {
			fprintf(stderr, "WRONG element %zu of %zu in broadcast %llu\n", i, count, (unsigned long long)r->op);
			_exit(WRONG);
		}
	return status;
}

/* What does not depend on the operation. */
static enum gn_status other_faults(struct run *r, struct gn_err *err)
{
	if (is_due(r, "order"))
		return gn_comm_barrier(r->comm, err);
	while (is_due(r, "never"))
		pause_ms(1000);
	if (is_due(r, "busy")) {
		gn_world_set_phase(r->world, "reading data", 600000);
		pause_ms(limit("PROBE_BUSY_MS"));
		gn_world_set_phase(r->world, NULL, 0);
		r->fault = "";
	}
	return GN_OK;
}

/* All end with the same operation: when anyone has been told that it is enough. */
static enum gn_status go_on(struct run *r, int *more, struct gn_err *err)
{
	int32_t over = is_enough;
	enum gn_status status = gn_comm_allreduce(r->comm, &over, 1, GN_I32, gn_reduce_max(GN_I32), err);

	*more = !over;
	if (!status)
		say("more");
	return status;
}

/* 1: left on purpose. */
static int all_operations(struct run *r, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int more = 1;

	for (r->op = 1; !status && more && (!r->operations || r->op <= r->operations); r->op++) {
		void *buffer = chance(r, 2) % 2 ? r->shared : r->own;
		enum gn_dtype type = chance(r, 5) % 2 ? GN_F32 : GN_I32;
		size_t count = pick_count(r);

		if (is_due(r, "leave"))
			return 1;
		if (is_due(r, "outside")) {
			say("here");
			r->fault = "";
		}
		status = other_faults(r, err);
		if (status)
			break;
		if (chance(r, 6) % 4) {
			fill(r, buffer, count, type);
			status = one_allreduce(r, buffer, count, type, err);
		} else {
			status = one_broadcast(r, buffer, count, err);
		}
		if (!status && r->op % 8 == 0)
			status = go_on(r, &more, err);
		if (r->op == 1 && !status)
			say("ready");
	}
	return status ? -1 : 0;
}

static int run(struct run *r, char **argv, int argc)
{
	struct gn_err err;
	int code;

	if (argc > 6 && !strcmp(argv[4], "opens") && atoi(argv[5]) == gn_comm_rank(r->comm))
		pause_ms(limit("PROBE_BUSY_MS"));
	if (gn_comm_alloc(r->comm, COUNT_MAX * sizeof(float), &r->shared, &err))
		return exit_code(&err);
	r->own = malloc(COUNT_MAX * sizeof(float));
	if (!r->own)
		return 1;
	/* from here on ranks are in collectives all the time */
	gn_world_set_phase(r->world, NULL, 0);
	r->rank = gn_comm_rank(r->comm);
	r->size = gn_comm_size(r->comm);
	r->seed = strtoull(argv[2], NULL, 10);
	r->operations = strtoull(argv[3], NULL, 10);
	r->mixed = argc > 6 && !strcmp(argv[4], "mixed");
	r->fault = argc > 6 && atoi(argv[5]) == r->rank ? argv[4] : "";
	r->at = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
	code = all_operations(r, &err);
	code = code < 0 ? exit_code(&err) : 0;
	gn_comm_free(r->comm, r->shared);
	free(r->own);
	return code;
}

int main(int argc, char **argv)
{
	struct gn_world_options limits = {.limits = {limit("PROBE_TIMEOUT_MS") / 1e3, limit("PROBE_SILENT_MS") / 1e3,
						     limit("PROBE_STALL_MS") / 1e3}};
	struct gn_comm_options options = {.transport = argc > 3 ? argv[1] : NULL, .progress = progress()};
	struct gn_log *log = NULL;
	struct run r = {0};
	struct gn_err err;
	int code;

	if (argc < 4)
		return 2;
	signal(SIGUSR1, enough);
	say("begun");
	gn_log_create(2, GN_LOG_WARN, &log, NULL);
	if (gn_world_create(&limits, log, &r.world, &err)) {
		gn_log_destroy(log);
		return exit_code(&err);
	}
	say("in world");
	if (gn_comm_create(r.world, &options, log, &r.comm, &err)) {
		code = exit_code(&err);
	} else {
		say("in comm");
		code = run(&r, argv, argc);
	}
	gn_comm_destroy(r.comm);
	gn_world_destroy(r.world);
	gn_log_destroy(log);
	return code;
}
