#include "src/cmd/bench.h"
#include "src/cmd/bench_pattern.h"
#include "src/cmd/bench_row.h"

#include "src/base/arena.h"
#include "src/base/strbuf.h"
#include "transport/comm.h"
#include "transport/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	const struct gn_bench_options *o;
	struct gn_comm *comm;
	struct gn_coll *coll; /* that of the row at hand */
	float *in, *out;
	double *times; /* per iteration, microseconds */
	char carried_by[64];
};

static enum gn_status once(void *context, struct gn_err *err)
{
	struct bench *b = context;
	enum gn_status status = gn_coll_start(b->coll, err);

	return status ? status : gn_coll_wait(b->coll, err);
}

static enum gn_status largest(void *context, double *values, size_t count, struct gn_err *err)
{
	struct bench *b = context;

	return gn_comm_allreduce(b->comm, values, count, GN_F64, gn_reduce_max(GN_F64), err);
}

static enum gn_status measure(struct bench *b, size_t count, const char *algo, int in_place, struct gn_timing *t,
			      struct gn_coll_info *info, struct gn_err *err)
{
	struct gn_coll_args args = {.in = in_place ? NULL : b->in, .out = b->out, .count = count, .algorithm = algo};
	struct gn_bench_plan plan = {b->o->warmup, b->o->iters, b->o->row_ms};
	struct gn_bench_op op = {once, largest, b};
	int rank = gn_comm_rank(b->comm);
	enum gn_status status;

	gn_pattern_fill(b->in, count, rank);
	/* in place the timed sums grow without bound, so only one more operation can be checked */
	gn_pattern_fill(b->out, count, rank);
	status = gn_coll_prepare(b->comm, &args, &b->coll, err);
	if (!status)
		gn_coll_describe(b->coll, info);
	if (!status)
		status = gn_bench_loop(&plan, &op, b->times, t, err);
	if (!status && in_place) {
		gn_pattern_fill(b->out, count, rank);
		status = once(b, err);
	}
	if (!status) {
		t->wrong = gn_pattern_wrong_sums(b->out, count, gn_comm_size(b->comm));
		status = gn_comm_allreduce(b->comm, &t->wrong, 1, GN_I64, NULL, err);
	}
	gn_coll_free(b->coll);
	b->coll = NULL;
	return status;
}

/* One row: both ways, with the counters' proof around them. */
static enum gn_status bench_size(struct bench *b, size_t bytes, const char *algo, int64_t *wrong, struct gn_err *err)
{
	int n = gn_comm_size(b->comm);
	struct gn_bench_row row = {.op = "allreduce", .type = "float", .redop = "sum", .transport = b->carried_by,
				   .bytes = bytes, .count = bytes / sizeof(float), .ranks = n,
				   .nodes = gn_world_nodes(gn_comm_world(b->comm)), .bus_factor = 2.0 * (n - 1) / n};
	struct gn_coll_info info = {0};
	struct gn_proof proof;
	enum gn_status status = gn_proof_begin(b->comm, &proof, err);

	if (status)
		return status;
	if (strcmp(b->o->place, "in"))
		status = measure(b, row.count, algo, 0, &row.out_of_place, &info, err);
	if (!status && strcmp(b->o->place, "out"))
		status = measure(b, row.count, algo, 1, &row.in_place, &info, err);
	if (status)
		gn_devices_release(&proof.before);
	else
		status = gn_proof_end(b->comm, &proof, b->o->transport, err);
	if (status)
		return status;
	row.algo = info.algorithm;
	*wrong += row.in_place.wrong + row.out_of_place.wrong;
	if (gn_comm_rank(b->comm) == 0)
		(b->o->json ? gn_bench_print_json : gn_bench_print_row)(&row);
	return GN_OK;
}

static void print_heading(const struct bench *b)
{
	const struct gn_world *w = gn_comm_world(b->comm);

	printf("# allreduce: %d ranks on %d nodes, algorithm %s, transport %s, %lld iterations after %lld\n",
	       gn_world_size(w), gn_world_nodes(w), b->o->algo, b->carried_by, (long long)b->o->iters,
	       (long long)b->o->warmup);
	gn_bench_print_heading();
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
		status = bench_size(b, (size_t)bytes / sizeof(float) * sizeof(float), o->algo, wrong, err);
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
