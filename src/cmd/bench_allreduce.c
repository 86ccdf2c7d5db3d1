#include "src/cmd/bench.h"

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/json.h"
#include "transport/comm.h"
#include "transport/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct timing {
	double mean_us, p50_us, p99_us;
	int64_t wrong;
};

struct bench {
	const struct gn_bench_options *o;
	struct gn_comm *comm;
	float *in, *out;
	double *times; /* per iteration, microseconds */
	char carried_by[64];
};

/* Small whole numbers, so that a float sum is exact in any order. */
static float given(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13) % 61) - 30.0f;
}

static int64_t count_wrong(const struct bench *b, size_t count)
{
	int size = gn_comm_size(b->comm);
	int64_t wrong = 0;

	/* the pattern repeats after 61 elements */
	float sums[61] = {0};

	for (size_t i = 0; i < 61; i++)
		for (int r = 0; r < size; r++)
			sums[i] += given(r, i);
	for (size_t i = 0; i < count; i++)
		wrong += b->out[i] != sums[i % 61];
	return wrong;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The slowest rank's time of each iteration counts. */
static enum gn_status summarise(const struct bench *b, struct timing *t, struct gn_err *err)
{
	size_t n = (size_t)b->o->iters;
	enum gn_status status = gn_comm_allreduce(b->comm, b->times, n, GN_F64, gn_reduce_max(GN_F64), err);
	double sum = 0;

	if (status)
		return status;
	for (size_t i = 0; i < n; i++)
		sum += b->times[i];
	qsort(b->times, n, sizeof *b->times, by_value);
	t->mean_us = sum / (double)n;
	t->p50_us = b->times[n / 2];
	t->p99_us = b->times[(size_t)(0.99 * (double)(n - 1) + 0.5)];
	return GN_OK;
}

static enum gn_status once(struct gn_coll *coll, struct gn_err *err)
{
	enum gn_status status = gn_coll_start(coll, err);

	return status ? status : gn_coll_wait(coll, err);
}

static void fill(const struct bench *b, float *data, size_t count)
{
	int rank = gn_comm_rank(b->comm);

	for (size_t i = 0; i < count; i++)
		data[i] = given(rank, i);
}

static enum gn_status run_timed(const struct bench *b, struct gn_coll *coll, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	uint64_t before, now;

	for (int64_t i = 0; i < b->o->warmup && !status; i++)
		status = once(coll, err);
	if (!status)
		status = gn_comm_barrier(b->comm, err);
	before = gn_clock_ns();
	for (int64_t i = 0; i < b->o->iters && !status; i++) {
		status = once(coll, err);
		now = gn_clock_ns();
		b->times[i] = (double)(now - before) / 1e3;
		before = now;
	}
	return status;
}

static enum gn_status measure(const struct bench *b, size_t count, enum gn_algo algo, int in_place, struct timing *t,
			      struct gn_err *err)
{
	struct gn_coll *coll = NULL;
	enum gn_status status;

	fill(b, b->in, count);
	/* in place the timed sums grow without bound, so only one more operation can be checked */
	fill(b, b->out, count);
	status = gn_coll_allreduce_from(b->comm, in_place ? NULL : b->in, b->out, count, GN_F32, NULL, algo, &coll, err);
	if (!status)
		status = run_timed(b, coll, err);
	if (!status && in_place) {
		fill(b, b->out, count);
		status = once(coll, err);
	}
	if (!status) {
		t->wrong = count_wrong(b, count);
		status = gn_comm_allreduce(b->comm, &t->wrong, 1, GN_I64, NULL, err);
	}
	if (!status)
		status = summarise(b, t, err);
	gn_coll_free(coll);
	return status;
}

static double algbw(size_t bytes, const struct timing *t)
{
	return t->mean_us > 0 ? (double)bytes / t->mean_us / 1e3 : 0;
}

static double busbw(const struct bench *b, size_t bytes, const struct timing *t)
{
	int n = gn_comm_size(b->comm);

	return algbw(bytes, t) * 2 * (n - 1) / n;
}

static void json_timing(const struct bench *b, struct gn_json *j, const char *key, size_t bytes,
			const struct timing *t)
{
	gn_json_object(j, key);
	gn_json_fixed(j, "time_us", t->mean_us, 3);
	gn_json_fixed(j, "p50_us", t->p50_us, 3);
	gn_json_fixed(j, "p99_us", t->p99_us, 3);
	gn_json_double(j, "algbw_gb_per_s", algbw(bytes, t));
	gn_json_double(j, "busbw_gb_per_s", busbw(b, bytes, t));
	gn_json_int(j, "wrong", t->wrong);
	gn_json_end(j);
}

static void print_json(const struct bench *b, size_t bytes, enum gn_algo algo, const struct timing *in,
		       const struct timing *out)
{
	struct gn_world *w = gn_comm_world(b->comm);
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "op", "allreduce");
	gn_json_uint(&j, "bytes", bytes);
	gn_json_uint(&j, "count", bytes / sizeof(float));
	gn_json_string(&j, "type", "float");
	gn_json_string(&j, "redop", "sum");
	gn_json_string(&j, "algo", gn_algo_name(algo));
	gn_json_string(&j, "transport", b->carried_by);
	gn_json_int(&j, "ranks", gn_world_size(w));
	gn_json_int(&j, "nodes", gn_world_nodes(w));
	gn_json_int(&j, "iters", b->o->iters);
	json_timing(b, &j, "in_place", bytes, in);
	json_timing(b, &j, "out_of_place", bytes, out);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	fflush(stdout);
	gn_json_release(&j);
}

