#include "src/cmd/bench.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/strbuf.h"
#include "transport/coll/comm.h"
#include "transport/schedule/algo.h"
#include "transport/topology/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A check by device counters, read before and after some traffic, that the named transport carried it. Counters belong to a node, not to a
 * process: its first rank compares them with the sum of the payloads of the node's ranks. Other traffic of the host makes counters larger: it
 * can hide that tcp was not used, and make shm look wrong, but not the reverse. */
struct traffic_check {
	struct gn_devices before; /* on the first rank of a node */
	uint64_t same_node_bytes, other_node_bytes, rail_bytes[GN_RAILS_MAX];
	int rails; /* set at the end, on all ranks: rails that carried payload between nodes */
};

/* Below this, heartbeats and other traffic are as large as the payload. */
#define NOISE_BYTES (1u << 20)
#define REASON_MAX 240

/* Collective; blocks. */
static enum gn_status traffic_check_begin(struct gn_comm *c, struct traffic_check *p, struct gn_err *err)
{
	struct traffic_check fresh = {0};
	struct gn_comm_rail rails[GN_RAILS_MAX];
	enum gn_status status = gn_comm_barrier(c, err);

	if (!status && gn_world_local_rank(gn_comm_world(c)) == 0)
		status = gn_devices_read("/sys", &fresh.before, err);
	gn_comm_sent_bytes(c, &fresh.same_node_bytes, &fresh.other_node_bytes);
	for (int i = 0, count = gn_comm_rails(c, rails); i < count; i++)
		fresh.rail_bytes[i] = rails[i].sent_bytes;
	/* no rank starts before all counters are read */
	if (!status)
		status = gn_comm_barrier(c, err);
	if (status)
		gn_devices_release(&fresh.before);
	else
		*p = fresh;
	return status;
}

/* Payload of one node's ranks. */
struct payload {
	int64_t same, other, rails[GN_RAILS_MAX];
};

static enum gn_status sum_payloads(struct gn_comm *c, const struct traffic_check *p, struct payload *sums, struct gn_err *err)
{
	struct gn_world *w = gn_comm_world(c);
	struct payload *mine = &sums[gn_world_node_of(w, gn_comm_rank(c))];
	struct gn_comm_rail rails[GN_RAILS_MAX];
	uint64_t same, other;

	gn_comm_sent_bytes(c, &same, &other);
	mine->same = (int64_t)(same - p->same_node_bytes);
	mine->other = (int64_t)(other - p->other_node_bytes);
	for (int i = 0, count = gn_comm_rails(c, rails); i < count; i++)
		mine->rails[i] = (int64_t)(rails[i].sent_bytes - p->rail_bytes[i]);
	return gn_comm_allreduce(c, sums, (size_t)gn_world_nodes(w) * (sizeof *sums / sizeof(int64_t)), GN_I64, NULL, err);
}

static int rails_used(const struct payload *sums, int nodes)
{
	int used = 0;

	for (int i = 0; i < GN_RAILS_MAX; i++) {
		int carried = 0;

		for (int n = 0; n < nodes; n++)
			carried |= sums[n].rails[i] > 0;
		used += carried;
	}
	return used;
}

static void set_too_few(char *reason, const char *host, uint64_t wanted, const char *where, uint64_t counted)
{
	snprintf(reason, REASON_MAX, "the ranks of %.64s sent %llu bytes %s, but the devices counted %llu", host,
		 (unsigned long long)wanted, where, (unsigned long long)counted);
}

static void set_too_many(char *reason, const char *host, uint64_t counted, uint64_t sent)
{
	snprintf(reason, REASON_MAX, "the network devices of %.64s sent %llu bytes while its ranks sent %llu", host,
		 (unsigned long long)counted, (unsigned long long)sent);
}

