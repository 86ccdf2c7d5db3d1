/* A simulation under way: ranks that work off their schedules, event by event. Private to sim*.c. */
#ifndef GN_TRANSPORT_SIM_SIM_RUN_H
#define GN_TRANSPORT_SIM_SIM_RUN_H

#include "transport/sim/sim_events.h"
#include "transport/sim/sim_net.h"
#include "transport/sim/sim_plan.h"
#include "transport/sim/sim_stream.h"

/* A rank in one of its rounds: the schedule once through. Whoever is done with a round begins the next. */
struct gn_sim_rank {
	uint32_t next_reduction, free_slots, round;
	size_t left;	/* steps of this round */
	double done_at; /* the last step so far */
};

struct gn_sim_state {
	const struct gn_sim_topology *t;
	struct gn_sim_net net;
	struct gn_sim_plan plan;
	struct gn_sim_streams *streams; /* NULL: messages of their own, as RDMA's */
	struct gn_sim_events events;
	struct gn_sim_rank *ranks;
	uint32_t slots;
	uint32_t *missing; /* per step, as at the start; NULL unless there are rounds */
	uint32_t rounds;
	size_t left; /* steps of all rounds and ranks */
	double now;
};

/* So many rounds, the first of which all ranks begin at `from`, until nothing more happens or an event is lost (events.status).
 * Steps that are left then wait for each other. */
void gn_sim_go(struct gn_sim_state *m, uint32_t rounds, double from);

#endif
