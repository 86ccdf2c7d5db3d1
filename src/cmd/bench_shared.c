#include "src/cmd/bench.h"

#include "src/config.h"

#include "src/base/arena.h"
#include "src/base/strbuf.h"
#include "src/cmd/bench_gpu.h"
#include "transport/topology/affinity.h"
#include "transport/coll/traffic_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- ranks and buffers --- */

static struct gn_pattern pattern_of(const struct gn_bench_options *o, int size)
{
	static const struct {
		const char *name;
		enum gn_dtype type;
	} types[] = {{"float", GN_F32}, {"double", GN_F64}, {"half", GN_F16}, {"bfloat16", GN_BF16}, {"int32", GN_I32},
		     {"int64", GN_I64}};
	struct gn_pattern p = {GN_F32, GN_SUM, size};

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, o->type))
			p.type = types[i].type;
	if (!strcmp(o->redop, "max"))
		p.reduction = GN_MAX;
	else if (!strcmp(o->redop, "min"))
		p.reduction = GN_MIN;
	else if (!strcmp(o->redop, "avg"))
		p.reduction = GN_AVERAGE;
	return p;
}

static enum gn_status make_buffer(struct gn_bench *b, void **out, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	void *memory = NULL;

	if (!b->o->foreign)
		status = gn_comm_alloc(b->comm, b->buffer_bytes, &memory, err);
	else
		memory = gn_alloc_aligned(b->buffer_bytes);
	if (!status && !memory)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %lld bytes", (long long)b->o->max_bytes);
	if (!status)
		*out = memory;
	return status;
}

static void free_buffer(struct gn_bench *b, void *memory)
{
	if (b->o->foreign)
		free(memory);
	else if (b->comm)
		gn_comm_free(b->comm, memory);
}

static enum gn_status open_device(struct gn_bench *b, const char **pci, struct gn_err *err)
{
	if (strcmp(b->o->device, "cuda"))
		return GN_OK;
#ifdef HAVE_CUDA
	enum gn_status status = gn_bench_gpu_open(gn_world_local_rank(b->world), &b->gpu, err);

	if (status) {
		gn_err_prefix(err, "--device cuda");
		/* what is not found is no data */
		return status == GN_ERR_NOT_FOUND ? (err->status = GN_ERR_UNSUPPORTED) : status;
	}
	*pci = gn_bench_gpu_pci(b->gpu);
	return GN_OK;
#else
	(void)pci;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "--device cuda: this build has no CUDA (configure --with-cuda=DIR)");
#endif
}

enum gn_status gn_bench_open(const struct gn_bench_options *o, struct gn_bench *b, struct gn_err *err)
{
	struct gn_comm_options options = {.transport = o->transport, .tuning = o->tuning, .rails = (int)o->rails,
					  .strict = o->transport_strict, .progress = o->progress};
	const char *pci = NULL;
	enum gn_status status;
	int size;

	*b = (struct gn_bench){.o = o, .log = gn_cmd_log()};
	status = gn_world_create(&o->world, b->log, &b->world, err);
	if (!status)
		status = gn_comm_create(b->world, &options, b->log, &b->comm, err);
	if (!status)
		status = open_device(b, &pci, err);
	if (!status)
		status = gn_affinity_report(b->comm, pci, b->log, err);
	if (status)
		return status;
	/* checking and printing large results takes its time */
	gn_world_set_phase(b->world, "measuring", 60000);
	size = gn_comm_size(b->comm);
	if (size == 1 && strcmp(o->transport, "auto"))
		return gn_err_set(err, GN_ERR_USAGE, "--transport %s: one rank alone sends nothing", o->transport);
	if (o->root >= size || o->peer >= size)
		return gn_err_set(err, GN_ERR_USAGE, "there is no rank %lld: %d rank%s, from 0 on",
				  (long long)(o->root >= size ? o->root : o->peer), size, size > 1 ? "s" : "");
	b->pattern = pattern_of(o, size);
	/* one element for each rank at least */
	b->buffer_bytes = (size_t)o->max_bytes + 8 * (size_t)size + 256;
	b->times = calloc((size_t)o->iters, sizeof *b->times);
	if (!b->times)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %lld times", (long long)o->iters);
	status = make_buffer(b, &b->in, err);
	if (!status)
		status = make_buffer(b, &b->out, err);
	if (!status && gn_world_nodes(b->world) > 1)
		status = gn_bench_link_limit(b, &b->link_gb_per_s, err);
	return status;
}

void gn_bench_close(struct gn_bench *b)
{
#ifdef HAVE_CUDA
	gn_bench_gpu_close(b->gpu);
#endif
	free_buffer(b, b->in);
	free_buffer(b, b->out);
	free(b->times);
	gn_comm_destroy(b->comm);
	gn_world_destroy(b->world);
	gn_log_destroy(b->log);
}

/* --- timing --- */

struct timed {
	struct gn_comm *comm;
	enum gn_status (*run)(void *context, struct gn_err *err);
	void *context;
};

struct in_turn {
	struct gn_coll *const *colls;
	int count;
};