static void print_heading(const struct bench *b)
{
	const struct gn_world *w = gn_comm_world(b->comm);

	printf("# allreduce: %d ranks on %d nodes, algorithm %s, transport %s, %lld iterations after %lld\n",
	       gn_world_size(w), gn_world_nodes(w), b->o->algo, b->carried_by, (long long)b->o->iters,
	       (long long)b->o->warmup);
	printf("#%50s| out of place %38s| in place\n", "", "");
	printf("#%11s %11s %6s %6s %-11s | %9s %9s %9s %7s %7s %6s | %9s %9s %9s %7s %7s %6s\n", "size", "count", "type",
	       "redop", "algo", "time", "p50", "p99", "algbw", "busbw", "#wrong", "time", "p50", "p99", "algbw", "busbw",
	       "#wrong");
	printf("#%11s %11s %6s %6s %-11s | %9s %9s %9s %7s %7s %6s | %9s %9s %9s %7s %7s %6s\n", "(B)", "(elements)", "",
	       "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
}

static void print_timing(const struct bench *b, size_t bytes, const struct timing *t)
{
	printf(" | %9.2f %9.2f %9.2f %7.3f %7.3f %6lld", t->mean_us, t->p50_us, t->p99_us, algbw(bytes, t),
	       busbw(b, bytes, t), (long long)t->wrong);
}

static void print_row(const struct bench *b, size_t bytes, enum gn_algo algo, const struct timing *in,
		      const struct timing *out)
{
	printf(" %11zu %11zu %6s %6s %-11.11s", bytes, bytes / sizeof(float), "float", "sum", gn_algo_name(algo));
	print_timing(b, bytes, out);
	print_timing(b, bytes, in);
	putchar('\n');
	fflush(stdout);
}

/* One row: both ways, with the counters' proof around them. */
static enum gn_status bench_size(struct bench *b, size_t bytes, enum gn_algo algo, int64_t *wrong, struct gn_err *err)
{
	struct timing in = {0}, out = {0};
	struct gn_proof proof;
	enum gn_status status = gn_proof_begin(b->comm, &proof, err);

	if (status)
		return status;
	if (algo == GN_ALGO_AUTO)
		algo = gn_comm_choose(b->comm, b->out, bytes);
	status = measure(b, bytes / sizeof(float), algo, 0, &out, err);
	if (!status)
		status = measure(b, bytes / sizeof(float), algo, 1, &in, err);
	if (status)
		gn_devices_release(&proof.before);
	else
		status = gn_proof_end(b->comm, &proof, b->o->transport, err);
	if (status)
		return status;
	*wrong += in.wrong + out.wrong;
	if (gn_comm_rank(b->comm) == 0)
		(b->o->json ? print_json : print_row)(b, bytes, algo, &in, &out);
	return GN_OK;
}

/* What the connections of rank 0 use, in our words: "shm+tcp". */
static void name_transports(struct bench *b)
{
	static const struct {
		const char *lane, *name;
	} names[] = {{"posix/", "shm"}, {"sysv/", "shm"}, {"cma/", "shm"}, {"tcp/", "tcp"}, {"rc_", "rc"}, {"ud_", "ud"}};
	struct gn_strbuf lanes;
	size_t len = 0;

	gn_strbuf_init(&lanes);
	for (int r = 0; r < gn_comm_size(b->comm); r++)
		if (r != gn_comm_rank(b->comm)) {
			gn_strbuf_puts(&lanes, " ");
			gn_comm_lanes(b->comm, r, &lanes);
		}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strstr(gn_strbuf_text(&lanes), names[i].lane) && !strstr(b->carried_by, names[i].name))
			len += (size_t)snprintf(b->carried_by + len, sizeof b->carried_by - len, "%s%s", len ? "+" : "",
						names[i].name);
	if (!len)
		snprintf(b->carried_by, sizeof b->carried_by, "none");
	gn_strbuf_release(&lanes);
}

