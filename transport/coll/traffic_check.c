#include "transport/coll/traffic_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below this, heartbeats and other traffic are as large as the payload. */
#define NOISE_BYTES (1u << 20)
#define REASON_MAX 240

enum gn_status gn_traffic_check_begin(struct gn_comm *c, struct gn_traffic_check *p, struct gn_err *err)
{
	struct gn_traffic_check fresh = {0};
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

static enum gn_status sum_payloads(struct gn_comm *c, const struct gn_traffic_check *p, struct payload *sums, struct gn_err *err)
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

static enum gn_status check_node(struct gn_comm *c, struct gn_traffic_check *p, const char *transport, const struct payload *sums,
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

enum gn_status gn_traffic_check_end(struct gn_comm *c, struct gn_traffic_check *p, const char *transport, struct gn_err *err)
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
