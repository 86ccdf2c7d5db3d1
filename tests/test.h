/* What every unit test includes: cmocka, and an assertion for calls that report through struct gn_err. */
#ifndef GN_TESTS_TEST_H
#define GN_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/base/status.h"

/* call is an expression that uses a `struct gn_err err` in scope. */
#define assert_ok(call)                                                                                                \
	do {                                                                                                           \
		if ((call) != GN_OK)                                                                                   \
			fail_msg("%s: %s", #call, err.text);                                                           \
	} while (0)

#endif
