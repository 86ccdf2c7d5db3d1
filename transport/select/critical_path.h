/* The time of a collective by its critical path: walks the schedules of the ranks once, in the order of their steps, and gives each
 * message its latency, the time of both processors, and its turn at the ports that the ranks of a node share. The same model as the
 * simulator's (sim.h), without its queue of events: requests that reach a processor or a port out of order fill its gaps.
 *
 * If the nodes have equally many consecutive ranks, and the algorithm is symmetric to a rotation or an exchange of the nodes, the
 * ranks of one node stand for all. Otherwise all ranks are walked; or, if they have too many steps and the algorithm is rotation
 * symmetric, those of the largest node.
 *
 * Thread safety: one thread at a time per object. Local; nothing blocks. Private to select/.
 */
#ifndef GN_TRANSPORT_SELECT_CRITICAL_PATH_H
#define GN_TRANSPORT_SELECT_CRITICAL_PATH_H

#include "transport/schedule/algo.h"
#include "transport/select/cost.h"

struct gn_critical_path;

/* Writes the schedules with `pieces` slices and pairs their messages. map and cost are borrowed and outlive *out. */
enum gn_status gn_critical_path_create(const struct gn_algorithm *a, const struct gn_node_map *map, const struct gn_cost *cost,
				       uint32_t pieces, struct gn_critical_path **out, struct gn_err *err);
/* NULL is fine. */
void gn_critical_path_destroy(struct gn_critical_path *p);
/* Seconds until the slowest walked rank completes a buffer of `bytes`, each chunk an equal share of it. */
double gn_critical_path_seconds(struct gn_critical_path *p, double bytes);
/* What the busiest processor or port had to do in the last walk. */
double gn_critical_path_busy_s(const struct gn_critical_path *p);
/* Of all walked ranks. */
double gn_critical_path_steps(const struct gn_critical_path *p);
/* Messages of the busiest walked rank. */
double gn_critical_path_messages(const struct gn_critical_path *p);
/* Seconds to connect the walked rank with the most costly peers to them, once. */
double gn_critical_path_connect_s(const struct gn_critical_path *p);

#endif
