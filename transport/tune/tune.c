#include "transport/tune/tune_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/sort.h"
#include "transport/topology/affinity.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS 0.1
#define MAX_BYTES (4u << 20)
#define PAIRS 3
/* The largest eager threshold searched for. */
#define EAGER_SEARCH_BYTES (1u << 20)
#define FIRST_CHUNKS 96
#define STREAMS 3
#define IDLE_S 0.05
/* With more ranks than this, ranks outside of a pair wait in the bootstrap, because notifying them takes a connection to each. */
#define WAITERS_MAX 64
#define REDUCE_BYTES (256u << 10)

/* The measurements of one pair, as its driver sends them. */
struct pair_report {
	struct gn_tune_sample samples[GN_TUNE_SAMPLES];
	int32_t count, is_link;
	double overheads[2][2], bytes_per_s, burst_bytes, burst_bytes_per_s, eager_bytes;
};

struct tuner {
	struct gn_world *world;
	struct gn_ucx *ucx;
	struct gn_tune_options o;
	struct pair_report *reports; /* of all pairs so far */
	int count, oversubscribed;
};

/* --- one pair, on its driver --- */

static enum gn_status find_eager(struct gn_probe *p, size_t max_bytes, double *out, struct gn_err *err)
{
	size_t low = 0, high = max_bytes < EAGER_SEARCH_BYTES ? max_bytes : EAGER_SEARCH_BYTES;
	enum gn_status status = GN_OK;
	int eager;

	/* to within an eighth */
	while (!status && high - low > 1 + low / 8) {
		size_t middle = low ? (low + high) / 2 : high > 64 ? high / 8 : high / 2;

		status = gn_probe_is_eager(p, middle, &eager, err);
		*(eager ? &low : &high) = middle;
	}
	*out = (double)low;
	return status;
}

static enum gn_status time_stream(struct gn_probe *p, int chunks, double *arrived, struct gn_cost_path *path,
				  struct gn_err *err)
{
	enum gn_status status = gn_probe_stream(p, chunks, IDLE_S, arrived, err);

	if (status)
		return status;
	for (int i = chunks - 1; i >= 0; i--)
		arrived[i] -= arrived[0];
	gn_tune_fit_stream(arrived, chunks, (double)gn_probe_chunk_bytes(p), path);
	return GN_OK;
}

/* A short stream determines the length of the streams that measure the rate. */
static enum gn_status find_rate(struct gn_probe *p, double seconds, struct gn_cost_path *path, struct gn_err *err)
{
	double *arrived = calloc(GN_PROBE_CHUNKS, sizeof *arrived);
	struct gn_cost_path streams[STREAMS] = {{.bytes_per_s = 0}};
	enum gn_status status;
	int chunks;

	if (!arrived)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure a stream");
	status = time_stream(p, FIRST_CHUNKS, arrived, &streams[0], err);
	chunks = (int)fmin(GN_PROBE_CHUNKS, fmax(FIRST_CHUNKS, 3 * seconds * streams[0].bytes_per_s / (double)gn_probe_chunk_bytes(p)));
	for (int i = 0; i < STREAMS && !status; i++)
		status = time_stream(p, chunks, arrived, &streams[i], err);
	if (!status)
		*path = *gn_tune_middle_stream(streams, STREAMS);
	free(arrived);
	return status;
}

static enum gn_status time_lengths(struct gn_probe *p, const struct tuner *t, const struct gn_cost_path *path,
				   struct pair_report *r, struct gn_err *err)
{
	/* the time in which a shaped link regains its burst */
	double idle = path->burst_bytes / path->bytes_per_s * 1.2, once;
	enum gn_status status = GN_OK;

	for (size_t bytes = 8; bytes <= t->o.max_bytes && r->count < GN_TUNE_SAMPLES && !status;
	     bytes *= bytes < 1024 ? 4 : 2) {
		status = gn_probe_one_way(p, bytes, 1, idle, &once, err);
		if (!status)
			status = gn_probe_one_way(p, bytes, (int)fmax(3, fmin(200, t->o.seconds / (2 * once + idle))), idle, &once,
						  err);
		r->samples[r->count++] = (struct gn_tune_sample){(double)bytes, once};
	}
	return status;
}

static enum gn_status drive(struct gn_probe *p, const struct tuner *t, struct pair_report *r, struct gn_err *err)
{
	struct gn_cost_path path = {.path = {.count = 0}};
	double large;
	enum gn_status status = gn_ucx_connect(p->ucx, p->peer, err);

