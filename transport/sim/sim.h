/* Predicts how long a collective takes elsewhere: a discrete-event simulation, in the LogGP model (Alexandrov, Ionescu,
 * Schauser and Scheiman, "LogGP: incorporating long messages into the LogP model", 1995), of the very schedules that
 * the executor runs.
 *
 * Each rank has one processor that sends, receives and reduces; each node has rails, each with a port out and a port in
 * that serve one message after another, or, with byte streams, all streams evenly (sim_stream.h); leaves of several
 * nodes may share too narrow a way up. Messages above eager_bytes that go by no stream wait for their receiver: a request
 * and an answer go before. Receptions that reduce land early in as many buffers as the executor has. Between ranks of a node a
 * message takes the receiver's port in. Not modelled: congestion inside a switch, routing, packet loss, cache effects, ranks
 * sharing a processor.
 *
 * Where an algorithm turns (algo.h), p is a multiple of the ranks of a leaf or node, and nothing is random, the ranks of
 * one leaf or node stand for all: exact but for an element's difference between chunks. Otherwise all ranks are
 * simulated: about 60 bytes a step. Thread safety: no state.
 */
#ifndef GN_TRANSPORT_SIM_SIM_H
#define GN_TRANSPORT_SIM_SIM_H

#include "transport/schedule/algo.h"
#include "transport/sim/sim_topology.h"

struct gn_sim_result {
	double time_s, fastest_s; /* of the slowest and the fastest rank in all repeats; their mean */
	uint64_t messages, network_bytes; /* of all ranks; bytes between nodes */
	uint64_t steps;		  /* simulated */
	int simulated_ranks;
	uint32_t pieces;
};

/* pieces 0: cut by 256 KiB as gn_algorithm_pieces() does, or coarser where memory asks for it. GN_ERR_UNSUPPORTED when it
 * would take more than max_bytes of memory (0: 8 GB). */
enum gn_status gn_sim_run(const struct gn_sim_topology *t, const struct gn_algorithm *a, size_t bytes, uint32_t pieces,
			  uint64_t max_bytes, struct gn_sim_result *out, struct gn_err *err);

/* A training step: gradient buckets become ready during the backward pass and are summed one after the other. */
struct gn_sim_bucket {
	size_t bytes;
	double ready_s; /* after the step began, on a rank alone */
};
struct gn_sim_step {
	double compute_s; /* a step on a rank alone */
	double after_s;	  /* of it, what waits for all sums: the optimizer */
	const struct gn_sim_bucket *buckets;
	size_t count;
};
/* *out = how long a step takes with all ranks, *exposed_s = how much of it computing waits for communication. */
enum gn_status gn_sim_step_time(const struct gn_sim_topology *t, const struct gn_algorithm *a,
				const struct gn_sim_step *step, double *out, double *exposed_s, struct gn_err *err);

#endif
