/* CPU oversubscription: whether the ranks of a node outnumber its processors, so that a waiting rank should block instead of
 * spin. */
#ifndef GN_TRANSPORT_TOPOLOGY_OVERSUBSCRIPTION_H
#define GN_TRANSPORT_TOPOLOGY_OVERSUBSCRIPTION_H

#include "transport/bootstrap/world.h"

/* Polls between two calls of sched_yield() without and with oversubscription, and yields before an oversubscribed rank blocks. */
#define GN_POLLS 64
#define GN_POLLS_OVERSUBSCRIBED 8
#define GN_YIELDS 8

/* GANNET_WAIT in the environment: "spin" always spins (lowest latency, needs a processor for each rank); "sleep" blocks after a
 * short spin (nodes shared with other jobs, virtual clusters); "auto" (or unset) blocks when the ranks of this node outnumber the
 * processors that they may use, or leave none to the kernel for messages to other nodes (tcp, soft RDMA). */
#define GN_WAIT_VARIABLE "GANNET_WAIT"

/* Collective, over the bootstrap; blocks. transport as for gn_ucx_create. Sets *oversubscribed, the same on all ranks of a node:
 * one rank with "sleep" decides, else one with "spin". GN_ERR_USAGE, on this rank alone: the variable has another value. */
enum gn_status gn_oversubscription_find(struct gn_world *w, const char *transport, int *oversubscribed, struct gn_err *err);

#endif
