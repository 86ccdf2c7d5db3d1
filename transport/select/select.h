/* Chooses the algorithm of a collective, and into how many pieces it cuts messages: the cheapest by the costs of this fabric
 * (cost.h), which are what gannet tune measured, or a guess.
 *
 * Every algorithm of the collective is a candidate, with a few piece sizes: as long as messages are longer than those, and a
 * rank has GN_SELECT_STEPS_MAX steps at most. Closed forms, each by some ranks' uncut schedules, put them in order; the most
 * promising are then simulated (sim.h), as far as a few milliseconds go. Many ranks are too much to simulate: closed forms decide.
 * What counts is an operation's time and a GN_SELECT_USES-th of what it takes to connect to its peers for the first time.
 * A pure function of its arguments: ranks that agree on those (gn_tuning_table_agree) choose alike. Thread safety: no state.
 */
#ifndef GN_TRANSPORT_SELECT_SELECT_H
#define GN_TRANSPORT_SELECT_SELECT_H

#include "transport/schedule/algo.h"
#include "transport/select/cost.h"

/* A job does what matters to it at least so often: connections that are made once are paid for by as many. */
#define GN_SELECT_USES 1000
/* Of a schedule whose messages are cut: to write it, and to keep it, must not take long. */
#define GN_SELECT_STEPS_MAX 65536

struct gn_select_args {
	enum gn_collective what;
	size_t bytes;		       /* of the whole buffer */
	const struct gn_shm_map *map; /* all ranks */
	const struct gn_cost *cost;
	const char *algo;	       /* this one only; NULL or "auto": any */
	size_t piece_bytes;	       /* messages are cut into pieces of so many; 0: any of gn_select_piece_bytes */
};

struct gn_choice {
	const struct gn_algorithm *algorithm;
	uint32_t pieces, chunks;
	double predicted_s;
	double connecting_s; /* before the first time, for a rank without connections; not in predicted_s */
	int simulated; /* else by closed form */
};

/* The sizes of pieces that come into question; the last is beyond any message: one piece. */
const size_t *gn_select_piece_bytes(int *count);

/* GN_ERR_USAGE when there is no algorithm of that name; the message lists those there are. */
enum gn_status gn_select(const struct gn_select_args *args, struct gn_choice *out, struct gn_err *err);

/* Of what was tried on another number of nodes, the picks that take less than half as long again as what the model would take on the
 * nodes of map stay; without a time of theirs. Takes milliseconds for each. */
enum gn_status gn_select_keep_picks(struct gn_cost *c, const struct gn_shm_map *map, struct gn_err *err);

struct gn_select_form {
	double seconds, connecting_s;
	double steps; /* of the busiest rank */
};
/* The closed form for each of count numbers of pieces: what the busiest of some ranks sends, receives and sums, and a latency for
 * each round. Exact for none, and of the right order for all. */
enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, const uint32_t *pieces,
				     int count, struct gn_select_form *out, struct gn_err *err);

#endif
