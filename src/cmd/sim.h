/* Options of gannet sim, and the machine that they and a topology file describe. Thread safety: no state. */
#ifndef GN_CMD_SIM_H
#define GN_CMD_SIM_H

#include "src/cmd/cmd.h"
#include "transport/sim/sim.h"

#include <stdint.h>

/* In the units of the options; negative: not given. */
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
	int64_t pipeline, micro_batches;
	const char *schedule;
	double activation_bytes;
};

/* Merges defaults, the topology file and the options, in ascending priority. */
enum gn_status gn_sim_machine_read(const struct gn_sim_options *o, struct gn_sim_topology *out, struct gn_err *err);
/* Predicts training steps by --compute-ms, --log or --step, and prints them. */
enum gn_status gn_sim_train(const struct gn_sim_options *o, const struct gn_sim_topology *t, struct gn_err *err);

#endif
