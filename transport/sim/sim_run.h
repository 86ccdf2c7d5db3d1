/* A simulation in progress: executes the schedules of all simulated ranks, event by event. Private to sim/. */
#ifndef GN_TRANSPORT_SIM_SIM_RUN_H
#define GN_TRANSPORT_SIM_SIM_RUN_H

#include "transport/sim/sim_events.h"
#include "transport/sim/sim_net.h"
#include "transport/sim/sim_plan.h"
#include "transport/sim/sim_stream.h"

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