/* Sets *reason if the counters contradict the transport. */
static void check_counters(const struct gn_devices *before, const struct gn_devices *after, const char *transport,
		  const char *host, uint64_t same, uint64_t other, char *reason)
{
	uint64_t lo = gn_devices_sent(before, after, GN_DEVICE_LOOPBACK);
	uint64_t net = gn_devices_sent(before, after, GN_DEVICE_NET);
	uint64_t soft = gn_devices_sent(before, after, GN_DEVICE_SOFT_RDMA);
	uint64_t rdma = gn_devices_sent(before, after, GN_DEVICE_RDMA) + soft;

	if (!strcmp(transport, "tcp")) {
		if (lo < same)
			set_too_few(reason, host, same, "within the node over tcp (lo)", lo);
		else if (net < other + soft)
			set_too_few(reason, host, other, "to other nodes over tcp", net > soft ? net - soft : 0);
	} else if (!strcmp(transport, "shm")) {
		if (same > NOISE_BYTES && lo >= same / 2)
			set_too_many(reason, host, lo, same);
	} else if (!strcmp(transport, "rc") || !strcmp(transport, "ud")) {
		/* adapters need not count traffic within a node */
		if (rdma < other)
			set_too_few(reason, host, other, "to other nodes over RDMA devices", rdma);
		else if (same + other > NOISE_BYTES && lo + (rdma ? 0 : net) >= (same + other) / 2)
			set_too_many(reason, host, lo + net, same + other);
	}
}

/* UCX's name of an RDMA device has the port behind a colon: "mlx5_0:1". */
static int is_device_of(const char *rail, const char *device)
{
	size_t len = strlen(device);

	return !strncmp(rail, device, len) && (!rail[len] || rail[len] == ':');
}

static void check_rails(struct gn_comm *c, const struct gn_devices *before, const struct gn_devices *after,
			const struct payload *sent, char *reason)
{
	struct gn_comm_rail rails[GN_RAILS_MAX];
	int count = gn_comm_rails(c, rails), rank = gn_comm_rank(c);

	for (int i = 0; i < count && count > 1 && !*reason; i++)
		for (int k = 0; k < after->count; k++) {
			struct gn_devices now = {&after->items[k], 1};
			uint64_t counted = gn_devices_sent(before, &now, now.items->kind);

			if (!is_device_of(rails[i].device, now.items->name) || counted >= (uint64_t)sent->rails[i])
				continue;
			snprintf(reason, REASON_MAX, "the ranks of %.64s sent %lld bytes by %.64s, which counted %llu",
				 gn_world_host_of(gn_comm_world(c), rank), (long long)sent->rails[i], rails[i].device,
				 (unsigned long long)counted);
		}
}

static enum gn_status check_node(struct gn_comm *c, struct traffic_check *p, const char *transport, const struct payload *sums,
				 char *reason, struct gn_err *err)
{
	struct gn_world *w = gn_comm_world(c);
	int rank = gn_comm_rank(c), node = gn_world_node_of(w, rank);
	struct gn_devices after;
	enum gn_status status;

	if (gn_world_local_rank(w))
		return GN_OK;
	status = gn_devices_read("/sys", &after, err);
	if (status)
		return status;
	check_counters(&p->before, &after, transport, gn_world_host_of(w, rank), (uint64_t)sums[node].same,
	      (uint64_t)sums[node].other, reason);
	if (strcmp(transport, "auto"))
		check_rails(c, &p->before, &after, &sums[node], reason);
	gn_devices_release(&after);
	return GN_OK;
}

/* Collective; blocks. Releases p's readings, also on failure. transport: "tcp", "shm", "rc" or "ud"; "auto" always passes.
 * GN_ERR_FAILED on all ranks when the counters of some node contradict it; err has the reason, in at most 240 characters. */
static enum gn_status traffic_check_end(struct gn_comm *c, struct traffic_check *p, const char *transport, struct gn_err *err)
{
	int nodes = gn_world_nodes(gn_comm_world(c)), here = gn_world_node_of(gn_comm_world(c), gn_comm_rank(c));
	struct payload *sums = calloc((size_t)nodes, sizeof *sums);
	char(*reasons)[REASON_MAX] = calloc((size_t)nodes, sizeof *reasons);
	enum gn_status status;

