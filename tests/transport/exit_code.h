/* The codes that gannet itself ends with, for programs of the tests. */
#ifndef GN_TESTS_TRANSPORT_EXIT_CODE_H
#define GN_TESTS_TRANSPORT_EXIT_CODE_H

#include "src/base/status.h"

#include <stdio.h>

static inline int exit_code(const struct gn_err *err)
{
	fprintf(stderr, "%s\n", err->text);
	switch (err->status) {
	case GN_ERR_USAGE:
	case GN_ERR_MISMATCH:
		return 2;
	case GN_ERR_PEER_LOST:
	case GN_ERR_STALL:
		return 4;
	default:
		return 1;
	}
}

#endif
