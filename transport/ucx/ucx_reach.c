#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* The longest wait for the next probe; the first one may take FIRST_LIMITS times as long, because ranks start at different
 * times. */
#define PROBE_LIMIT_MS 10000
#define FIRST_LIMITS 6

/* --- this rank's share of rails --- */

int gn_ucx_nearest_rail(const struct gn_ucx *f)
{
	int local = gn_world_local_rank(f->world), nearest = local % f->rail_count;
	const char *devices[GN_RAILS_MAX];
	struct gn_topology topology;
	cpu_set_t cpus;

	for (int i = 0; i < f->rail_count; i++)
		devices[i] = f->rails[i].device;
	if (sched_getaffinity(0, sizeof cpus, &cpus) || gn_topology_read(&topology, NULL))
		return nearest;
	nearest = gn_rails_nearest(&topology, devices, f->rail_count, &cpus, local, gn_world_local_size(f->world));
	gn_topology_release(&topology);
	return nearest;
}

int gn_ucx_extra_rails(const struct gn_ucx *f)
{
	int ranks = gn_world_local_size(f->world);

	/* rails of the share beyond the first */
	return (f->rail_count + ranks - 1) / ranks - 1;
}

/* --- which rails connect two nodes --- */

int gn_ucx_usable_rails(const struct gn_ucx *f, int rank, uint8_t usable[GN_RAILS_MAX])
{
	const int *here, *there;
	int count = 0;

	usable[0] = 0;
	if (f->rail_count == 1 || f->rails[0].endpoints[rank].same_node)
		return 1;
	here = f->groups ? f->groups + gn_world_node_of(f->world, gn_world_rank(f->world)) * f->rail_count : NULL;
	there = f->groups ? f->groups + gn_world_node_of(f->world, rank) * f->rail_count : NULL;
	for (int i = 0; i < f->rail_count; i++)
		if (!here || here[i] == there[i])
			usable[count++] = (uint8_t)i;
	return count;
}

/* A fabric connects all its nodes with each other, so that a chain of connected pairs is one group. A single gap in the ring
 * contradicts that; each node is then a group of its own. */
int gn_ucx_group(const unsigned char *reached, int nodes, int *groups, int stride)
{
	int gaps = 0, gap = 0, group = 0;

	for (int n = 0; n < nodes; n++)
		if (!reached[n]) {
			gaps++;
			gap = n;
		}
	for (int k = 0; k < nodes; k++) {
		int n = (gap + k) % nodes;

		group += k && (gaps == 1 || !reached[n]);
		groups[(size_t)n * (size_t)stride] = gaps ? group : 0;
	}
	return gaps ? group + 1 : 1;
}

static int leader_of(const struct gn_world *w, int node)
{
	int rank = 0;

	while (gn_world_node_of(w, rank) != node)
		rank++;
	return rank;
}

static void probe_sent(void *request, ucs_status_t rc, void *argument)
{
	(void)rc;
	(void)argument;
	ucp_request_free(request);
}

/* No message of a collective has so high a tag: its upper bits are its sender. */
static ucp_tag_t probe_tag(const struct gn_ucx *f, int sender)
{
	return ~(uint64_t)sender ^ f->tag_key;
}

/* Sends a probe on each rail to the first rank of the next node. GN_ERR_FAILED: UCX selected another transport than the named
 * one. */
static enum gn_status send_probes(struct gn_ucx *f, int to, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = probe_sent};

	for (int i = 0; i < f->rail_count; i++) {
		struct gn_ucx_endpoint *e = &f->rails[i].endpoints[to];
		enum gn_status status = gn_ucx_rail_connect(&f->rails[i], to, err);

		if (status && e->ep)
			return status;
		if (e->ep)
			ucp_tag_send_nbx(e->ep, &f->probe_word, sizeof f->probe_word, probe_tag(f, gn_world_rank(f->world)), &param);
	}
	return GN_OK;
}

/* Receives the probes of the previous node that have arrived; sets bits of *received. Returns 1 when there were any. */
static int receive_probes(struct gn_ucx *f, int from, unsigned *received)
{
	static const ucp_request_param_t param = {0};
	unsigned before = *received;

	for (int i = 0; i < f->rail_count; i++) {
		ucp_tag_message_h message;
		ucp_tag_recv_info_t info;
		uint64_t word;
		void *request;

		ucp_worker_progress(f->rails[i].worker);
		message = ucp_tag_probe_nb(f->rails[i].worker, probe_tag(f, from), UINT64_MAX, 1, &info);
		if (!message || info.length != sizeof word)
			continue;
		request = ucp_tag_msg_recv_nbx(f->rails[i].worker, &word, sizeof word, message, &param);
		while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
			ucp_worker_progress(f->rails[i].worker);
		if (UCS_PTR_IS_PTR(request))
			ucp_request_free(request);
		*received |= 1u << i;
	}
	return *received != before;
}

/* Blocks until all probes have arrived, or none for the time limit. Sleeps between polls: with one CPU the kernel needs it for soft
 * RDMA. */
static enum gn_status wait_for_probes(struct gn_ucx *f, int from, unsigned *received, struct gn_err *err)
{
	int silent_ms = gn_world_silent_after_ms(f->world);
	uint64_t limit_ns = (uint64_t)(silent_ms < PROBE_LIMIT_MS ? silent_ms : PROBE_LIMIT_MS) * 1000000, last_ns = gn_clock_ns();
	enum gn_status status = GN_OK;

