/* The limit of open files, sockets and pipes of this process: RLIMIT_NOFILE.
 *
 * Systems set a soft limit of 1,024 for programs that use select(), and a much larger hard limit. Gannet does not use select(), and
 * rank 0 of a large job has a connection to each rank. Child processes inherit the raised limit.
 */
#ifndef GN_BASE_DESCRIPTORS_H
#define GN_BASE_DESCRIPTORS_H

#include "src/base/status.h"

#include <stddef.h>

/* Raises the soft limit to the hard limit. GN_ERR_FAILED, naming what_for and `ulimit -n`, when the limit is still below wanted
 * descriptors. Does not block; not thread-safe. */
enum gn_status gn_descriptors_want(size_t wanted, const char *what_for, struct gn_err *err);

#endif
