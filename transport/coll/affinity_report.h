/* The log lines at start that say which processors, GPU and network devices each rank uses, and which of them are on different
 * NUMA nodes (transport/topology/affinity.h).
 */
#ifndef GN_TRANSPORT_COLL_AFFINITY_REPORT_H
#define GN_TRANSPORT_COLL_AFFINITY_REPORT_H

#include "transport/coll/comm.h"

/* Collective; blocks for two exchanges over the bootstrap. Rank 0 logs the placement of its own node's ranks and of each node that
 * differs, and warns of each fault. gpu: PCI address of this rank's GPU, NULL: none. A topology that cannot be read is a warning,
 * not an error. */
enum gn_status gn_affinity_report(struct gn_comm *c, const char *gpu, struct gn_log *log, struct gn_err *err);

#endif
