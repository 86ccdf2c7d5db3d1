/* Predicts a training step of data x pipeline ranks: each rank runs the forwards and backwards of its stage in the order that it is given,
 * sends activations to the next stage and their gradients back, and then the ranks of each stage sum its gradients and update.
 *
 * A discrete-event simulation of all ranks on the machine of sim_net.h. A forward begins when the rank has done what is before it in
 * its order and the stage before has sent its input; a backward likewise behind it. Messages take the ports of the machine and processor
 * time at both ends and else overlap computing; a receiver has room for all. The gradients of a stage are summed in the time that gn_sim_run
 * gives for its ranks alone, of a network that it shares evenly with the other stages of its nodes, from when the last of them has ended its
 * last backward; with buckets that backward makes them ready evenly, and one after the other is summed from then on. Streams (sim_run.h) are
 * not counted: a port sends one message at a time.
 *
 *     step   = max over stages of (end of the last backward + sum + update)
 *     bubble = 1 - computing of all ranks / (ranks * end of the last backward of all); (P - 1) / (M + P - 1) where all P stages take equally
 *              long, M micro-batches are in one row and messages take no time
 *
 * Thread safety: any thread, no shared state. Local, blocking.
 */
#ifndef GN_TRANSPORT_SIM_SIM_PIPE_H
#define GN_TRANSPORT_SIM_SIM_PIPE_H

#include "transport/sim/sim.h"

struct gn_sim_pipe_stage {
	double forward_s, backward_s; /* of a micro-batch */
	double out_bytes;	      /* of a micro-batch's output, and of the gradient that comes back; of the last stage 0 */
	double gradient_bytes;	      /* summed by the ranks of the stage once a step */
	double update_s;
};

/* What a stage does; it has one of both kinds for each micro-batch. */
struct gn_sim_pipe_action {
	int is_backward, batch;
};

struct gn_sim_pipe {
	int stages, data, batches;
	const struct gn_sim_pipe_stage *costs;	  /* [stages] */
	const struct gn_sim_pipe_action *actions; /* [stage * 2 * batches + i], in the order of the stage */
	const int *ranks;			  /* [data index * stages + stage]: of the machine; all are there once */
	double bucket_bytes;			  /* of gradients that are summed while the last backward runs; 0: they are summed after it */
};

struct gn_sim_pipe_result {
	double step_s, pipe_s; /* pipe_s: until the last backward has ended */
	double sum_s;	       /* of the stage that sums for longest */
	double bubble;	       /* 0 .. 1 */
	uint64_t network_bytes; /* between nodes, of all ranks in a step */
	const struct gn_algorithm *sum; /* that took this time; NULL: nothing is summed */
};

/* With the machine's jitter and stragglers. sum: of gradients; NULL: the fastest that the machine can have, or on more than 256 ranks the ring.
 * GN_ERR_USAGE: an invalid machine, or not as many ranks as it has. GN_ERR_FAILED: the orders of
 * two stages wait for each other. GN_ERR_UNSUPPORTED: more than 2^31 messages, or as gn_sim_run. */
enum gn_status gn_sim_pipe_run(const struct gn_sim_topology *t, const struct gn_sim_pipe *p, const struct gn_algorithm *sum,
			       struct gn_sim_pipe_result *out, struct gn_err *err);

#endif
