/* The schedules of all simulated ranks in one table, with the two ends of each message paired. Private to sim/. */
#ifndef GN_TRANSPORT_SIM_SIM_PLAN_H
#define GN_TRANSPORT_SIM_SIM_PLAN_H

#include "transport/schedule/algo.h"

struct gn_sim_plan_step {
	uint32_t partner; /* the step at the other end of the message */
	uint32_t missing; /* dependencies that are not met */
	uint32_t first_dependent;
	int32_t rank, peer; /* rank: a simulated one; peer: of the whole machine */
	float bytes;
	uint8_t op, state;
	uint16_t early; /* messages received for later rounds */
};

struct gn_sim_plan {
	int ranks;	/* simulated */
	size_t *first;	/* [rank]: its first step; [ranks]: the number of steps */
	struct gn_sim_plan_step *steps; /* one more at the end, for its first_dependent */
	uint32_t *dependents;
};

/* Writes the schedules of ranks 0 .. ranks - 1; ranks divides args->size. GN_ERR_UNSUPPORTED when they need more than max_bytes. */
enum gn_status gn_sim_plan_create(const struct gn_algorithm *a, const struct gn_algo_args *args, int ranks, size_t bytes,
				  uint64_t max_bytes, struct gn_sim_plan *out, struct gn_err *err);
void gn_sim_plan_release(struct gn_sim_plan *p);

#endif
