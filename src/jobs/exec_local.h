/* What one process finds out about its own machine before the program starts, and how the processes of a node share it.
 *
 * struct gn_exec_local travels between ranks as it is. Thread safety: any thread.
 */
#ifndef GN_JOBS_EXEC_LOCAL_H
#define GN_JOBS_EXEC_LOCAL_H

#include "src/base/status.h"
#include "transport/topology/topology.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

struct gn_exec_local {
	cpu_set_t cpus;		   /* that this process may run on */
};

/* A port that is free and that the system gives to no connection by itself (outside of net.ipv4.ip_local_port_range), drawn at
 * random; it is held by *listener until that is closed. */
enum gn_status gn_exec_local_port(int32_t *port, int *listener, struct gn_err *err);
/* This host's address and interface on the way to master; known: the address, when it is known already. Empty when there is no way. */
void gn_exec_local_address(const char *known, const char *master, int port, char address[64], char ifname[64]);
/* cores: of `count` processes of this node the share of number `rank`, near its GPU; none where they were bound before (their sets
 * differ) or there are fewer processors than processes. gpus: indices in order of PCI address, so that number `rank` has its own at
 * that place; "" without GPUs. */
void gn_exec_local_share(const struct gn_exec_local *const *all, int count, int rank, cpu_set_t *cores, char *gpus, size_t gpus_size);

/* For each of count processes a GPU that no other has, of its own NUMA node where there is one; several share where there are fewer
 * GPUs. own[count]: which; order[m->gpu_count]: the processes' GPUs in their order, then those that are left. Returns how many. */
int gn_exec_local_order_gpus(const struct gn_topology *m, const cpu_set_t *cpus, int count, int *order, int *own);

#endif
