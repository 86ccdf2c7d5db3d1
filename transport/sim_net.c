#include "transport/sim_net.h"

#include "src/base/philox.h"

#include <math.h>
#include <stdlib.h>

/* In the folded machine, ranks of other nodes are those of the simulated ones. */
static int here(const struct gn_sim_net *n, int rank)
{
	return rank % n->ranks;
}

static int node_of(const struct gn_sim_net *n, int rank)
{
	return rank / n->t->ranks_per_node;
}

static size_t port_of(const struct gn_sim_net *n, int rank)
{
	int node = node_of(n, here(n, rank));

	return (size_t)node * (size_t)n->t->rails + (size_t)(rank % n->t->ranks_per_node % n->t->rails);
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
	size_t nodes = (size_t)(ranks / t->ranks_per_node), ports = nodes * (size_t)t->rails;

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

double gn_sim_net_work(struct gn_sim_net *n, int rank, double now, double seconds)
{
	double *free_at = &n->processor[here(n, rank)];

	*free_at = later(now, *free_at) + seconds;
	return *free_at;
}

double gn_sim_net_latency(const struct gn_sim_net *n, int from, int to)
{
	return node_of(n, from) == node_of(n, to) ? n->t->node_latency_s : n->t->link_latency_s;
}

static int crosses(const struct gn_sim_net *n, int from, int to)
{
	return n->t->leaf_nodes && n->t->oversubscription > 0 && leaf_of(n, from) != leaf_of(n, to);
}

/* What a leaf's way up or down carries a second. */
static double leaf_rate(const struct gn_sim_net *n)
{
	return n->t->link_bytes_per_s * n->t->rails * n->t->leaf_nodes / n->t->oversubscription;
}

void gn_sim_net_send(struct gn_sim_net *n, int from, int to, double bytes, double now, double stretch, double *left,
		     double *head)
{
	double *port, begin, seconds;

	if (node_of(n, from) == node_of(n, to)) {
		*left = now + bytes / n->t->node_bytes_per_s * stretch;
		*head = now + n->t->node_latency_s;
		return;
	}
	port = &n->port_out[port_of(n, from)];
	begin = later(now, *port);
	seconds = bytes / n->t->link_bytes_per_s * stretch;
	*port = begin + later(seconds, n->t->gap_s);
	*left = begin + seconds;
	if (crosses(n, from, to)) {
		double *up = &n->leaf_up[leaf_of(n, here(n, from))];

		begin = later(begin, *up);
		*up = begin + bytes / leaf_rate(n);
	}
	*head = begin + n->t->link_latency_s;
}

double gn_sim_net_arrive(struct gn_sim_net *n, int from, int to, double bytes, double now, double stretch)
{
	double *port, begin;

	if (node_of(n, from) == node_of(n, to)) {
		port = &n->in_node[here(n, to)];
		*port = later(now, *port) + bytes / n->t->node_bytes_per_s * stretch;
		return *port;
	}
	if (crosses(n, from, to)) {
		double *down = &n->leaf_down[leaf_of(n, here(n, to))];

		now = later(now, *down);
		*down = now + bytes / leaf_rate(n);
	}
	port = &n->port_in[port_of(n, to)];
	begin = later(now, *port);
	*port = begin + later(bytes / n->t->link_bytes_per_s * stretch, n->t->gap_s);
	return begin + bytes / n->t->link_bytes_per_s * stretch;
}
