/* A simulation in progress: executes the schedules of all simulated ranks, event by event. Private to sim/. */
#ifndef GN_TRANSPORT_SIM_SIM_RUN_H
#define GN_TRANSPORT_SIM_SIM_RUN_H

#include "transport/schedule/algo.h"
#include "transport/sim/sim_net.h"
#include "transport/sim/sim_stream.h"

/* The schedules of all simulated ranks in one table, with the two ends of each message paired. */

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

/* A rank in one of its rounds. A round is one run of the schedule; a rank that completes a round begins the next at once. */
struct gn_sim_rank {
	uint32_t next_reduction, free_slots, round;
	size_t left;	/* steps of this round */
	double done_at; /* when its last step so far completed */
};

struct gn_sim_state {
	const struct gn_sim_topology *t;
	struct gn_sim_net net;
	struct gn_sim_plan plan;
	struct gn_sim_streams *streams; /* NULL: each message goes by itself, as with RDMA */
	struct gn_sim_events events;
	struct gn_sim_rank *ranks;
	uint32_t slots;
	uint32_t *missing; /* [step]: its dependencies at the start of a round; NULL with a single round */
	uint32_t rounds;
	size_t left; /* steps of all rounds and ranks */
	double now;
};

/* Runs `rounds` rounds, the first of which all ranks begin at time `from`, until no event is left or an event is lost
 * (events.status). Steps that are left then are in a deadlock. */
void gn_sim_run_rounds(struct gn_sim_state *m, uint32_t rounds, double from);

#endif
