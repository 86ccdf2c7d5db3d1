/* Chooses the algorithm of a collective, and into how many pieces it cuts messages: the cheapest by the costs of this fabric
 * (cost.h), which are what gannet tune measured, or a guess.
 *
 * Every algorithm of the collective is a candidate, with a few piece sizes. Closed forms put them in order; the most promising
 * are then simulated (sim.h), as far as a few milliseconds go. A pure function of its arguments: ranks that agree on those
 * (gn_tuning_agree) choose alike. Thread safety: no state.
 */
#ifndef GN_TRANSPORT_CHOOSE_H
#define GN_TRANSPORT_CHOOSE_H

#include "transport/algo.h"
#include "transport/cost.h"

struct gn_choose_args {
	enum gn_collective what;
	size_t bytes;		       /* of the whole buffer */
	const struct gn_node_map *map; /* all ranks */
	const struct gn_cost *cost;
	const char *algo;	       /* this one only; NULL or "auto": any */
	size_t piece_bytes;	       /* messages are cut into pieces of so many; 0: any of gn_choose_piece_bytes */
};

struct gn_choice {
	const struct gn_algorithm *algorithm;
	uint32_t pieces, chunks;
	double predicted_s;
	int simulated; /* else by closed form */
};

/* The sizes of pieces that come into question; the last is beyond any message: one piece. */
const size_t *gn_choose_piece_bytes(int *count);

/* GN_ERR_USAGE when there is no algorithm of that name; the message lists those there are. */
enum gn_status gn_choose(const struct gn_choose_args *args, struct gn_choice *out, struct gn_err *err);

/* The closed form: what the busiest of some ranks sends, receives and sums, and a latency for each round. Exact for none, and
 * of the right order for all. */
enum gn_status gn_choose_closed_form(const struct gn_choose_args *args, const struct gn_algorithm *a, uint32_t pieces,
				     double *out_s, struct gn_err *err);

#endif
