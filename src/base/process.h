/* What the kernel says of processes, in /proc. Any thread. */
#ifndef GN_BASE_PROCESS_H
#define GN_BASE_PROCESS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gn_process {
	char state; /* as ps has it: 'T' stopped, 'Z' ended and not waited for */
	pid_t parent, group;
	int64_t start; /* clock ticks since boot */
};

/* Whether there is one of that number; it may have ended. */
int gn_process_read(int64_t pid, struct gn_process *out);
/* Whether it has ended, and only waits for its parent. */
int gn_process_has_ended(const struct gn_process *p);
/* Seconds since the kernel started this process, to its tick of 10 ms; -1: /proc does not say. */
double gn_process_age_s(void);

/* The limit of open files, sockets and pipes of this process: RLIMIT_NOFILE.
 *
 * Systems set a soft limit of 1,024 for programs that use select(), and a much larger hard limit. Gannet does not use select(), and
 * rank 0 of a large job has a connection to each rank. Child processes inherit the raised limit.
 */

/* Raises the soft limit to the hard limit. GN_ERR_FAILED, naming what_for and `ulimit -n`, when the limit is still below wanted
 * descriptors. Does not block; not thread-safe. */
enum gn_status gn_descriptors_want(size_t wanted, const char *what_for, struct gn_err *err);

#endif
