/* Selects the algorithm of a collective and the slices of its messages (called pieces here): the fastest by the costs of the fabric
 * (cost.h), which gannet tune measured or which are estimated.
 *
 * Candidates are all algorithms of the collective, each with a few slice sizes, as long as messages are longer than a slice and a
 * rank has at most GN_SELECT_STEPS_MAX steps. Their times are closed forms: the critical path of the first slices through the
 * schedules of one node's ranks, or of all ranks where they differ (critical_path.h), and a constant time for each further slice.
 * Nothing is simulated. The cost of a candidate is its time plus the time to connect to its peers divided by GN_SELECT_USES.
 * tests/transport/selection_grid compares the selections with the simulator (sim.h).
 *
 * A pure function of its arguments: ranks that agree on them (gn_tuning_table_agree) select the same. Thread safety: no state; any
 * thread. Does not block. Processor time for an allreduce, as seen on one machine: 15 to 50 us up to 256 KiB on 8 ranks and about
 * 1 ms for 16 MiB; 2 ms up to 256 KiB on 512 ranks and 10 to 20 ms above; up to 40 ms where all of hundreds of ranks are walked.
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
};

/* The candidate slice sizes; the last is larger than any message: one slice. */
const size_t *gn_select_piece_bytes(int *count);

/* GN_ERR_USAGE: unknown algorithm; the message lists the known ones. */
enum gn_status gn_select(const struct gn_select_args *args, struct gn_choice *out, struct gn_err *err);

/* Adapts costs that were measured on another number of nodes to the nodes of map (gn_cost_use_at), and keeps the picks whose
 * predicted time there is less than 1.5 times that of the model's selection. Takes as long as two selections for each pick. */
enum gn_status gn_select_keep_picks(struct gn_cost *c, const struct gn_node_map *map, struct gn_err *err);

struct gn_select_form {
	double seconds, connecting_s;
	double steps; /* of the busiest rank */
};
/* The closed-form cost of one algorithm with so many slices. */
enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, uint32_t pieces,
				     struct gn_select_form *out, struct gn_err *err);

#endif
