/* The plugin's state of one communicator: its log, and a worker for each device in use.
 *
 * A worker is created by the first listener or connection that needs it and destroyed with the last, so that nothing is left when a
 * communicator is gone, with or without finalize(), which older interfaces do not have.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H
#define GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H

#include "transport/nccl/plugin/device.h"
#include "transport/nccl/plugin/worker.h"

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
