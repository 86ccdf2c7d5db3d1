/* One communicator's use of the network: where it logs, and an engine for each device that is in use.
 *
 * An engine is opened by the first listener or connection that wants it and closed with the last, so that nothing is left
 * behind when a communicator is gone, with or without finalize(), which older interfaces do not have.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H
#define GN_TRANSPORT_NCCL_PLUGIN_CONTEXT_H

#include "transport/nccl/plugin/device.h"
#include "transport/nccl/plugin/worker.h"

struct gn_context;

/* devices is borrowed; traffic_class -1: none. */
enum gn_status gn_context_create(const struct gn_plugin_log *report, const struct gn_device_table *devices, int traffic_class,
				 struct gn_context **out, struct gn_err *err);
/* What is still in use goes with its last user. NULL is fine. */
void gn_context_destroy(struct gn_context *c);
/* Ends the threads of all contexts there are: the library goes, perhaps with the process. */
void gn_contexts_rest(void);
const struct gn_plugin_log *gn_context_report(const struct gn_context *c);

/* Counts a user. GN_ERR_USAGE: there is no such device. */
enum gn_status gn_context_enter(struct gn_context *c, int device, struct gn_worker **out, struct gn_err *err);
/* Counts a user of an engine that has one already. */
void gn_context_stay(struct gn_context *c, struct gn_worker *e);
/* And one less. The engine's lock may not be held. */
void gn_context_leave(struct gn_context *c, struct gn_worker *e);

#endif
