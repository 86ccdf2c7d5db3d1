/* Rails: the network devices that carry messages between nodes in parallel.
 *
 * A rank's candidates are its devices that are up, of an allowed kind and as fast as its fastest: RDMA devices by active port, or,
 * where there are none, network devices with an IP address that are not bridges, and not virtual if any is hardware. Each candidate
 * has the name of the network that it is on (10.83.1.0/24, an InfiniBand subnet, "Ethernet 10.83.1.0-24" for RDMA over Ethernet).
 * Ranks exchange these names, and the rails are the networks that all ranks have; when they have none in common, all Ethernets
 * count as one network. Rail i of one rank connects to rail i of every other. Two network devices in one IP network make one rail,
 * because the kernel would send everything by one of them.
 *
 * Limits: the smallest number of rails that any rank wants (0: the value of GANNET_RAILS in the environment, else all), and
 * UCX_NET_DEVICES, which restricts the devices.
 *
 * Thread safety: any thread; gn_rails_agree is collective.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_RAILS_H
#define GN_TRANSPORT_TOPOLOGY_RAILS_H

#include "transport/topology/topology.h"
#include "transport/bootstrap/world.h"

#define GN_RAILS_MAX 8
#define GN_RAIL_NAME_MAX 72
#define GN_RAIL_NETWORK_MAX 64

/* Kinds of device that may be rails; bits. */
enum gn_rail_kind { GN_RAILS_RDMA = 1, GN_RAILS_TCP = 2 };

/* A candidate, by UCX's device name: "eth0", "mlx5_0:1". */
struct gn_rail_device {
	char name[GN_RAIL_NAME_MAX];
	char network[GN_RAIL_NETWORK_MAX];
};

/* A rank's part of the exchange, sent with as many networks as it has: the names of its candidates, in their order. */
struct gn_rail_offer {
	int32_t wanted, count;
	char networks[GN_RAILS_MAX][GN_RAIL_NETWORK_MAX];
};

struct gn_rails {
	int count; /* 0: UCX selects the devices */
	struct gn_rail_device items[GN_RAILS_MAX];
};

/* UCX_NET_DEVICES of the environment; NULL where that restricts nothing. */
const char *gn_rails_allowed(void);
/* Local. This rank's candidates, sorted by network, then name, numbers in them by value (mlx5_2 before mlx5_10). kinds: those
 * allowed, bits of enum gn_rail_kind; TCP devices are candidates only where there are no RDMA devices. allowed: a UCX_NET_DEVICES
 * or NULL; root is "/sys". At most GN_RAILS_MAX. */
enum gn_status gn_rails_find(const char *root, unsigned kinds, const char *allowed, struct gn_rails *out,
			     struct gn_err *err);
/* Local. The rails by the offers of all ranks, as this rank's devices: a subset of its candidates. 0 rails when the ranks have no
 * network in common, or one RDMA device each. */
void gn_rails_choose(const struct gn_rail_offer *offers, int ranks, const struct gn_rails *candidates,
		     struct gn_rails *out);
/* Local. The index of the device (UCX's names) nearest to the rank: by its processors; of equals, by the GPU whose index is
 * local_rank, if the node has as many GPUs as ranks; of equals, round-robin by local_rank. */
int gn_rails_nearest(const struct gn_topology *m, const char *const *devices, int count, const cpu_set_t *cpus, int local_rank,
		     int local_size);
/* Collective: exchanges offers over the bootstrap; blocks. At most one rail on a single node. GN_ERR_USAGE, on that rank alone:
 * invalid GANNET_RAILS. */
enum gn_status gn_rails_agree(struct gn_world *world, unsigned kinds, int wanted, struct gn_rails *out,
			      struct gn_err *err);

#endif
