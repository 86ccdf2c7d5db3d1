#include "transport/sim/sim_topology.h"

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
