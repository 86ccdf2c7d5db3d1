/* Predicts the time of a collective on another machine: a discrete-event simulation of the schedules that the executor runs, in the
 * LogGP model (Alexandrov, Ionescu, Schauser and Scheiman, "LogGP: incorporating long messages into the LogP model", 1995).
 *
 * Each rank has one processor that sends, receives and reduces. Each node has rails with one output and one input port each, which
 * serve one message at a time, or with byte streams all streams evenly (sim_run.h). The nodes of a leaf switch may share an
 * oversubscribed uplink. Messages above eager_bytes that do not go by a stream use rendezvous: a request to send and an answer
 * precede them. Receives that reduce are posted early, as many as the executor has buffers. Messages between ranks of a node use
 * the receiver's input port of the node. Not modelled: congestion inside a switch, routing, packet loss, cache effects, ranks that
 * share a processor.
 *
 * If the algorithm is rotation symmetric (algo.h), the ranks of a leaf switch or node divide the number of ranks, and nothing is
 * random, only the ranks of one leaf or node are simulated: exact except that chunks may differ by an element. Otherwise all ranks
 * are simulated, with about 60 bytes per step.
 *
 * Thread safety: any thread, no shared state. Local, blocking.
 */
#ifndef GN_TRANSPORT_SIM_SIM_H
#define GN_TRANSPORT_SIM_SIM_H

#include "transport/schedule/algo.h"
#include "transport/sim/sim_net.h"

struct gn_sim_result {
	double time_s, fastest_s; /* of the slowest and the fastest rank, mean of the repeats */
	uint64_t messages, network_bytes; /* of all ranks; bytes between nodes */
	uint64_t steps;		  /* simulated */
	int simulated_ranks;
	uint32_t pieces;
};

/* Simulates algorithm a over a buffer of `bytes`. pieces 0: pieces of about 256 KiB by gn_algorithm_pieces(), or larger ones when
 * memory requires it. GN_ERR_UNSUPPORTED when more than max_bytes of memory (0: 8 GB) are needed; GN_ERR_USAGE for an invalid
 * topology. */
enum gn_status gn_sim_run(const struct gn_sim_topology *t, const struct gn_algorithm *a, size_t bytes, uint32_t pieces,
			  uint64_t max_bytes, struct gn_sim_result *out, struct gn_err *err);

/* A training step: gradient buckets become ready during the backward pass and are reduced one after the other. */
struct gn_sim_bucket {
	size_t bytes;
	double ready_s; /* since the start of the step, on a single rank */
};
struct gn_sim_step {
	double compute_s; /* the time of a step on a single rank */
	double after_s;	  /* the part of it that needs all buckets: the optimizer */
	const struct gn_sim_bucket *buckets;
	size_t count;
};
/* *out = the time of a step on all ranks in s, *exposed_s = the communication time that is not overlapped by compute. */
enum gn_status gn_sim_step_time(const struct gn_sim_topology *t, const struct gn_algorithm *a,
				const struct gn_sim_step *step, double *out, double *exposed_s, struct gn_err *err);

#endif
