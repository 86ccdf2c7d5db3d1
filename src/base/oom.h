/* What this process's control group says of memory: its limit, and whether the kernel has ended processes for lack of it.
 *
 * Control groups of version 2 (memory.events) and 1 (memory.oom_control), as far as /proc/self/cgroup and /sys/fs/cgroup show them.
 * Thread safety: any thread. Nothing here fails: what cannot be read counts as 0.
 */
#ifndef GN_BASE_OOM_H
#define GN_BASE_OOM_H

#include <stddef.h>
#include <stdint.h>

/* How many so far. */
uint64_t gn_oom_kills(void);
/* Of a process that has ended by itself or by SIGKILL (was_killed): writes ": out of memory, its cgroup's limit is 2.00 GiB" if the kernel has ended
 * processes since there were `before`, else "". Returns text. */
const char *gn_oom_describe(uint64_t before, int was_killed, char *text, size_t size_bytes);
/* The lowest limit of this control group and those above it, in bytes; 0: none, or not known. */
uint64_t gn_oom_limit_bytes(void);
/* What these groups may take before the kernel ends a process: the least of limit - usage, files that can be dropped not counted; UINT64_MAX:
 * there is no limit. */
uint64_t gn_oom_room_bytes(void);

#endif
