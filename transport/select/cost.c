#include "transport/select/cost.h"

#include <math.h>
#include <string.h>

/* gannet tune measures lengths by this factor. */
#define TRIAL_FACTOR 4

/* Estimates by kind of transport: rounded values published for hardware of 2015 to 2025. */
struct kind {
	const char *lane; /* prefix; the first entry found in the lanes is used */
	double latency_s, overhead_s, bytes_per_s, share; /* share: payload rate by link rate */
	double eager_bytes, connect_s; /* rc creates a queue pair and takes it through its states; dc, ud need an address handle */
};

static const struct kind kinds[] = {
	{"rc_", 1.5e-6, 0.3e-6, 0, 0.95, 8192, 1e-3},
	{"dc_", 1.5e-6, 0.3e-6, 0, 0.95, 8192, 1e-4},
	{"ud_", 2.5e-6, 0.5e-6, 0, 0.80, 8192, 1e-4},
	{"tcp/", 15e-6, 4e-6, 0, 0.94, 65536, 3e-4},
	{"posix/", 0.3e-6, 0.2e-6, 6e9, 0, 8192, 5e-5},
	{"sysv/", 0.3e-6, 0.2e-6, 6e9, 0, 8192, 5e-5},
	{"cma/", 0.5e-6, 0.3e-6, 6e9, 0, 8192, 5e-5},
};

static const struct kind *kind_of_lanes(const char *lanes)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strstr(lanes, kinds[i].lane))
			return &kinds[i];
	return &kinds[3];
}

/* The rate of the fastest device in the lanes, in Gbit/s; 0: unknown. */
static double link_gbit(const struct gn_devices *devices, const char *lanes)
{
	double most = 0;

	for (int i = 0; devices && i < devices->count; i++) {
		const char *at = strstr(lanes, devices->items[i].name);

		if (at && at > lanes && at[-1] == '/')
			most = fmax(most, devices->items[i].gbit_per_s);
	}
	return most;
}

static void estimate_path(const struct gn_devices *devices, const char *lanes, struct gn_cost_path *out)
{
	const struct kind *k = kind_of_lanes(lanes);
	double gbit = link_gbit(devices, lanes);

	*out = (struct gn_cost_path){.path = {.count = 1, .eager_bytes = k->eager_bytes}, .connect_s = k->connect_s};
	out->path.ranges[0] = (struct gn_sim_range){0, k->latency_s, 0, k->overhead_s, k->overhead_s};
	/* unknown link rate: 1 Gbit/s; shared memory has no link */
	out->bytes_per_s = k->share > 0 ? (gbit > 0 ? gbit : 1) * 1e9 / 8 * k->share : k->bytes_per_s;
	/* one TCP stream does not saturate faster links */
	if (k == &kinds[3])
		out->bytes_per_s = fmin(out->bytes_per_s, 3e9);
	strncpy(out->lanes, lanes, sizeof out->lanes - 1);
}

double gn_cost_connect_s(const char *lanes)
{
	return kind_of_lanes(lanes)->connect_s;
}

void gn_cost_guess(const struct gn_devices *devices, const char *node_lanes, const char *link_lanes, struct gn_cost *out)
{
	*out = (struct gn_cost){.reduce_bytes_per_s = 8e9};
	estimate_path(devices, *node_lanes ? node_lanes : "posix/", &out->node);
	estimate_path(devices, link_lanes, &out->link);
	if (!*node_lanes)
		out->node.lanes[0] = 0;
}

void gn_cost_topology(const struct gn_cost *c, int nodes, int ranks_per_node, struct gn_sim_topology *out)
{
	*out = (struct gn_sim_topology){
		.nodes = nodes, .ranks_per_node = ranks_per_node, .rails = 1, .link_bytes_per_s = c->link.bytes_per_s,
		.node_bytes_per_s = c->node.bytes_per_s, .oversubscription = 1, .link = c->link.path, .node = c->node.path,
		.burst_bytes = c->link.burst_bytes, .burst_bytes_per_s = c->link.burst_bytes_per_s,
		.reduce_s_per_byte = 1 / c->reduce_bytes_per_s, .seed = 1, .streams = !strncmp(c->link.lanes, "tcp", 3),
	};
}

double gn_cost_port_s(const struct gn_cost_path *p, double bytes)
{
	double fast;

	if (p->burst_bytes <= 0 || p->burst_bytes_per_s <= p->bytes_per_s)
		return bytes / p->bytes_per_s;
	fast = p->burst_bytes / (1 - p->bytes_per_s / p->burst_bytes_per_s);
	return bytes <= fast ? bytes / p->burst_bytes_per_s
			     : fast / p->burst_bytes_per_s + (bytes - fast) / p->bytes_per_s;
}

