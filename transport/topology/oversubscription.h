/* Whether ranks have to share processors, so that whoever waits should sleep and not look. */
#ifndef GN_TRANSPORT_TOPOLOGY_OVERSUBSCRIPTION_H
#define GN_TRANSPORT_TOPOLOGY_OVERSUBSCRIPTION_H

#include "transport/bootstrap/world.h"

/* Looks at what is awaited before the processor is offered to others, and offers before the sleep of a crowded rank. */
#define GN_LOOKS 64
#define GN_LOOKS_CROWDED 8
#define GN_YIELDS 8

/* GANNET_WAIT in the environment: "spin" looks without end (lowest latency, a processor for each rank); "sleep" gives the
 * processor away after a moment (nodes that other jobs use, too; virtual clusters); "auto" (unset) sleeps where ranks of this
 * node outnumber the processors that they may use, and where none is left for a kernel that has messages to other nodes to carry
 * (tcp, soft RDMA). */
#define GN_WAIT_VARIABLE "GANNET_WAIT"

/* Collective, over the bootstrap; transport as for gn_ucx_create. Alike on all ranks of a node: one that wants to sleep is enough,
 * then one that wants to spin. GN_ERR_USAGE: the variable has another value. */
enum gn_status gn_oversubscription_find(struct gn_world *w, const char *transport, int *crowded, struct gn_err *err);

#endif