	if (!sums || !reasons)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d nodes", nodes);
	else
		status = sum_payloads(c, p, sums, err);
	p->rails = status ? 0 : rails_used(sums, nodes);
	if (!status)
		status = check_node(c, p, transport, sums, reasons[here], err);
	if (!status)
		status = gn_comm_allreduce(c, reasons, (size_t)nodes * REASON_MAX, GN_BYTES, gn_reduce_max(GN_BYTES), err);
	for (int n = 0; !status && n < nodes; n++)
		if (reasons[n][0])
			status = gn_err_set(err, GN_ERR_FAILED, "%s did not carry the traffic: %s", transport, reasons[n]);
	gn_devices_release(&p->before);
	free(sums);
	free(reasons);
	return status;
}

#define LINK_BYTES (4u << 20)
#define LINK_MS 200
/* bytes per timing, large against the resolution of the clock */
#define COPY_BYTES (8u << 20)
#define COPIES_MAX 20000u
#define COPY_TRIES 3

struct timed {
	struct gn_comm *comm;
	enum gn_status (*run)(void *context, struct gn_err *err);
	void *context;
};

enum gn_status gn_bench_run_coll(void *context, struct gn_err *err)
{
	struct gn_coll *coll = context;
	enum gn_status status = gn_coll_start(coll, NULL, err);

	return status ? status : gn_coll_wait(coll, err);
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

enum gn_status gn_bench_time(struct gn_bench *b, enum gn_status (*run)(void *context, struct gn_err *err), void *context,
			     struct gn_timing *out, struct gn_err *err)
{
	struct gn_bench_plan plan = {b->o->warmup, b->o->iters, b->o->row_ms};
	struct timed timed = {b->comm, run, context};
	struct gn_bench_op op = {run_timed, largest, &timed};

	return gn_bench_loop(&plan, &op, b->times, out, err);
}

enum gn_status gn_bench_run_messages(void *context, struct gn_err *err)
{
	struct gn_bench_messages *m = context;
	enum gn_status status = m->first ? gn_p2p_start(m->first, NULL, err) : GN_OK;

