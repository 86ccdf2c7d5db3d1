/* What carries messages between nodes, compared over all ranks: a node whose RDMA device is down turns a job, or its own part of it,
 * into one over tcp, and the line at start is rank 0's own view.
 *
 * Something is wrong when ranks use different transports, when one leaves an active device unused that is faster than what it
 * uses, or when UCX_TLS has put another transport in the place of the one that was named. It is no such thing where the user has
 * said which devices (UCX_NET_DEVICES) or transports (--transport, UCX_TLS) to use.
 *
 * Thread safety: any thread; gn_lanes_check is collective.
 */
#ifndef GN_TRANSPORT_COLL_LANES_CHECK_H
#define GN_TRANSPORT_COLL_LANES_CHECK_H

#include "src/base/strbuf.h"
#include "transport/topology/devices.h"
#include "transport/ucx/ucx.h"

/* Bits: RC or DC, UD, TCP; something to complain of. */
enum gn_lanes_class { GN_LANES_RC = 1, GN_LANES_UD = 2, GN_LANES_TCP = 4, GN_LANES_SUSPECT = 8 };

/* What a rank tells the others. */
struct gn_lanes_record {
	int32_t classes;
	char detail[124]; /* "mlx5_0 is down"; "": nothing to say */
};

/* The first of the classes that one endpoint's lanes are of; 0: shared memory. */
int gn_lanes_class(const char *lanes);
/* Adds to a card with its classes what the devices say; lanes are those to all ranks of other nodes. free_choice: nobody has
 * named transports; any_device: nor devices. */
void gn_lanes_judge(const struct gn_devices *devices, const char *lanes, int free_choice, int any_device,
		    struct gn_lanes_record *card);
/* Appends "tcp on n1, n2 and 3 more; n1: mlx5_0 at 100 Gb/s is up and unused". nodes[r] is rank r's node, by any number below ranks.
 * GN_ERR_NO_MEMORY. */
enum gn_status gn_lanes_describe(const struct gn_lanes_record *cards, const int *nodes, const char *const *hosts, int ranks,
				 struct gn_strbuf *out, struct gn_err *err);

/* Collective, of connections that are there by now. transport: what was asked for. Rank 0 warns, naming hosts; with strict, which is
 * the same everywhere, it is GN_ERR_FAILED on all ranks. One exchange of four bytes where all is well, a second one where it is not. */
enum gn_status gn_lanes_check(struct gn_world *w, const struct gn_ucx *f, const char *transport, int strict, struct gn_log *log,
			      struct gn_err *err);

#endif
