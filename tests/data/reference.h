/* Files of reference numbers, which stand beside the tests in the source folder. */
#ifndef GN_TESTS_DATA_REFERENCE_H
#define GN_TESTS_DATA_REFERENCE_H

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>

/* Fails the test when it is missing; the caller closes it. */
static inline FILE *open_reference(const char *name)
{
	const char *source = getenv("GN_SOURCE");
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", source ? source : ".", name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s is missing: set GN_SOURCE to the source folder", path);
	return f;
}

#endif
