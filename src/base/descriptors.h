/* How many files, sockets and pipes this process may have open: RLIMIT_NOFILE.
 *
 * Systems give a soft limit of 1,024 for the sake of programs that use select(), and a hard one that is much larger; nothing
 * here uses select(), and rank 0 of a large job has a connection to each rank. Children inherit what is raised.
 */
#ifndef GN_BASE_DESCRIPTORS_H
#define GN_BASE_DESCRIPTORS_H

#include "src/base/status.h"

#include <stddef.h>

/* Raises the soft limit to the hard one. GN_ERR_FAILED, which names what_for and `ulimit -n`, when that is still below wanted
 * descriptors. Does not block; one thread. */
enum gn_status gn_descriptors_want(size_t wanted, const char *what_for, struct gn_err *err);

#endif
