/* Proof of which way bytes went: the devices' own counters before and after, against what the ranks know they sent.
 *
 * Counters belong to a node, not to a process, so the first rank of each node reads them and the payloads of the node's
 * ranks are added up. Other traffic of the machine can only make a network look busier: it can hide a wrong tcp, and make a
 * right shm look wrong, never the other way round. Where there are several rails, each one's device has to have sent what the
 * ranks say they sent by it.
 */
#ifndef GN_TRANSPORT_COLL_TRAFFIC_CHECK_H
#define GN_TRANSPORT_COLL_TRAFFIC_CHECK_H

#include "transport/coll/comm.h"
#include "transport/topology/devices.h"

struct gn_traffic_check {
	struct gn_devices before; /* first rank of a node only */
	uint64_t same_node_bytes, other_node_bytes, rail_bytes[GN_RAILS_MAX];
	int rails; /* at the end, on all ranks: how many carried anything to other nodes */
};

/* Collective. */
enum gn_status gn_traffic_check_begin(struct gn_comm *c, struct gn_traffic_check *p, struct gn_err *err);
/* Collective; releases p's readings also on failure. transport is "tcp", "shm", "rc" or "ud"; "auto" is never wrong.
 * GN_ERR_FAILED on all ranks when some node's counters do not bear it out; what is wrong stands in err on that node's
 * first rank and, shortened, everywhere. */
enum gn_status gn_traffic_check_end(struct gn_comm *c, struct gn_traffic_check *p, const char *transport, struct gn_err *err);

#endif
