/* Compares the transports between nodes over all ranks. A node whose RDMA device is down silently turns a job, or its own part of
 * it, into one over tcp, and the log line at start shows rank 0's transports only.
 *
 * Suspect are ranks that use different transports, an active device that is faster than those in use but unused, and a UCX_TLS that
 * overrides the named transport. Devices selected by the user (UCX_NET_DEVICES) and transports (--transport, UCX_TLS) are not.
 *
 * Thread safety: any thread; gn_lanes_check is collective.
 */
#ifndef GN_TRANSPORT_COLL_LANES_CHECK_INTERNAL_H
#define GN_TRANSPORT_COLL_LANES_CHECK_INTERNAL_H

#include "src/base/strbuf.h"
#include "transport/topology/devices.h"
#include "transport/ucx/ucx.h"

/* Bits: RC or DC; UD; TCP; something is suspect. */
enum gn_lanes_class { GN_LANES_RC = 1, GN_LANES_UD = 2, GN_LANES_TCP = 4, GN_LANES_SUSPECT = 8 };

/* A rank's part of the exchange. */
struct gn_lanes_record {
	int32_t classes;
	char detail[124]; /* "mlx5_0 is down"; "": none */
};

/* The class of one endpoint's lanes; 0: shared memory, or none. */
int gn_lanes_class(const char *lanes);
/* Adds suspect devices to a record whose classes are set. lanes: those to all ranks of other nodes. free_choice: the user has not
 * selected a transport; any_device: nor devices. */
void gn_lanes_judge(const struct gn_devices *devices, const char *lanes, int free_choice, int any_device,
		    struct gn_lanes_record *record);
/* Appends "tcp on n1, n2 and 3 more; n1: mlx5_0 at 100 Gb/s is up and unused". nodes[r] is rank r's node, by any number below
 * ranks. GN_ERR_NO_MEMORY. */
enum gn_status gn_lanes_describe(const struct gn_lanes_record *records, const int *nodes, const char *const *hosts, int ranks,
				 struct gn_strbuf *out, struct gn_err *err);

/* Collective over the bootstrap; blocks. Checks the present connections. transport: as requested. Rank 0 warns, naming hosts; with
 * strict, the same on all ranks, it is GN_ERR_FAILED on all ranks instead. One exchange of four bytes, a second one if anything is
 * suspect. */
enum gn_status gn_lanes_check(struct gn_world *w, const struct gn_ucx *f, const char *transport, int strict, struct gn_log *log,
			      struct gn_err *err);

#endif
