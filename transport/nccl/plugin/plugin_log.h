/* What the plugin says goes to NCCL's own log (NCCL_DEBUG), never to a file descriptor. Any thread. */
#ifndef GN_NCCLNET_REPORT_H
#define GN_NCCLNET_REPORT_H

#include "transport/nccl/plugin/abi.h"
#include "src/base/status.h"

struct gn_report {
	gn_nccl_logger *logger; /* NULL is silent */
};

void gn_report_warn(const struct gn_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gn_report_info(const struct gn_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warns with err's text unless status is GN_OK, and returns NCCL's code for status. */
enum gn_nccl_result gn_report_result(const struct gn_report *r, enum gn_status status, const struct gn_err *err);

#endif
