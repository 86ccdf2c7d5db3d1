/* The hardware topology of a node as far as communication needs it: processors by NUMA node, GPUs, network devices, and the
 * distance of each GPU from each network device. hwloc reads it from this host, or from hwloc's XML (lstopo FILE.xml) of any host.
 *
 * A GPU is an NVIDIA display or 3D controller. A network device is an hwloc network or OpenFabrics OS device with hardware: one
 * adapter may be both "ib0" and "mlx5_0". Processors are all those of the host, including those that this process may not use.
 *
 * Thread safety: any thread; a topology does not change once read.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_TOPOLOGY_H
#define GN_TRANSPORT_TOPOLOGY_TOPOLOGY_H

#include "src/base/status.h"

#include <sched.h>
#include <stddef.h>

/* From near to far. SWITCH: a common PCI switch below the root complex; ROOT: a common root complex; NODE: the same NUMA node; FAR:
 * different NUMA nodes; UNKNOWN: the host does not report locality (a virtual machine). */
enum gn_nearness { GN_NEAR_SWITCH, GN_NEAR_ROOT, GN_NEAR_NODE, GN_NEAR_FAR, GN_NEAR_UNKNOWN };
/* "same PCI switch", ..., "locality unknown" */
const char *gn_nearness_name(enum gn_nearness n);

struct gn_topology_cpu {
	int os_index; /* as in a cpu_set_t */
	int core;     /* hardware threads of one core have the same number */
	int numa;     /* the system's number; -1: in no NUMA node, or in several */
};

struct gn_topology_device {
	char name[64]; /* "mlx5_0", "eth0"; of a GPU its PCI address */
	char pci[16];  /* 0000:65:00.0; "": no PCI device */
	int rdma;
	int numa;	/* -1: unknown */
	cpu_set_t near; /* processors of its NUMA node; all when that is unknown */
};

struct gn_topology {
	struct gn_topology_cpu *cpus; /* in hwloc's logical order: threads of a core, cores of a NUMA node are adjacent */
	struct gn_topology_device *gpus, *nics; /* GPUs by PCI address */
	unsigned char *nearness; /* enum gn_nearness of GPU g and network device n at g * nic_count + n */
	int cpu_count, gpu_count, nic_count;
	int numa_count; /* NUMA nodes with processors */
};

/* Reads this host's topology: takes milliseconds, tens of them on a large host. The caller releases *out. */
enum gn_status gn_topology_read(struct gn_topology *out, struct gn_err *err);
/* The same from hwloc's XML; GN_ERR_DATA when it is not valid. */
enum gn_status gn_topology_parse(const char *xml, size_t len_bytes, struct gn_topology *out, struct gn_err *err);
void gn_topology_release(struct gn_topology *m);

enum gn_nearness gn_topology_nearness(const struct gn_topology *m, int gpu, int nic);
/* GN_NEAR_NODE, GN_NEAR_FAR or, also for nic -1, GN_NEAR_UNKNOWN. */
enum gn_nearness gn_topology_nearness_to_cpus(const struct gn_topology *m, const cpu_set_t *cpus, int nic);
/* Index, or -1. A GPU by its PCI address (case-insensitive), a network device by name ("mlx5_0:1" finds "mlx5_0"). */
int gn_topology_find_gpu(const struct gn_topology *m, const char *pci);
int gn_topology_find_nic(const struct gn_topology *m, const char *name);
/* The NUMA node of all these processors; -1: several, or none. */
int gn_topology_numa_of(const struct gn_topology *m, const cpu_set_t *cpus);

#endif