	if (!status)
		status = gn_probe_one_way(p, 8, 20, 0, &large, err);
	if (!status)
		status = find_eager(p, t->o.max_bytes, &r->eager_bytes, err);
	if (!status)
		status = find_rate(p, t->o.seconds, &path, err);
	if (!status)
		status = time_lengths(p, t, &path, r, err);
	large = fmin(r->eager_bytes, 4096);
	if (!status)
		status = gn_probe_overheads(p, 8, &r->overheads[0][0], &r->overheads[0][1], err);
	if (!status)
		status = gn_probe_overheads(p, large < 8 ? 8 : (size_t)large, &r->overheads[1][0], &r->overheads[1][1], err);
	r->bytes_per_s = path.bytes_per_s;
	r->burst_bytes = path.burst_bytes;
	r->burst_bytes_per_s = path.burst_bytes_per_s;
	return status ? status : gn_probe_end(p, err);
}

/* --- all ranks --- */

static enum gn_status broadcast_report(struct tuner *t, int driver, const struct pair_report *mine, struct gn_err *err)
{
	size_t len = gn_world_rank(t->world) == driver ? sizeof *mine : 0;
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_exchange(t->world, mine, len, &all, err);

	if (!status && all.lens[driver] != sizeof *mine)
		status = gn_err_set(err, GN_ERR_MISMATCH, "rank %d sent its times in another format: do all ranks run the same "
				    "build of gannet?", driver);
	if (!status)
		memcpy(&t->reports[t->count++], all.items[driver], sizeof *mine);
	gn_gathered_release(&all);
	return status;
}

/* Ranks outside of the pair wait for a message, as in a collective, unless there are too many of them. */
static enum gn_status run_pair(struct tuner *t, int driver, int other, struct gn_err *err)
{
	struct pair_report r = {.is_link = gn_world_node_of(t->world, driver) != gn_world_node_of(t->world, other)};
	int me = gn_world_rank(t->world), size = gn_world_size(t->world);
	struct gn_probe p = {0};
	enum gn_status status = gn_probe_create(t->world, t->ucx, t->oversubscribed, t->o.max_bytes, &p, err);

	p.peer = me == driver ? other : driver;
	if (!status && me == driver)
		status = drive(&p, t, &r, err);
	else if (!status && me == other)
		status = gn_probe_answer(&p, err);
	else if (!status && size <= WAITERS_MAX)
		status = gn_probe_wait(&p, driver, err);
	for (int rank = 0; rank < size && size <= WAITERS_MAX && me == driver && !status; rank++)
		if (rank != driver && rank != other)
			status = gn_probe_notify(&p, rank, err);
	if (!status)
		status = broadcast_report(t, driver, &r, err);
	gn_probe_release(&p);
	return status;
}

/* The k-th rank of a node, or -1. */
static int rank_on(const struct gn_world *world, int node, int k)
{
	for (int r = 0; r < gn_world_size(world); r++)
		if (gn_world_node_of(world, r) == node && k-- == 0)
			return r;
	return -1;
}

static enum gn_status run_pairs(struct tuner *t, struct gn_err *err)
{
	int nodes = gn_world_nodes(t->world), done = 0;
	enum gn_status status = GN_OK;

	for (int n = 0; n < nodes && done < t->o.pairs && !status; n++)
		if (rank_on(t->world, n, 1) >= 0) {
			status = run_pair(t, rank_on(t->world, n, 0), rank_on(t->world, n, 1), err);
			done++;
		}
	for (int k = 0; k < t->o.pairs && k < nodes - 1 && !status; k++)
		status = run_pair(t, rank_on(t->world, k, 0), rank_on(t->world, (k + 1) % nodes, 0), err);
	return status;
}

/* --- results of all pairs --- */

/* The median over the pairs of one kind of the double at this offset of their reports. */
static double median(const struct tuner *t, int is_link, size_t offset)
{
	double *values = calloc((size_t)t->count + 1, sizeof *values), result = 0;
	size_t n = 0;

	for (int i = 0; values && i < t->count; i++)
		if (t->reports[i].is_link == is_link)
			memcpy(&values[n++], (const char *)&t->reports[i] + offset, sizeof *values);
	if (n) {
		gn_sort_doubles(values, n);
		result = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
	}
	free(values);
	return result;
}

#define MEDIAN(t, is_link, member) median(t, is_link, offsetof(struct pair_report, member))

