/* What is to happen in the simulated machine, the earliest first. Private to sim*.c. */
#ifndef GN_TRANSPORT_SIM_SIM_EVENTS_H
#define GN_TRANSPORT_SIM_SIM_EVENTS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* At one time they come in this order. */
enum gn_sim_kind {
	GN_SIM_START,	 /* rank */
	GN_SIM_READY,	 /* step: nothing is missing any more */
	GN_SIM_ASKED,	 /* send: its request is at the receiver */
	GN_SIM_SET_OFF,	 /* send */
	GN_SIM_HEAD,	 /* receive: the message's first byte is at the receiver's port */
	GN_SIM_LANDED,	 /* receive */
	GN_SIM_FINISHED, /* step */
	GN_SIM_PART,	 /* part of a stream: at the receiver's port */
	GN_SIM_THROUGH,	 /* part of a stream: through it */
	GN_SIM_PORT,	 /* port out: free again */
};

struct gn_sim_event {
	double at;
	uint32_t what, kind;
};

struct gn_sim_events {
	struct gn_sim_event *heap;
	size_t count, room;
	enum gn_status status; /* GN_ERR_NO_MEMORY: some were lost */
};

void gn_sim_events_push(struct gn_sim_events *e, double at, enum gn_sim_kind kind, uint32_t what);
/* There has to be one. */
struct gn_sim_event gn_sim_events_pop(struct gn_sim_events *e);
void gn_sim_events_release(struct gn_sim_events *e);

#endif
