#include "transport/sim/sim_net.h"

#include "src/base/philox.h"

#include <math.h>
#include <stdlib.h>

/* The simulated rank that represents a rank of the whole machine. */
static int simulated(const struct gn_sim_net *n, int rank)
{
	return rank % n->ranks;
}

static int node_of(const struct gn_sim_net *n, int rank)
{
	return gn_sim_node_of(n->t, rank);
}

size_t gn_sim_net_port(const struct gn_sim_net *n, int rank)
{
	int node = node_of(n, simulated(n, rank)), local = n->t->map ? n->t->map->local[rank] : rank % n->t->ranks_per_node;

	return (size_t)node * (size_t)n->t->rails + (size_t)(local % n->t->rails);
}

static int leaf_of(const struct gn_sim_net *n, int rank)
{
	return n->t->leaf_nodes ? node_of(n, rank) / n->t->leaf_nodes : 0;
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

enum gn_status gn_sim_net_create(const struct gn_sim_topology *t, int ranks, struct gn_sim_net *n, struct gn_err *err)
{
	struct gn_sim_net new = {.t = t, .ranks = ranks};
	size_t nodes = (size_t)(t->map ? t->map->nodes : ranks / t->ranks_per_node), ports = nodes * (size_t)t->rails;

	new.processor = calloc((size_t)ranks, sizeof *new.processor);
	new.in_node = calloc((size_t)ranks, sizeof *new.in_node);
	new.port_out = calloc(ports, sizeof *new.port_out);
	new.port_in = calloc(ports, sizeof *new.port_in);
	new.leaf_up = calloc(nodes, sizeof *new.leaf_up);
	new.leaf_down = calloc(nodes, sizeof *new.leaf_down);
	if (!new.processor || !new.in_node || !new.port_out || !new.port_in || !new.leaf_up || !new.leaf_down) {
		gn_sim_net_release(&new);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a machine of %d ranks", ranks);
	}
	for (size_t i = 0; i < ports; i++)
		new.port_out[i].tokens = new.port_in[i].tokens = t->burst_bytes;
	*n = new;
	return GN_OK;
}

void gn_sim_net_release(struct gn_sim_net *n)
{
	free(n->processor);
	free(n->in_node);
	free(n->port_out);
	free(n->port_in);
	free(n->leaf_up);
	free(n->leaf_down);
	*n = (struct gn_sim_net){0};
}

double gn_sim_net_jitter(const struct gn_sim_net *n, int rank, uint32_t draw)
{
	struct gn_rng rng;

	if (n->t->jitter <= 0)
		return 1;
	gn_rng_init(&rng, n->t->seed, GN_RNG_SIM, (uint32_t)rank, draw);
	return 1 + n->t->jitter * fabs(gn_rng_normal(&rng));
}

void gn_sim_net_delay_stragglers(struct gn_sim_net *n)
{
	struct gn_rng rng;

	gn_rng_init(&rng, n->t->seed, GN_RNG_SIM, UINT32_MAX, 0);
	for (int k = 0; k < n->t->stragglers; k++)
		n->processor[gn_rng_below(&rng, (uint32_t)n->ranks)] = n->t->straggler_s;
}

double gn_sim_net_work(struct gn_sim_net *n, int rank, double now, double seconds)
{
	double *free_at = &n->processor[simulated(n, rank)];

	*free_at = later(now, *free_at) + seconds;
	return *free_at;
}

int gn_sim_net_same_node(const struct gn_sim_net *n, int from, int to)
{
	return node_of(n, from) == node_of(n, to);
}

/* NULL: the topology's values for all lengths apply. */
static const struct gn_sim_range *range_of(const struct gn_sim_net *n, int from, int to, double bytes)
{
	const struct gn_sim_path *p = gn_sim_net_same_node(n, from, to) ? &n->t->node : &n->t->link;

	return p->count ? gn_sim_range_of(p, bytes) : NULL;
}

double gn_sim_net_latency(const struct gn_sim_net *n, int from, int to, double bytes)
{
	const struct gn_sim_range *r = range_of(n, from, to, bytes);

	if (r)
		return r->latency_s + r->s_per_byte * bytes;
	return gn_sim_net_same_node(n, from, to) ? n->t->node_latency_s : n->t->link_latency_s;
}

double gn_sim_net_send_cost(const struct gn_sim_net *n, int from, int to, double bytes)
{
	const struct gn_sim_range *r = range_of(n, from, to, bytes);

	return r ? r->send_s : n->t->send_overhead_s;
}

double gn_sim_net_receive_cost(const struct gn_sim_net *n, int from, int to, double bytes)
{
	const struct gn_sim_range *r = range_of(n, from, to, bytes);

	return r ? r->receive_s : n->t->receive_overhead_s;
}

int gn_sim_net_is_eager(const struct gn_sim_net *n, int from, int to, double bytes)
{
	const struct gn_sim_path *p = gn_sim_net_same_node(n, from, to) ? &n->t->node : &n->t->link;

	return bytes <= (p->count ? p->eager_bytes : n->t->eager_bytes);
}

/* Sends bytes through a port from `begin` on; returns the end. During a burst tokens are used at the difference of the rates. */
static double serve(const struct gn_sim_net *n, struct gn_sim_port *p, double begin, double bytes, double stretch)
{
	double rate = n->t->link_bytes_per_s, burst = n->t->burst_bytes_per_s, burst_left;

	if (n->t->burst_bytes <= 0 || burst <= rate)
		return begin + bytes / rate * stretch;
	p->tokens += (begin - p->filled_at) * rate;
	if (p->tokens > n->t->burst_bytes)
		p->tokens = n->t->burst_bytes;
	burst_left = p->tokens / (1 - rate / burst);
	if (bytes <= burst_left) {
		p->tokens -= bytes * (1 - rate / burst);
		p->filled_at = begin + bytes / burst;
	} else {
		p->tokens = 0;
		p->filled_at = begin + burst_left / burst + (bytes - burst_left) / rate;
	}
	return begin + (p->filled_at - begin) * stretch;
}

static int crosses(const struct gn_sim_net *n, int from, int to)
{
	return n->t->leaf_nodes && n->t->oversubscription > 0 && leaf_of(n, from) != leaf_of(n, to);
}

/* The bandwidth of a leaf switch's uplink or downlink in bytes/s. */
static double leaf_rate(const struct gn_sim_net *n)
{
	return n->t->link_bytes_per_s * n->t->rails * n->t->leaf_nodes / n->t->oversubscription;
}

void gn_sim_net_send(struct gn_sim_net *n, int from, int to, double message, double bytes, double now, double stretch,
		     double *left, double *head)
{
	double latency = gn_sim_net_latency(n, from, to, message), begin;
	struct gn_sim_port *port;

	if (gn_sim_net_same_node(n, from, to)) {
		*left = now + bytes / n->t->node_bytes_per_s * stretch;
		*head = now + latency;
		return;
	}
	port = &n->port_out[gn_sim_net_port(n, from)];
	begin = later(now, port->free_at);
	*left = serve(n, port, begin, bytes, stretch);
	port->free_at = later(*left, begin + n->t->gap_s);
	if (crosses(n, from, to)) {
		double *up = &n->leaf_up[leaf_of(n, simulated(n, from))];

		begin = later(begin, *up);
		*up = begin + bytes / leaf_rate(n);
	}
	*head = begin + latency;
}

double gn_sim_net_signal(const struct gn_sim_net *n, int from, int to, double bytes, double now)
{
	const struct gn_sim_range *r = range_of(n, from, to, bytes);

	return now + (r ? r->latency_s : gn_sim_net_latency(n, from, to, bytes));
}

double gn_sim_net_arrive(struct gn_sim_net *n, int from, int to, double bytes, double now, double stretch)
{
	double *in_node = &n->in_node[simulated(n, to)], begin, end;
	struct gn_sim_port *port;

	if (gn_sim_net_same_node(n, from, to))
		return *in_node = later(now, *in_node) + bytes / n->t->node_bytes_per_s * stretch;
	if (crosses(n, from, to)) {
		double *down = &n->leaf_down[leaf_of(n, simulated(n, to))];

		now = later(now, *down);
		*down = now + bytes / leaf_rate(n);
	}
	port = &n->port_in[gn_sim_net_port(n, to)];
	begin = later(now, port->free_at);
	end = serve(n, port, begin, bytes, stretch);
	port->free_at = later(end, begin + n->t->gap_s);
	return end;
}

int gn_sim_ranks(const struct gn_sim_topology *t)
{
	return t->map ? t->map->size : t->nodes * t->ranks_per_node;
}

int gn_sim_node_of(const struct gn_sim_topology *t, int rank)
{
	return t->map ? t->map->node[rank] : rank / t->ranks_per_node;
}

enum gn_status gn_sim_topology_check(const struct gn_sim_topology *t, struct gn_err *err)
{
	int64_t ranks = t->map ? t->map->size : (int64_t)t->nodes * t->ranks_per_node;

	if (t->map && (t->leaf_nodes || t->rails < 1 || t->rails > t->map->smallest))
		return gn_err_set(err, GN_ERR_USAGE, "%d rails and leaf switches of %d nodes with ranks on nodes as mapped: at least one "
				  "rail, at most one for each rank, and no leaf switches",
				  t->rails, t->leaf_nodes);
	if (!t->map && (t->nodes < 1 || t->ranks_per_node < 1 || t->rails < 1 || ranks > 1 << 17))
		return gn_err_set(err, GN_ERR_USAGE, "%d nodes of %d ranks and %d rails: at least one of each, and at most 131072 "
				  "ranks",
				  t->nodes, t->ranks_per_node, t->rails);
	if (!(t->link_bytes_per_s > 0) || !(t->node_bytes_per_s > 0) || !(t->link_latency_s >= 0) ||
	    !(t->node_latency_s >= 0) || !(t->send_overhead_s >= 0) || !(t->receive_overhead_s >= 0) || !(t->gap_s >= 0) ||
	    !(t->reduce_s_per_byte >= 0) || !(t->eager_bytes >= 0) || !(t->jitter >= 0) || !(t->straggler_s >= 0))
		return gn_err_set(err, GN_ERR_USAGE, "rates must be above zero, times and sizes must not be negative");
	if (t->leaf_nodes < 0 || (t->leaf_nodes && !(t->oversubscription >= 1)))
		return gn_err_set(err, GN_ERR_USAGE, "leaf switches of %d nodes, oversubscription %g: it must be at least 1",
				  t->leaf_nodes, t->oversubscription);
	if (t->stragglers < 0 || t->stragglers > ranks)
		return gn_err_set(err, GN_ERR_USAGE, "%d stragglers among %lld ranks", t->stragglers, (long long)ranks);
	return GN_OK;
}

const struct gn_sim_range *gn_sim_range_of(const struct gn_sim_path *p, double bytes)
{
	int i = p->count - 1;

	while (i > 0 && bytes < p->ranges[i].from_bytes)
		i--;
	return &p->ranges[i];
}
