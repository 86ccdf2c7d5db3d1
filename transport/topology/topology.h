/* What a node is made of, as far as it decides which way bytes should go: processors by NUMA node, GPUs, network devices, and
 * how far a GPU is from each network device. Read by hwloc from the machine itself, or from a description in hwloc's XML
 * (lstopo machine.xml), so that any machine's can be looked at anywhere.
 *
 * A GPU is a display or 3D controller of NVIDIA's; a network device is what hwloc knows as one with hardware beneath it: of one
 * adapter both "ib0" and "mlx5_0". Processors are those of the machine, also where this process may not use them all.
 *
 * Thread safety: any thread; a machine that was read is not changed any more.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_TOPOLOGY_H
#define GN_TRANSPORT_TOPOLOGY_TOPOLOGY_H

#include "src/base/status.h"

#include <sched.h>
#include <stddef.h>

/* From near to far. SWITCH: bytes need not pass the processors' PCI root; ROOT: one root complex; NODE: one NUMA node; FAR:
 * bytes cross from one NUMA node to another; UNKNOWN: the machine does not tell (a virtual one). */
enum gn_nearness { GN_NEAR_SWITCH, GN_NEAR_ROOT, GN_NEAR_NODE, GN_NEAR_FAR, GN_NEAR_UNKNOWN };
/* "same PCI switch", ..., "place unknown" */
const char *gn_nearness_name(enum gn_nearness n);

struct gn_topology_cpu {
	int os_index; /* as in a cpu_set_t */
	int core;     /* hardware threads of one core have the same number */
	int numa;     /* as the system counts; -1: none has it */
};

struct gn_topology_device {
	char name[64]; /* "mlx5_0", "eth0"; of a GPU its PCI address */
	char pci[16];  /* 0000:65:00.0; "" when there is none */
	int rdma;
	int numa;	/* -1: not known */
	cpu_set_t near; /* processors of its NUMA node; all when that is not known */
};

struct gn_topology {
	struct gn_topology_cpu *cpus; /* neighbours lie side by side: threads of a core, cores of a NUMA node */
	struct gn_topology_device *gpus, *nics; /* GPUs by PCI address */
	unsigned char *nearness; /* enum gn_nearness of GPU g and network device n at g * nic_count + n */
	int cpu_count, gpu_count, nic_count;
	int numa_count; /* with processors */
};

/* This machine: takes some milliseconds, on a large one some tens. */
enum gn_status gn_topology_read(struct gn_topology *out, struct gn_err *err);
/* XML as lstopo writes it; GN_ERR_DATA when it is none. */
enum gn_status gn_topology_parse(const char *xml, size_t len_bytes, struct gn_topology *out, struct gn_err *err);
void gn_topology_release(struct gn_topology *m);

enum gn_nearness gn_topology_nearness(const struct gn_topology *m, int gpu, int nic);
/* Index, or -1. A GPU by its PCI address (letters of either case), a network device by name, "mlx5_0:1" is "mlx5_0". */
int gn_topology_find_gpu(const struct gn_topology *m, const char *pci);
int gn_topology_find_nic(const struct gn_topology *m, const char *name);
/* The NUMA node that all of these processors are on; -1: several, or none. */
int gn_topology_numa_of(const struct gn_topology *m, const cpu_set_t *cpus);

#endif