	if (!status && m->second && m->together)
		status = gn_p2p_start(m->second, NULL, err);
	/* what comes tells of a rail that fails, what goes may only wait for its receiver */
	if (!status && m->second && m->together)
		status = gn_p2p_wait(m->second, err);
	if (!status && m->first)
		status = gn_p2p_wait(m->first, err);
	if (status || !m->second || m->together)
		return status;
	status = gn_p2p_start(m->second, NULL, err);
	return status ? status : gn_p2p_wait(m->second, err);
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

static void add_name(char *names, size_t size, const char *name)
{
	size_t len = strlen(names);

	if (!strstr(names, name))
		snprintf(names + len, size - len, "%s%s", len ? "+" : "", name);
}

/* Names the transports in use ("shm+tcp") and counts their network devices. */
static void name_transports(const struct gn_bench *b, int direct, char *names, size_t size, int *rails)
{
	static const struct {
		const char *lane, *name;
	} known[] = {{"posix/", "shm"}, {"sysv/", "shm"}, {"cma/", "shm"}, {"tcp/", "tcp"}, {"rc_", "rc"},
		   {"dc_", "dc"}, {"ud_", "ud"}};
	char seen[256] = " ", *save, *lane;
	size_t len = 1;
	struct gn_strbuf lanes = {0};

	names[0] = 0;
	*rails = 0;
	if (direct)
		add_name(names, size, "shm");
	for (int r = 0; r < gn_comm_size(b->group); r++)
		if (r != gn_comm_rank(b->group)) {
			gn_strbuf_puts(&lanes, " ");
			gn_comm_lanes(b->group, r, &lanes);
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
	struct traffic_check proof;
	int direct = 0;
	enum gn_status status = traffic_check_begin(b->comm, &proof, err);

	if (status)
		return status;
	status = measure(b, row, &direct, err);
	if (status)
		gn_devices_release(&proof.before);
	else
		status = traffic_check_end(b->comm, &proof, b->o->transport, err);
	if (status || gn_comm_rank(b->comm))
		return status;
	name_transports(b, direct, carried_by, sizeof carried_by, &row->rails);
	/* unless only one was used: report devices that carried bytes, not devices that were available */
	if (gn_comm_rails(b->comm, rails) > 1 && proof.rails)
		row->rails = proof.rails;
	if (!row->transport)
		row->transport = carried_by;
	row->type = b->o->type;
	row->ranks = gn_comm_size(b->group);
	row->nodes = gn_comm_map(b->group)->nodes;
	row->groups = b->groups;
	(b->o->json ? gn_bench_print_json : gn_bench_print_row)(row);
	row->transport = NULL;
	return GN_OK;
}

enum gn_status gn_bench_memory_roofline(struct gn_bench *b, size_t bytes, int copiers, double *gb_per_s, struct gn_err *err)
{
	size_t copies = bytes ? COPY_BYTES / bytes + 1 : 1;
	enum gn_status status = GN_OK;
	double best_s = 0, took_s;
	/* the volatile pointer keeps the compiler from removing the copy */
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;

	copies = copies < COPIES_MAX ? copies : COPIES_MAX;
	for (int i = 0; i < COPY_TRIES && !status; i++) {
		double start;

		status = gn_comm_barrier(b->comm, err);
		start = gn_clock_s();
		for (size_t k = 0; k < copies && gn_comm_rank(b->comm) < copiers; k++)
			copy(b->out, b->in, bytes);
		took_s = gn_clock_s() - start;
		if (!status)
			status = gn_comm_allreduce(b->comm, &took_s, 1, GN_F64, gn_reduce_max(GN_F64), err);
		best_s = i && best_s < took_s ? best_s : took_s;
	}
	if (!status)
		*gb_per_s = best_s > 0 ? 2.0 * (double)bytes * (double)copies * copiers / best_s / 1e9 : 0;
	return status;
}

/* the first rank of a node */
static int first_of(const struct gn_world *w, int node)
{
	int r = 0;

	while (r < gn_world_size(w) - 1 && gn_world_node_of(w, r) != node)
		r++;
	return r;
}

static enum gn_status prepare_ring(struct gn_bench *b, char *memory, int to, int from, struct gn_bench_messages *m, struct gn_err *err)
{
	struct gn_p2p_args args = {.peer = to, .data = memory, .len_bytes = LINK_BYTES};
	enum gn_status status = gn_p2p_prepare_send(b->comm, &args, &m->first, err);

	args.peer = from;
	args.data = memory + LINK_BYTES;
	return status ? status : gn_p2p_prepare_receive(b->comm, &args, &m->second, err);
}

enum gn_status gn_bench_link_roofline(struct gn_bench *b, double *gb_per_s, struct gn_err *err)
{
	int nodes = gn_world_nodes(b->world), node = gn_world_node_of(b->world, gn_world_rank(b->world));
	int speaks = gn_world_rank(b->world) == first_of(b->world, node);
	struct gn_bench_options few = {.iters = 20, .warmup = 2, .row_ms = LINK_MS};
	struct gn_bench_messages m = {.together = 1};
	const struct gn_bench_options *options = b->o;
	struct gn_timing t = {0};
	double times[20], *own_times = b->times;
	enum gn_status status = GN_OK;
	char *memory = gn_alloc_aligned(2 * LINK_BYTES);

	if (!memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the link measurement");
	memset(memory, 1, 2 * LINK_BYTES);
	if (speaks)
		status = prepare_ring(b, memory, first_of(b->world, (node + 1) % nodes), first_of(b->world, (node + nodes - 1) % nodes), &m,
				      err);
	b->o = &few;
	b->times = times;
	if (!status)
		status = gn_bench_time(b, gn_bench_run_messages, &m, &t, err);
	/* gn_bench_loop() has sorted the times. A low quantile ignores disturbances without relying on a single lucky message. */
	if (!status)
		*gb_per_s = LINK_BYTES / times[t.iters / 4] / 1e3;
	b->o = options;
	b->times = own_times;
	gn_p2p_free(m.first);
	gn_p2p_free(m.second);
	free(memory);
	return status;
}