double gn_cost_message_s(const struct gn_cost_path *p, double bytes)
{
	const struct gn_sim_range *r = gn_sim_range_of(&p->path, bytes);
	/* rendezvous takes three messages */
	int latencies = bytes > p->path.eager_bytes ? 3 : 1;

	return r->send_s + latencies * r->latency_s + r->s_per_byte * bytes + gn_cost_port_s(p, bytes) + r->receive_s;
}

const struct gn_cost_pick *gn_cost_pick(const struct gn_cost *c, double bytes)
{
	const struct gn_cost_pick *best = NULL;
	double distance = 2;

	for (int i = 0; i < c->pick_count; i++) {
		double ratio = bytes > c->picks[i].bytes ? bytes / c->picks[i].bytes : c->picks[i].bytes / bytes;

		if (ratio > distance)
			continue;
		distance = ratio;
		best = &c->picks[i];
	}
	return best;
}

const struct gn_cost_pick *gn_cost_trial(const struct gn_cost *c, const char *algorithm, double bytes, int *near)
{
	const struct gn_cost_pick *best = NULL;
	double distance = INFINITY;

	for (int i = 0; i < c->pick_count; i++) {
		double ratio = fmax(bytes / c->picks[i].bytes, c->picks[i].bytes / bytes);

		if (!(c->picks[i].seconds > 0) || strcmp(c->picks[i].algorithm, algorithm) != 0 || ratio >= distance)
			continue;
		distance = ratio;
		best = &c->picks[i];
	}
	*near = distance <= TRIAL_FACTOR;
	return best;
}

void gn_cost_use_at(struct gn_cost *c, int nodes)
{
	double ratio = c->tuned_nodes > nodes ? (double)c->tuned_nodes / nodes : (double)nodes / (c->tuned_nodes ? c->tuned_nodes : nodes);

	if (!c->tuned_nodes || c->tuned_nodes == nodes)
		return;
	if (ratio > GN_COST_NODES_APART)
		c->pick_count = 0;
	for (int i = 0; i < c->pick_count; i++)
		c->picks[i].seconds = 0;
}

static int in_range(double value, double least, double most)
{
	return value >= least && value <= most;
}

static enum gn_status check_path(const struct gn_cost_path *p, const char *name, struct gn_err *err)
{
	const struct gn_sim_path *path = &p->path;

	if (path->count < 1 || path->count > GN_SIM_RANGES)
		return gn_err_set(err, GN_ERR_DATA, "%s: %d ranges, not 1 to %d", name, path->count, GN_SIM_RANGES);
	if (!in_range(p->bytes_per_s, 1, 1e15) || !in_range(p->burst_bytes, 0, 1e15) ||
	    !in_range(p->burst_bytes_per_s, 0, 1e15) || !in_range(path->eager_bytes, 0, 1e15))
		return gn_err_set(err, GN_ERR_DATA, "%s: a rate or a size is out of range", name);
	for (int i = 0; i < path->count; i++) {
		const struct gn_sim_range *r = &path->ranges[i];

		if (!in_range(r->from_bytes, 0, 1e15) || (i ? r->from_bytes <= r[-1].from_bytes : r->from_bytes > 0))
			return gn_err_set(err, GN_ERR_DATA, "%s: from_bytes of the ranges does not begin at 0 and ascend", name);
		if (!in_range(r->latency_s, 0, 100) || !in_range(r->s_per_byte, 0, 1) || !in_range(r->send_s, 0, 100) ||
		    !in_range(r->receive_s, 0, 100))
			return gn_err_set(err, GN_ERR_DATA, "%s: a time of the range from %g bytes is out of range", name,
					  r->from_bytes);
	}
	return GN_OK;
}

static enum gn_status check_picks(const struct gn_cost *c, struct gn_err *err)
{
	if (c->pick_count < 0 || c->pick_count > GN_COST_PICKS)
		return gn_err_set(err, GN_ERR_DATA, "allreduce: %d lengths; there are at most %d", c->pick_count, GN_COST_PICKS);
	for (int i = 0; i < c->pick_count; i++)
		if (!in_range(c->picks[i].bytes, 1, 1e15) || !in_range(c->picks[i].seconds, 0, 1e6) ||
		    !in_range(c->picks[i].piece_bytes, 0, 1e15))
			return gn_err_set(err, GN_ERR_DATA, "allreduce: a length or a time is out of range");
	return GN_OK;
}

enum gn_status gn_cost_check(const struct gn_cost *c, struct gn_err *err)
{
	enum gn_status status = check_path(&c->node, "node", err);

	if (!status)
		status = check_path(&c->link, "link", err);
	if (!status && !in_range(c->reduce_bytes_per_s, 1, 1e15))
		status = gn_err_set(err, GN_ERR_DATA, "reduce_bytes_per_s is out of range");
	return status ? status : check_picks(c, err);
}
