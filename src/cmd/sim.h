/* gannet sim's options, and the machine that they and a topology file describe. */
#ifndef GN_CMD_SIM_H
#define GN_CMD_SIM_H

#include "src/cmd/cmd.h"
#include "transport/sim/sim.h"

#include <stdint.h>

/* As people write them; below zero: not said. */
struct gn_sim_machine {
	double nodes, ranks_per_node, rails, link_gbit, link_us, node_gb, node_us, leaf_nodes, oversubscription, send_us,
		receive_us, gap_us, reduce_gb, eager_bytes, jitter, stragglers, straggler_us;
};

struct gn_sim_options {
	struct gn_sim_machine machine;
	const char *topology, *tuning, *fabric, *collective, *algo, *log, *step;
	int64_t min_bytes, max_bytes, factor, pieces, memory, seed;
	double compute_ms, after_ms, backward, step_bytes, buckets, batch;
	int64_t repeats, warmup;
	int json, verify, streams;
	int64_t verify_ranks;
};

/* Defaults, then the file, then the options. */
enum gn_status gn_sim_machine_read(const struct gn_sim_options *o, struct gn_sim_topology *out, struct gn_err *err);
/* Predicts and prints training steps by --compute-ms, --log or --step. */
enum gn_status gn_sim_train(const struct gn_sim_options *o, const struct gn_sim_topology *t, struct gn_err *err);

#endif
