/* Names of hosts in the compact form of Slurm's hostlists: n[1-4,7],login. Thread safety: a pure function. */
#ifndef GN_BASE_HOSTLIST_H
#define GN_BASE_HOSTLIST_H

#include "src/base/strbuf.h"

#include <stddef.h>

/* Appends count names, in their order. Names that differ only in a number at their end share brackets when they follow each
 * other; consecutive numbers of the same width become a range. */
void gn_hostlist_append(struct gn_strbuf *out, const char *const *names, size_t count);

#endif
