/* What the plugin offers NCCL as devices: one for each rail (transport/topology/rails.h), in UCX's words, or a single one, "ucx", where
 * UCX is to choose by itself: over shared memory alone, on a machine with only the loopback device.
 *
 * GPU memory is offered where this UCX knows CUDA memory (ucp_context_query), and is then registered and, over a device that
 * cannot reach it, staged by UCX. DMA-BUF is never offered: it would have to be proven by registering one, and UCX 1.13 takes
 * no descriptor of one; given a GPU pointer it exports and registers the DMA-BUF by itself.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_DEVICE_H
#define GN_TRANSPORT_NCCL_PLUGIN_DEVICE_H

#include "src/base/status.h"
#include "transport/topology/rails.h"

#include <stdint.h>

struct gn_device {
	char name[GN_RAIL_NAME_MAX];	 /* as NCCL prints it */
	char ucx_name[GN_RAIL_NAME_MAX]; /* "": all */
	char *pci_path;			 /* NULL: none */
	uint64_t guid;
	int mbit_per_s, port;
};

struct gn_device_table {
	struct gn_device items[GN_RAILS_MAX];
	int count;
	int pointers; /* GN_NCCL_PTR_ bits */
};

/* Opens UCX once to see that it can be used and which memory it knows. */
enum gn_status gn_device_table_read(struct gn_device_table *out, struct gn_err *err);
void gn_device_table_release(struct gn_device_table *t);

#endif
