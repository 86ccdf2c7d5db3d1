/* Checks by device counters, read before and after some traffic, that the named transport carried it.
 *
 * Counters belong to a node, not to a process: the first rank of each node reads them, and compares them with the sum of the
 * payloads of the node's ranks. Other traffic of the host makes counters larger: it can hide that tcp was not used, and make shm
 * look wrong, but not the reverse. With several rails each rail's device has to have sent the payload that the ranks sent on it.
 *
 * Thread safety: the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_TRAFFIC_CHECK_H
#define GN_TRANSPORT_COLL_TRAFFIC_CHECK_H

#include "transport/coll/comm.h"
#include "transport/topology/devices.h"

struct gn_traffic_check {
	struct gn_devices before; /* on the first rank of a node */
	uint64_t same_node_bytes, other_node_bytes, rail_bytes[GN_RAILS_MAX];
	int rails; /* set at the end, on all ranks: rails that carried payload between nodes */
};

/* Collective; blocks. */
enum gn_status gn_traffic_check_begin(struct gn_comm *c, struct gn_traffic_check *p, struct gn_err *err);
/* Collective; blocks. Releases p's readings, also on failure. transport: "tcp", "shm", "rc" or "ud"; "auto" always passes.
 * GN_ERR_FAILED on all ranks when the counters of some node contradict it; err has the reason, in at most 240 characters. */
enum gn_status gn_traffic_check_end(struct gn_comm *c, struct gn_traffic_check *p, const char *transport, struct gn_err *err);

#endif
