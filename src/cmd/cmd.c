#include "src/cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int gn_cmd_exit_code(enum gn_status status)
{
	switch (status) {
	case GN_OK:
		return GN_EXIT_DONE;
	case GN_ERR_USAGE:
	case GN_ERR_MISMATCH:
		return GN_EXIT_USAGE;
	case GN_ERR_DATA:
		return GN_EXIT_DATA;
	case GN_ERR_NOT_FOUND:
		return GN_EXIT_DATA;
	case GN_ERR_PEER_LOST:
	case GN_ERR_STALL:
		return GN_EXIT_PEER_LOST;
	case GN_ERR_STOPPED:
		return GN_EXIT_STOPPED;
	default:
		return GN_EXIT_FAILED;
	}
}

int gn_cmd_fail(const char *name, const struct gn_err *err)
{
	fprintf(stderr, "gannet %s: %s\n", name, err->text);
	return gn_cmd_exit_code(err->status);
}

struct gn_log *gn_cmd_log(void)
{
	const char *wanted = getenv("GANNET_LOG");
	enum gn_log_level level = GN_LOG_INFO;
	struct gn_log *log = NULL;
	struct gn_err err;

	if (wanted && gn_log_level_parse(wanted, &level, &err))
		fprintf(stderr, "gannet: GANNET_LOG: %s\n", err.text);
	if (gn_log_create(STDERR_FILENO, level, &log, &err))
		return NULL;
	return log;
}
