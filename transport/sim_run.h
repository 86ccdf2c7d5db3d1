/* A simulation under way: ranks that work off their schedules, event by event. Private to sim*.c. */
#ifndef GN_TRANSPORT_SIM_RUN_H
#define GN_TRANSPORT_SIM_RUN_H

#include "transport/sim_events.h"
#include "transport/sim_net.h"
#include "transport/sim_plan.h"
#include "transport/sim_stream.h"

struct gn_sim_state {
	const struct gn_sim_topology *t;
	struct gn_sim_net net;
	struct gn_sim_plan plan;
	struct gn_sim_streams *streams; /* NULL: messages of their own, as RDMA's */
	struct gn_sim_events events;
	uint32_t slots, *next_reduction, *free_slots; /* per rank */
	uint32_t *missing;		       /* per step, as at the start; NULL unless there are repeats */
	size_t left;
	double now, *start_at, *done_at, *timed_from; /* per rank */
};

/* Until nothing more happens, or an event is lost (events.status). Steps that are left wait for each other. */
void gn_sim_go(struct gn_sim_state *m);

#endif
