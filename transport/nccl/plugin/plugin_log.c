#include "transport/nccl/plugin/plugin_log.h"

#include <stdio.h>

static void write_log(const struct gn_plugin_log *r, enum gn_nccl_log_level level, const char *format, va_list args)
{
	char text[GN_ERR_TEXT_MAX];

	if (!r->logger)
		return;
	vsnprintf(text, sizeof text, format, args);
	r->logger(level, GN_NCCL_SUB_INIT | GN_NCCL_SUB_NET, __FILE__, __LINE__, "NET/gannet: %s", text);
}

void gn_plugin_log_warn(const struct gn_plugin_log *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_log(r, GN_NCCL_LOG_WARN, format, args);
	va_end(args);
}

void gn_plugin_log_info(const struct gn_plugin_log *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_log(r, GN_NCCL_LOG_INFO, format, args);
	va_end(args);
}

enum gn_nccl_result gn_plugin_log_result(const struct gn_plugin_log *r, enum gn_status status, const struct gn_err *err)
{
	if (status)
		gn_plugin_log_warn(r, "%s", err->text);
	switch (status) {
	case GN_OK:
		return GN_NCCL_SUCCESS;
	case GN_ERR_PEER_LOST:
		return GN_NCCL_REMOTE_ERROR;
	case GN_ERR_USAGE:
		return GN_NCCL_INVALID_USAGE;
	case GN_ERR_UNSUPPORTED:
		return GN_NCCL_INVALID_ARGUMENT;
	default:
		return GN_NCCL_SYSTEM_ERROR;
	}
}
