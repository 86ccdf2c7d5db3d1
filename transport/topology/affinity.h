/* Which network device, GPU and processors of a node belong together, for each of its ranks: what is near, what each rank
 * should use, and what is wrong with what it does use. A pure function of a machine's description (machine.h).
 *
 * Nothing is bound here: whoever starts the ranks does that (srun --cpu-bind, --gpu-bind=closest).
 *
 * Thread safety: no state.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_AFFINITY_H
#define GN_TRANSPORT_TOPOLOGY_AFFINITY_H

#include "src/base/strbuf.h"
#include "transport/topology/rails.h"
#include "transport/topology/topology.h"

#define GN_AFFINITY_NICS_MAX GN_RAILS_MAX

/* A rank of the node as it is. */
struct gn_affinity_rank {
	cpu_set_t cpus; /* that it may run on */
	int gpu;	/* of the machine; -1: none */
	int nic_count;	/* what carries its messages to other nodes; 0: not known, or there are none */
	int nics[GN_AFFINITY_NICS_MAX];
};

/* What is wrong; bits. */
enum gn_affinity_fault {
	GN_AFFINITY_GPU_FAR_NIC = 1,   /* each network device in use is on another NUMA node than the GPU */
	GN_AFFINITY_CORES_FAR_NIC = 2, /* no processor of the rank is on the NUMA node of a network device in use */
	GN_AFFINITY_CORES_FAR_GPU = 4
};

struct gn_affinity {
	int nic;		   /* the nearest usable one; of equals the one that fewer ranks have; -1: none */
	enum gn_nearness nearness; /* of the GPU and nic, or of the processors and nic: NODE, FAR, UNKNOWN */
	int numa;		   /* of its processors; -1: several */
	cpu_set_t cores; /* its share: of those that it may run on and that are near its GPU (else nic), whole cores */
	unsigned faults;
};

/* For all ranks of a node, in order. usable: for each network device whether it may be chosen; NULL: all. */
void gn_affinity_choose(const struct gn_topology *m, const unsigned char *usable, const struct gn_affinity_rank *ranks,
			int count, struct gn_affinity *out);
/* Appends "processors 0-15 (NUMA node 0), GPU 0000:65:00.0 (NUMA node 0), near mlx5_0 (same PCI switch)". */
void gn_affinity_describe(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			  struct gn_strbuf *out);
/* Appends what one fault is, and what to do about it. */
void gn_affinity_explain(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			 enum gn_affinity_fault fault, struct gn_strbuf *out);
/* "0-3,8" */
void gn_affinity_list_cpus(const cpu_set_t *cpus, struct gn_strbuf *out);

#endif
