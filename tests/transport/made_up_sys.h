/* Files of a /sys that is made up, for what reads devices there. */
#ifndef TESTS_TRANSPORT_MADE_UP_SYS_H
#define TESTS_TRANSPORT_MADE_UP_SYS_H

#include "tests/test.h"

#include "src/base/file.h"

#include <stdio.h>
#include <string.h>

/* root/class/PATH, with the folders that it takes. */
static inline void put_sys(const char *root, const char *path, const char *text)
{
	char full[512], *slash;
	struct gn_err err;

	snprintf(full, sizeof full, "%s/class/%s", root, path);
	slash = strrchr(full, '/');
	*slash = 0;
	assert_ok(gn_make_dirs(full, &err));
	*slash = '/';
	assert_ok(gn_file_replace(full, text, strlen(text), &err));
}

#endif