enum gn_status gn_bench_once(struct gn_coll *const *colls, int count, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int i = 0; i < count && !status; i++) {
		status = gn_coll_start(colls[i], err);
		if (!status)
			status = gn_coll_wait(colls[i], err);
	}
	return status;
}

static enum gn_status run_in_turn(void *context, struct gn_err *err)
{
	const struct in_turn *t = context;

	return gn_bench_once(t->colls, t->count, err);
}

static enum gn_status run_timed(void *context, struct gn_err *err)
{
	const struct timed *t = context;

	return t->run(t->context, err);
}

static enum gn_status largest(void *context, double *values, size_t count, struct gn_err *err)
{
	const struct timed *t = context;

	return gn_comm_allreduce(t->comm, values, count, GN_F64, gn_reduce_max(GN_F64), err);
}

enum gn_status gn_bench_time_any(struct gn_bench *b, enum gn_status (*run)(void *context, struct gn_err *err), void *context,
				 struct gn_timing *out, struct gn_err *err)
{
	struct gn_bench_plan plan = {b->o->warmup, b->o->iters, b->o->row_ms};
	struct timed timed = {b->comm, run, context};
	struct gn_bench_op op = {run_timed, largest, &timed};

	return gn_bench_loop(&plan, &op, b->times, out, err);
}

enum gn_status gn_bench_time(struct gn_bench *b, struct gn_coll *const *colls, int count, struct gn_timing *out,
			     struct gn_err *err)
{
	struct in_turn all = {colls, count};

	return gn_bench_time_any(b, run_in_turn, &all, out, err);
}

enum gn_status gn_bench_add_wrong(struct gn_bench *b, int64_t here, struct gn_timing *t, struct gn_err *err)
{
	enum gn_status status = gn_comm_allreduce(b->comm, &here, 1, GN_I64, NULL, err);

	if (!status) {
		t->wrong = here;
		b->wrong += here;
	}
	return status;
}

/* --- rows --- */

static void add_name(char *names, size_t size, const char *name)
{
	size_t len = strlen(names);

	if (!strstr(names, name))
		snprintf(names + len, size - len, "%s%s", len ? "+" : "", name);
}

/* In our words, "shm+tcp", and through how many network devices. */
static void name_transports(const struct gn_bench *b, int direct, char *names, size_t size, int *rails)
{
	static const struct {
		const char *lane, *name;
	} known[] = {{"posix/", "shm"}, {"sysv/", "shm"}, {"cma/", "shm"}, {"tcp/", "tcp"}, {"rc_", "rc"},
		   {"dc_", "dc"}, {"ud_", "ud"}};
	char seen[256] = " ", *save, *lane;
	size_t len = 1;
	struct gn_strbuf lanes;

	names[0] = 0;
	*rails = 0;
	if (direct)
		add_name(names, size, "shm");
	gn_strbuf_init(&lanes);
	for (int r = 0; r < gn_comm_size(b->comm); r++)
		if (r != gn_comm_rank(b->comm)) {
			gn_strbuf_puts(&lanes, " ");
			gn_comm_lanes(b->comm, r, &lanes);
		}
	for (lane = lanes.text ? strtok_r(lanes.text, " ", &save) : NULL; lane; lane = strtok_r(NULL, " ", &save)) {
		const char *device = strchr(lane, '/');
		char word[80];
		int n;

		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			if (!strncmp(lane, known[i].lane, strlen(known[i].lane)))
				add_name(names, size, known[i].name);
		if (!device || !strcmp(device, "/memory"))
			continue;
		n = snprintf(word, sizeof word, " %s ", device + 1);
		if ((size_t)n >= sizeof word || strstr(seen, word) || len + (size_t)n > sizeof seen)
			continue;
		memcpy(seen + len, word + 1, (size_t)n);
		len += (size_t)n - 1;
		++*rails;
	}
	if (!names[0])
		snprintf(names, size, "none");
	gn_strbuf_release(&lanes);
}

enum gn_status gn_bench_row(struct gn_bench *b, struct gn_bench_row *row,
			    enum gn_status (*measure)(struct gn_bench *b, struct gn_bench_row *row, int *direct,
						      struct gn_err *err),
			    struct gn_err *err)
{
	struct gn_comm_rail rails[GN_RAILS_MAX];
	char carried_by[64];
	struct gn_traffic_check proof;
	int direct = 0;
	enum gn_status status = gn_traffic_check_begin(b->comm, &proof, err);

	if (status)
		return status;
	status = measure(b, row, &direct, err);
	if (status)
		gn_devices_release(&proof.before);
	else
		status = gn_traffic_check_end(b->comm, &proof, b->o->transport, err);
	if (status || gn_comm_rank(b->comm))
		return status;
	name_transports(b, direct, carried_by, sizeof carried_by, &row->rails);
	/* several: what was there to be used is not what was */
	if (gn_comm_rails(b->comm, rails) > 1 && proof.rails)
		row->rails = proof.rails;
	if (!row->transport)
		row->transport = carried_by;
	row->type = b->o->type;
	row->ranks = gn_comm_size(b->comm);
	row->nodes = gn_world_nodes(b->world);
	(b->o->json ? gn_bench_print_json : gn_bench_print_row)(row);
	row->transport = NULL;
	return GN_OK;
}
