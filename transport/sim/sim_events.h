/* The queue of events of a simulation, ordered by time: a binary heap. Private to sim/. */
#ifndef GN_TRANSPORT_SIM_SIM_EVENTS_H
#define GN_TRANSPORT_SIM_SIM_EVENTS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The comment names what `what` is. Events at the same time are handled in this order. */
enum gn_sim_kind {
	GN_SIM_START,		  /* rank: begins a round */
	GN_SIM_READY,		  /* step: its dependencies are met */
	GN_SIM_RTS_ARRIVED,	  /* send: its request to send is at the receiver */
	GN_SIM_SEND_BEGIN,	  /* send: the message goes to the port */
	GN_SIM_HEAD_ARRIVED,	  /* receive: the message's first byte is at the receiver's port */
	GN_SIM_RECEIVED,	  /* receive: the last byte has passed the port */
	GN_SIM_COMPLETED,	  /* step */
	GN_SIM_FRAGMENT_ARRIVED,  /* fragment of a stream: its first byte is at the receiver's port */
	GN_SIM_FRAGMENT_RECEIVED, /* fragment of a stream: its last byte has passed the port */
	GN_SIM_PORT_FREE,	  /* output port */
};

struct gn_sim_event {
	double at; /* s */
	uint32_t what, kind;
};

struct gn_sim_events {
	struct gn_sim_event *heap;
	size_t count, room;
	enum gn_status status; /* GN_ERR_NO_MEMORY: an event was lost */
};

void gn_sim_events_push(struct gn_sim_events *e, double at, enum gn_sim_kind kind, uint32_t what);
/* The queue must not be empty. */
struct gn_sim_event gn_sim_events_pop(struct gn_sim_events *e);
void gn_sim_events_release(struct gn_sim_events *e);

#endif
