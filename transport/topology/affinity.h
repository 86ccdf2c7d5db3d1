/* Affinity of the ranks of a node: which network device is nearest to each rank's GPU and processors, which cores each rank should
 * use, and which of those in use are on different NUMA nodes. A pure function of the topology (topology.h).
 *
 * Nothing is bound here; the launcher does that (srun --cpu-bind, --gpu-bind=closest).
 *
 * Thread safety: no state; any thread.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_AFFINITY_H
#define GN_TRANSPORT_TOPOLOGY_AFFINITY_H

#include "src/base/strbuf.h"
#include "transport/bootstrap/world.h"
#include "transport/topology/rails.h"
#include "transport/topology/topology.h"

#define GN_AFFINITY_NICS_MAX GN_RAILS_MAX

/* A rank of the node. GPUs and network devices are indices of gpus and nics of the topology. */
struct gn_affinity_rank {
	cpu_set_t cpus; /* its CPU affinity mask */
	int gpu;	/* -1: none */
	int nic_count;	/* network devices that it uses for messages to other nodes; 0: unknown, or none */
	int nics[GN_AFFINITY_NICS_MAX];
};

/* Bits. */
enum gn_affinity_fault {
	GN_AFFINITY_GPU_FAR_NIC = 1,   /* each network device in use is on another NUMA node than the GPU */
	GN_AFFINITY_CORES_FAR_NIC = 2, /* no processor of the rank is on the NUMA node of a network device in use */
	GN_AFFINITY_CORES_FAR_GPU = 4  /* no processor of the rank is on the NUMA node of its GPU */
};

struct gn_affinity {
	int nic;		   /* the nearest usable device; of equally near ones the one that fewer ranks use; -1: none */
	enum gn_nearness nearness; /* of nic to the GPU, or without a GPU to the processors: NODE, FAR, UNKNOWN */
	int numa;		   /* of its processors; -1: several */
	cpu_set_t cores; /* the rank's share, in whole cores, of the processors in its mask that are near its GPU (else its nic) */
	unsigned faults;
};

/* Sets out[i] for all `count` ranks of a node, in order. usable: for each network device whether it may be selected; NULL: all. */
void gn_affinity_choose(const struct gn_topology *m, const unsigned char *usable, const struct gn_affinity_rank *ranks,
			int count, struct gn_affinity *out);
/* Appends "processors 0-15 (NUMA node 0), GPU 0000:65:00.0 (NUMA node 0), nearest network device mlx5_0 (same PCI switch)". */
void gn_affinity_describe(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			  struct gn_strbuf *out);
/* Appends the description of one fault and the remedy. */
void gn_affinity_explain(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			 enum gn_affinity_fault fault, struct gn_strbuf *out);
/* Appends the set as "0-3,8". */
void gn_affinity_list_cpus(const cpu_set_t *cpus, struct gn_strbuf *out);

/* CPU oversubscription: whether the ranks of a node outnumber its processors, so that a waiting rank should block instead of
 * spin. */

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
