/* The closed form of one algorithm's time: the critical path of its first slices (critical_path.h), and a constant time for each of
 * the others. Private to select/.
 *
 * Thread safety: one thread at a time per object. Local; nothing blocks.
 */
#ifndef GN_TRANSPORT_SELECT_SELECT_COST_MODEL_H
#define GN_TRANSPORT_SELECT_SELECT_COST_MODEL_H

#include "transport/select/cost.h"

struct gn_cost_model;

/* map and cost are borrowed and outlive *out. */
enum gn_status gn_cost_model_create(const struct gn_algorithm *a, const struct gn_node_map *map, const struct gn_cost *cost,
				    struct gn_cost_model **out, struct gn_err *err);
/* NULL is fine. */
void gn_cost_model_destroy(struct gn_cost_model *m);
/* A lower bound of the seconds with so many slices: the path of one slice, and what the busiest processor or port has to do; *guess
 * = an estimate: the path of the first slice, and what the busiest has to do for the others. */
double gn_cost_model_bound(struct gn_cost_model *m, double bytes, uint32_t pieces, double *guess);
/* *out = seconds with so many slices. */
enum gn_status gn_cost_model_seconds(struct gn_cost_model *m, double bytes, uint32_t pieces, double *out, struct gn_err *err);
/* How many steps gn_cost_model_seconds walks. */
double gn_cost_model_steps(const struct gn_cost_model *m, uint32_t pieces);
/* Messages of the busiest rank with one slice. */
double gn_cost_model_messages(const struct gn_cost_model *m);
/* Seconds to connect a rank to its peers, once. */
double gn_cost_model_connect_s(const struct gn_cost_model *m);

#endif
