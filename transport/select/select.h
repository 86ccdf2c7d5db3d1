/* Selects the algorithm of a collective and the slices of its messages (called pieces here): the fastest by the costs of the fabric
 * (cost.h), which gannet tune measured or which are estimated.
 *
 * Candidates are all algorithms of the collective, each with a few slice sizes, as long as messages are longer than a slice and a
 * rank has at most GN_SELECT_STEPS_MAX steps. A closed-form cost model, evaluated on the schedules of some ranks, orders them; the
 * best are then simulated (sim.h), within a budget of a few milliseconds. With too many ranks to simulate the closed form decides.
 * The cost of a candidate is its time plus the time to connect to its peers divided by GN_SELECT_USES.
 *
 * A pure function of its arguments: ranks that agree on them (gn_tuning_table_agree) select the same. Thread safety: no state; any
 * thread. Does not block, but may compute for milliseconds.
 */
#ifndef GN_TRANSPORT_SELECT_SELECT_H
#define GN_TRANSPORT_SELECT_SELECT_H

#include "transport/schedule/algo.h"
#include "transport/select/cost.h"

/* Runs of an operation in a job, over which the time of its connections is spread. */
#define GN_SELECT_USES 1000
/* The longest schedule with more than one slice: limits the time and memory to build it. */
#define GN_SELECT_STEPS_MAX 65536

struct gn_select_args {
	enum gn_collective what;
	size_t bytes;		       /* of the whole buffer */
	const struct gn_node_map *map; /* all ranks */
	const struct gn_cost *cost;
	const char *algo;	       /* by name; NULL or "auto": any */
	size_t piece_bytes;	       /* the slice size; 0: any of gn_select_piece_bytes */
};

struct gn_choice {
	const struct gn_algorithm *algorithm;
	uint32_t pieces, chunks;
	double predicted_s;
	double connecting_s; /* to connect a rank without connections; not part of predicted_s */
	int simulated;	     /* 0: predicted by the closed form */
};

/* The candidate slice sizes; the last is larger than any message: one slice. */
const size_t *gn_select_piece_bytes(int *count);

/* GN_ERR_USAGE: unknown algorithm; the message lists the known ones. */
enum gn_status gn_select(const struct gn_select_args *args, struct gn_choice *out, struct gn_err *err);

/* Adapts costs that were measured on another number of nodes to the nodes of map (gn_cost_use_at), and keeps the picks whose
 * predicted time there is less than 1.5 times that of the model's selection. Takes milliseconds for each pick. */
enum gn_status gn_select_keep_picks(struct gn_cost *c, const struct gn_node_map *map, struct gn_err *err);

struct gn_select_form {
	double seconds, connecting_s;
	double steps; /* of the busiest rank */
};
/* The closed-form cost for each of `count` numbers of slices: bytes and messages of the busiest of some sampled ranks, and one
 * latency for each round. An estimate of the right order of magnitude. */
enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, const uint32_t *pieces,
				     int count, struct gn_select_form *out, struct gn_err *err);

#endif
