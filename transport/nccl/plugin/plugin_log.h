/* Messages of the plugin go to NCCL's log (NCCL_DEBUG) only. Thread safety: any thread. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_PLUGIN_LOG_H
#define GN_TRANSPORT_NCCL_PLUGIN_PLUGIN_LOG_H

#include "transport/nccl/plugin/abi.h"
#include "src/base/status.h"

struct gn_plugin_log {
	gn_nccl_logger *logger; /* NULL: no messages */
};

void gn_plugin_log_warn(const struct gn_plugin_log *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gn_plugin_log_info(const struct gn_plugin_log *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warns with err's text unless status is GN_OK, and returns NCCL's code for status. */
enum gn_nccl_result gn_plugin_log_result(const struct gn_plugin_log *r, enum gn_status status, const struct gn_err *err);

#endif
