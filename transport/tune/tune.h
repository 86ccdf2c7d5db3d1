/* Measures what communication costs here: collective, between pairs of ranks of one node and of two, over a fabric of its own.
 *
 * In each pair one rank drives and the other answers; all others wait as they would within a collective, so that where ranks
 * share processors the figures hold what that costs. Measured are: the longest message that does not wait for its receiver;
 * the rate of a stream by all rails together, and how much goes faster at first (shaped links); one-way times by length; what sending and receiving
 * cost the processors; and sums, on all ranks at once. tune_fit.h makes parameters of them.
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_H
#define GN_TRANSPORT_TUNE_TUNE_H

#include "transport/bootstrap/world.h"
#include "transport/select/tuning_table.h"

struct gn_comm;

struct gn_tune_options {
	const char *transport; /* as in comm.h */
	double seconds;	       /* for each length and pair; 0: 0.1 */
	size_t max_bytes;      /* the longest message; 0: 4 MiB */
	int rails;	       /* as in comm.h */
	int pairs;	       /* of nodes, and of ranks of a node, at most; 0: 3 */
};

/* Collective; the same result on all ranks. Blocks for some seconds. */
enum gn_status gn_tune_measure(struct gn_world *world, const struct gn_tune_options *options, struct gn_tune_result *out,
			       struct gn_err *err);

/* Collective; the same picks on all ranks. cost: what the communicator was made with. seconds: roughly, for each algorithm and
 * length; what takes longer than that once is not tried. max_bytes: the longest. Sets cost->picks and pick_count: none where all
 * ranks share memory, since no messages are sent there. Blocks for some seconds. */
enum gn_status gn_tune_trials(struct gn_comm *c, double seconds, size_t max_bytes, struct gn_cost *cost, struct gn_err *err);

#endif