static void summarise_pairs(const struct tuner *t, int is_link, struct gn_cost_path *p, struct gn_tune_path *out)
{
	const struct pair_report *first = NULL;

	for (int i = 0; i < t->count; i++)
		if (t->reports[i].is_link == is_link) {
			first = first ? first : &t->reports[i];
			out->pairs++;
		}
	if (!first)
		return;
	p->bytes_per_s = MEDIAN(t, is_link, bytes_per_s);
	p->burst_bytes = MEDIAN(t, is_link, burst_bytes);
	p->burst_bytes_per_s = MEDIAN(t, is_link, burst_bytes_per_s);
	p->path.eager_bytes = MEDIAN(t, is_link, eager_bytes);
	for (int i = 0; i < 4; i++)
		out->overheads[i / 2][i % 2] = median(t, is_link, offsetof(struct pair_report, overheads) +
							      (size_t)i * sizeof(double));
	out->sample_count = first->count;
	for (int i = 0; i < first->count; i++) {
		out->samples[i].bytes = first->samples[i].bytes;
		out->samples[i].one_way_s = median(t, is_link, offsetof(struct pair_report, samples) +
							      (size_t)i * sizeof *out->samples +
							      offsetof(struct gn_tune_sample, one_way_s));
	}
	gn_tune_fit_path(out->samples, out->sample_count, out->overheads, p, out->fits);
}

/* On all ranks at once, because they share memory bandwidth in a collective, too. */
static enum gn_status time_reductions(struct tuner *t, double *bytes_per_s, struct gn_err *err)
{
	size_t count = REDUCE_BYTES / sizeof(float), rounds = 0;
	float *a = gn_alloc_aligned(REDUCE_BYTES), *b = gn_alloc_aligned(REDUCE_BYTES);
	gn_reduce_fn sum = gn_reduce_sum(GN_F32);
	double began, took = 0;
	enum gn_status status = GN_OK;

	if (!a || !b)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure reductions");
	if (!status)
		status = gn_world_barrier(t->world, err);
	began = gn_clock_s();
	while (!status && took < 0.02) {
		sum(a, b, count);
		rounds++;
		took = gn_clock_s() - began;
	}
	if (!status)
		*bytes_per_s = (double)rounds * REDUCE_BYTES / took;
	free(a);
	free(b);
	return status;
}

/* Collective: all ranks use rank 0's signature, estimated costs and rate of reductions. */
static enum gn_status share_common(struct tuner *t, struct gn_tune_result *out, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	double rate = 0;
	struct pair_report r = {0};
	enum gn_status status = gn_tuning_table_agree(t->world, t->ucx, "none", NULL, &out->cost, err);

	if (!status)
		status = time_reductions(t, &rate, err);
	if (!status && gn_world_rank(t->world) == 0)
		status = gn_tuning_table_signature(t->world, t->ucx, &text, err);
	/* a report is used to send both */
	_Static_assert(sizeof r.samples >= sizeof out->signature, "a signature fits into a report");
	if (!status && text.len >= sizeof out->signature)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "the signature of the fabric is too long: %s", gn_strbuf_text(&text));
	if (!status) {
		memcpy(r.samples, gn_strbuf_text(&text), text.len);
		r.bytes_per_s = rate;
		status = broadcast_report(t, 0, &r, err);
	}
	gn_strbuf_release(&text);
	if (status)
		return status;
	t->count--;
	memcpy(out->signature, t->reports[t->count].samples, sizeof out->signature);
	out->signature[sizeof out->signature - 1] = 0;
	out->cost.reduce_bytes_per_s = t->reports[t->count].bytes_per_s;
	return GN_OK;
}

static enum gn_status measure(struct tuner *t, struct gn_tune_result *out, struct gn_err *err)
{
	struct gn_tune_result r = {0};
	enum gn_status status;

	t->reports = calloc(2 * (size_t)t->o.pairs + 1, sizeof *t->reports);
	if (!t->reports)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for measurements");
	status = share_common(t, &r, err);
	if (!status)
		status = run_pairs(t, err);
	if (!status) {
		summarise_pairs(t, 0, &r.cost.node, &r.node);
		summarise_pairs(t, 1, &r.cost.link, &r.link);
		r.cost.measured = 1;
		status = gn_cost_check(&r.cost, err);
	}
	if (!status)
		*out = r;
	free(t->reports);
	return status;
}

enum gn_status gn_tune_measure(struct gn_world *world, const struct gn_tune_options *options, struct gn_tune_result *out,
			       struct gn_err *err)
{
	struct tuner t = {.world = world, .o = *options};
	enum gn_status status;

	t.o.seconds = t.o.seconds > 0 ? t.o.seconds : SECONDS;
	t.o.max_bytes = t.o.max_bytes ? t.o.max_bytes : MAX_BYTES;
	t.o.pairs = t.o.pairs > 0 ? t.o.pairs : PAIRS;
	status = gn_ucx_create(world, t.o.transport ? t.o.transport : "auto", t.o.rails, &t.ucx, err);
	if (status)
		return status;
	status = gn_oversubscription_find(world, t.o.transport ? t.o.transport : "auto", &t.oversubscribed, err);
	if (!status)
		status = measure(&t, out, err);
	if (status)
		gn_ucx_abandon(t.ucx);
	gn_ucx_destroy(t.ucx);
	return status;
}