static enum gn_algo algo_of(const char *name)
{
	if (!strcmp(name, "ring"))
		return GN_ALGO_RING;
	if (!strcmp(name, "halving-doubling"))
		return GN_ALGO_HALVING_DOUBLING;
	if (!strcmp(name, "double-tree"))
		return GN_ALGO_DOUBLE_TREE;
	if (!strcmp(name, "shared"))
		return GN_ALGO_SHARED;
	return strcmp(name, "auto") ? GN_ALGO_RECURSIVE_DOUBLING : GN_ALGO_AUTO;
}

static enum gn_status bench_all(struct bench *b, int64_t *wrong, struct gn_err *err)
{
	const struct gn_bench_options *o = b->o;
	enum gn_status status = GN_OK;
	void *shared = NULL;

	if (gn_comm_size(b->comm) == 1 && strcmp(o->transport, "auto"))
		return gn_err_set(err, GN_ERR_USAGE, "--transport %s: one rank alone sends nothing", o->transport);
	b->in = gn_alloc_aligned((size_t)o->max_bytes);
	b->times = calloc((size_t)o->iters, sizeof *b->times);
	if (o->foreign)
		b->out = gn_alloc_aligned((size_t)o->max_bytes);
	else
		status = gn_comm_alloc(b->comm, (size_t)o->max_bytes, &shared, err);
	if (status)
		return status;
	if (!o->foreign)
		b->out = shared;
	if (!b->in || !b->out || !b->times)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %lld bytes", (long long)o->max_bytes);
	name_transports(b);
	if (!o->json && gn_comm_rank(b->comm) == 0)
		print_heading(b);
	for (int64_t bytes = o->min_bytes; bytes <= o->max_bytes && !status; bytes *= o->factor)
		status = bench_size(b, (size_t)bytes / sizeof(float) * sizeof(float), algo_of(o->algo), wrong, err);
	return status;
}

int gn_bench_allreduce(const struct gn_bench_options *o)
{
	struct gn_comm_options options = {.transport = o->transport};
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world = NULL;
	struct bench b = {.o = o};
	int64_t wrong = 0;
	struct gn_err err;
	enum gn_status status = gn_world_create(NULL, log, &world, &err);

	if (!status)
		status = gn_comm_create(world, &options, log, &b.comm, &err);
	if (!status)
		status = bench_all(&b, &wrong, &err);
	if (status)
		gn_cmd_fail("bench", &err);
	else if (wrong && gn_world_rank(world) == 0)
		fprintf(stderr, "gannet bench: %lld elements were wrong\n", (long long)wrong);
	free(b.in);
	if (o->foreign || !b.comm)
		free(b.out);
	else
		gn_comm_free(b.comm, b.out);
	free(b.times);
	gn_comm_destroy(b.comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return status ? gn_cmd_exit_code(status) : wrong ? GN_EXIT_FAILED : GN_EXIT_DONE;
}
