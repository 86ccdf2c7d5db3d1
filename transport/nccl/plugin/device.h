/* The devices that the plugin reports to NCCL: one per rail (transport/topology/rails.h) under its UCX name, or a single one named
 * "ucx" for which UCX chooses: when UCX uses shared memory only, or the host has only the loopback device.
 *
 * GPU memory is supported if this UCX supports CUDA memory (ucp_context_query): UCX registers it, and stages it for devices that
 * cannot access it. DMA-BUF is never reported: UCX 1.13 does not accept a DMA-BUF descriptor; given a GPU pointer it exports and
 * registers the DMA-BUF by itself.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_DEVICE_H
#define GN_TRANSPORT_NCCL_PLUGIN_DEVICE_H

#include "src/base/status.h"
#include "transport/topology/rails.h"

#include <stdint.h>

struct gn_device {
	char name[GN_RAIL_NAME_MAX];	 /* as NCCL prints it */
	char ucx_name[GN_RAIL_NAME_MAX]; /* "": UCX may use all */
	char *pci_path;			 /* NULL: none */
	uint64_t guid;
	int mbit_per_s, port;
};

struct gn_device_table {
	struct gn_device items[GN_RAILS_MAX];
	int count;
	int pointers; /* GN_NCCL_PTR_ bits */
};

/* Creates a UCX context for a moment, to find out whether UCX works and which memory it supports. */
enum gn_status gn_device_table_read(struct gn_device_table *out, struct gn_err *err);
void gn_device_table_release(struct gn_device_table *t);

#endif
