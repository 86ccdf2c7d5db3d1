/* Which network devices carry messages between nodes side by side: the rails.
 *
 * A rank offers those of its devices that are up, of the wanted transport and as fast as its fastest: of network devices
 * the ones with an address that are no bridge, and no virtual ones beside real ones; of RDMA devices each active port. Every
 * offer names the network that it leads to (10.83.1.0/24, an InfiniBand subnet, "Ethernet 10.83.1.0-24" for RDMA over it),
 * ranks exchange these names, and a rail is what all ranks have (where they have no network in common, one Ethernet counts as
 * another): rail i of one rank reaches rail i of every other. Two devices in one IP network make one rail, since the kernel
 * would send everything by one of them.
 *
 * Limits: the smallest number that a rank wants (0: as many as there are; then GANNET_RAILS in the environment), and
 * UCX_NET_DEVICES, which says what may be used at all.
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

/* One device that could be a rail, in UCX's words: "eth0", "mlx5_0:1". */
struct gn_rail_device {
	char name[GN_RAIL_NAME_MAX];
	char network[GN_RAIL_NETWORK_MAX];
};

/* What a rank tells the others: plain data, sent with so many networks as it has. Sorted. */
struct gn_rail_offer {
	int32_t wanted, count;
	char networks[GN_RAILS_MAX][GN_RAIL_NETWORK_MAX];
};

struct gn_rails {
	int count; /* 0: nothing to say, leave the devices to UCX */
	struct gn_rail_device items[GN_RAILS_MAX];
};

/* This rank's candidates, sorted by network, then name, numbers in them by value (mlx5_2 before mlx5_10). kinds: those
 * allowed, bits of enum gn_rail_kind; TCP devices are candidates only where there are no RDMA devices. allowed: a UCX_NET_DEVICES
 * or NULL; root is "/sys". At most GN_RAILS_MAX. */
enum gn_status gn_rails_find(const char *root, unsigned kinds, const char *allowed, struct gn_rails *out,
			     struct gn_err *err);
/* What all ranks get from the same offers: this rank's devices, which are its candidates cut down. 0 of them when all have
 * none in common, or all have just one RDMA device. */
void gn_rails_choose(const struct gn_rail_offer *offers, int ranks, const struct gn_rails *candidates,
		     struct gn_rails *out);
/* Which of these devices (names in UCX's words) a rank should use first: the nearest to its processors, of several the nearest to
 * the GPU that is its by number where there are as many as ranks, of several still, ranks take turns. */
int gn_rails_nearest(const struct gn_topology *m, const char *const *devices, int count, const cpu_set_t *cpus, int local_rank,
		     int local_size);
/* Collective; GN_ERR_USAGE for a GANNET_RAILS that is no number, on that rank alone. On one node one at most. */
enum gn_status gn_rails_agree(struct gn_world *world, unsigned kinds, int wanted, struct gn_rails *out,
			      struct gn_err *err);

#endif
