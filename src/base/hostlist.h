/* Host names in Slurm's hostlist form: n[1-4,7],login. Thread safety: pure function. */
#ifndef GN_BASE_HOSTLIST_H
#define GN_BASE_HOSTLIST_H

#include "src/base/strbuf.h"

#include <stddef.h>

/* Appends count names in their order. Successive names that differ only in a trailing number share brackets; consecutive numbers of
 * equal width become a range. */
void gn_hostlist_append(struct gn_strbuf *out, const char *const *names, size_t count);

#endif
