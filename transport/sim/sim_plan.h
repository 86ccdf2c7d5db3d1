/* All simulated ranks' schedules in one flat table, messages paired. Private to sim*.c. */
#ifndef GN_TRANSPORT_SIM_SIM_PLAN_H
#define GN_TRANSPORT_SIM_SIM_PLAN_H

#include "transport/schedule/algo.h"

struct gn_sim_plan_step {
	uint32_t partner; /* the other end of the message */
	uint32_t missing; /* dependencies not met */
	uint32_t first_dependent;
	int32_t rank, peer; /* rank: a simulated one; peer: of the whole machine */
	float bytes;
	uint8_t op, state;
	uint16_t early; /* messages that have come for the next rounds */
};

struct gn_sim_plan {
	int ranks;	/* simulated */
	size_t *first;	/* per rank: its first step; ranks + 1 of them */
	struct gn_sim_plan_step *steps; /* one more at the end, for first_dependent */
	uint32_t *dependents;
};

/* ranks divides args->size. */
enum gn_status gn_sim_plan_create(const struct gn_algorithm *a, const struct gn_algo_args *args, int ranks, size_t bytes,
				  uint64_t max_bytes, struct gn_sim_plan *out, struct gn_err *err);
void gn_sim_plan_release(struct gn_sim_plan *p);

#endif
