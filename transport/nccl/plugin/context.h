/* The plugin's state of one communicator: its log, and a worker for each device in use.
 *
 * A worker is created by the first listener or connection that needs it and destroyed with the last, so that nothing is left when a
 * communicator is gone, with or without finalize(), which older interfaces do not have.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H
#define GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H

#include "src/base/status.h"
#include "transport/nccl/plugin/worker.h"
#include "transport/topology/rails.h"

#include <stdint.h>

/* The devices that the plugin reports to NCCL: one per rail (transport/topology/rails.h) under its UCX name, or a single one named
 * "ucx" for which UCX chooses: when UCX uses shared memory only, or the host has only the loopback device.
 *
 * GPU memory is supported if this UCX supports CUDA memory (ucp_context_query): UCX registers it, and stages it for devices that
 * cannot access it. DMA-BUF is never reported: UCX 1.13 does not accept a DMA-BUF descriptor; given a GPU pointer it exports and
 * registers the DMA-BUF by itself. */

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

struct gn_context;

/* devices is borrowed; traffic_class -1: none. */
enum gn_status gn_context_create(const struct gn_plugin_log *log, const struct gn_device_table *devices, int traffic_class,
				 struct gn_context **out, struct gn_err *err);
/* Destroys listeners and connection attempts; what connections still use is freed with the last of them. NULL is fine. */
void gn_context_destroy(struct gn_context *c);
/* Stops the progress threads of all contexts, before the library is unloaded or the process ends. */
void gn_contexts_stop_threads(void);
const struct gn_plugin_log *gn_context_log(const struct gn_context *c);

/* The worker of a device, with one user more. GN_ERR_USAGE: there is no such device. */
enum gn_status gn_context_get_worker(struct gn_context *c, int device, struct gn_worker **out, struct gn_err *err);
/* One user more of a worker that has users. */
void gn_context_ref_worker(struct gn_context *c, struct gn_worker *w);
/* One user less; the last destroys the worker, which may block for a second. The worker's lock must not be held. */
void gn_context_put_worker(struct gn_context *c, struct gn_worker *w);

#endif