	while (!status && *received != (1u << f->rail_count) - 1 && gn_clock_ns() - last_ns < limit_ns * (*received ? 1 : FIRST_LIMITS)) {
		if (receive_probes(f, from, received))
			last_ns = gn_clock_ns();
		else
			gn_clock_sleep_ns(200000);
		status = gn_world_check(f->world, err);
	}
	return status;
}

/* Peers may still need this rank's progress to connect. */
static void progress_probes(void *ucx)
{
	struct gn_ucx *f = ucx;

	for (int i = 0; i < f->rail_count; i++)
		ucp_worker_progress(f->rails[i].worker);
}

/* Collective: sets f->groups from the probes that each node's first rank has received. */
static enum gn_status exchange_received(struct gn_ucx *f, unsigned received, struct gn_err *err)
{
	int nodes = gn_world_nodes(f->world), split = 0;
	unsigned char mine = (unsigned char)received, *reached = calloc((size_t)nodes, 1);
	struct gn_gathered gathered = {0};
	enum gn_status status;

	f->groups = calloc((size_t)nodes * (size_t)f->rail_count, sizeof *f->groups);
	if (!reached || !f->groups) {
		free(reached);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d nodes", nodes);
	}
	gn_world_set_progress(f->world, progress_probes, f);
	status = gn_world_exchange(f->world, &mine, sizeof mine, &gathered, err);
	gn_world_set_progress(f->world, NULL, NULL);
	for (int i = 0; i < f->rail_count && !status; i++) {
		for (int n = 0; n < nodes && !status; n++) {
			int leader = leader_of(f->world, n);

			reached[n] = gathered.lens[leader] == 1 && (*(unsigned char *)gathered.items[leader] >> i & 1);
		}
		split |= gn_ucx_group(reached, nodes, f->groups + i, f->rail_count) > 1;
	}
	if (!split) {
		free(f->groups);
		f->groups = NULL;
	}
	gn_gathered_release(&gathered);
	free(reached);
	return status;
}

/* Drops probe endpoints of rails that do not connect. */
static void drop_probes(struct gn_ucx *f, int to)
{
	uint8_t usable[GN_RAILS_MAX];
	unsigned used = 0;

	for (int k = gn_ucx_usable_rails(f, to, usable); k-- > 0;)
		used |= 1u << usable[k];
	for (int i = 0; i < f->rail_count; i++)
		if (f->rails[i].endpoints[to].ep && (!(used >> i & 1) || f->probe_failed >> i & 1))
			gn_ucx_rail_drop(&f->rails[i], to);
}

enum gn_status gn_ucx_probe(struct gn_ucx *f, struct gn_err *err)
{
	int nodes = gn_world_nodes(f->world), here = gn_world_node_of(f->world, gn_world_rank(f->world));
	int first = gn_world_local_rank(f->world) == 0, next = leader_of(f->world, (here + 1) % nodes);
	enum gn_status status = GN_OK;
	unsigned received = 0;

	f->probing = 1;
	if (first)
		status = send_probes(f, next, err);
	if (!status && first)
		status = wait_for_probes(f, leader_of(f->world, (here + nodes - 1) % nodes), &received, err);
	if (!status)
		status = exchange_received(f, received, err);
	if (!status && first)
		drop_probes(f, next);
	f->probing = 0;
	return status;
}

enum gn_status gn_ucx_tried_devices(struct gn_ucx *f, char *out, size_t size_bytes, struct gn_err *err)
{
	enum gn_status status = f->rail_count == 1 && *f->rails[0].device ? gn_ucx_probe(f, err) : GN_OK;
	size_t len = 0;

	*out = 0;
	for (int i = 0; !status && i < f->rail_count && len < size_bytes; i++) {
		int connects = *f->rails[i].device != 0;

		for (int n = 0; f->groups && n < gn_world_nodes(f->world); n++)
			connects &= f->groups[n * f->rail_count + i] == f->groups[i];
		if (connects)
			len += (size_t)snprintf(out + len, size_bytes - len, "%s%s", len ? "," : "", f->rails[i].device);
	}
	return status;
}

/* --- the warning --- */

#define HOSTS_MAX 8

static int largest_group(const int *groups, int nodes, int stride)
{
	int best = 0, most = 0;

	for (int n = 0; n < nodes; n++) {
		int same = 0;

		for (int k = 0; k < nodes; k++)
			same += groups[k * stride] == groups[n * stride];
		if (same > most) {
			most = same;
			best = groups[n * stride];
		}
	}
	return best;
}

static void describe_rail(const struct gn_ucx *f, int rail, struct gn_strbuf *out)
{
	int nodes = gn_world_nodes(f->world), listed = 0, common = largest_group(f->groups + rail, nodes, f->rail_count);

	for (int n = 0; n < nodes; n++) {
		if (f->groups[n * f->rail_count + rail] == common)
			continue;
		if (!listed)
			gn_strbuf_printf(out, "%srail %s does not connect ", out->len ? "; " : "", f->rails[rail].device);
		if (listed++ < HOSTS_MAX)
			gn_strbuf_printf(out, "%s%s", listed > 1 ? ", " : "", gn_world_host_of(f->world, leader_of(f->world, n)));
	}
	if (listed > HOSTS_MAX)
		gn_strbuf_printf(out, " and %d more", listed - HOSTS_MAX);
	if (listed)
		gn_strbuf_puts(out, " to the other nodes and is not used between them");
}

void gn_ucx_describe_excluded(const struct gn_ucx *f, struct gn_strbuf *out)
{
	for (int i = 0; i < f->rail_count && f->groups; i++)
		describe_rail(f, i, out);
}
