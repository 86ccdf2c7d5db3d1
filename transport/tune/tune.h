/* gannet tune: measures the communication costs of a fabric (transport/select/cost.h) between pairs of ranks of one node and of
 * two.
 *
 * In each pair one rank drives and the other answers, over UCX endpoints made for that; all others wait as within a collective, so
 * that the times include the cost of oversubscription. Measured are the eager threshold; the rate of a stream over all rails, and
 * the burst of shaped links; one-way times by length; send and receive overheads; and the rate of reductions, on all ranks at once.
 *
 * Then, for allreduce, the fastest algorithm by length is found by timing them, because the model orders algorithms well whose
 * times differ much, but is wrong by tens of percent about wakeups, copies and oversubscription in small messages.
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_H
#define GN_TRANSPORT_TUNE_TUNE_H

#include "transport/bootstrap/world.h"
#include "transport/select/tuning_table.h"

struct gn_comm;

struct gn_tune_options {
	const char *transport; /* as in comm.h */
	double seconds;	       /* of measurement for each length and pair; 0: 0.1 */
	size_t max_bytes;      /* the longest message; 0: 4 MiB */
	int rails;	       /* as in comm.h */
	int pairs;	       /* at most, of ranks of one node and of two nodes each; 0: 3 */
};

/* Collective; the same result on all ranks. Blocks for some seconds. Failures are not agreed on: a rank that gets one has to abort
 * the world (gn_world_abort). */
enum gn_status gn_tune_measure(struct gn_world *world, const struct gn_tune_options *options, struct gn_tune_result *out,
			       struct gn_err *err);

/* Collective; the same picks on all ranks. Times the likely algorithms of an allreduce for lengths up to max_bytes, then slice
 * sizes of the fastest, and sets cost->picks and pick_count; the model's selection is kept where it is about as fast. cost: what
 * the communicator was created with; of its links' burst, as much is used up before each timing. seconds: about the time for each algorithm and length; lengths that take longer than that once
 * are skipped. No picks where all ranks share memory, because no messages are sent there. Blocks for some seconds. */
enum gn_status gn_tune_trials(struct gn_comm *c, double seconds, size_t max_bytes, struct gn_cost *cost, struct gn_err *err);

#endif
