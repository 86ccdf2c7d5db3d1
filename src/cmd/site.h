/* The site's configuration: one file for all users of a machine, of lower rank than what a user says.
 *
 * It is the file that $GANNET_CONF names (empty: none), else gannet.conf in configure's sysconfdir, else /etc/gannet.conf.
 * Lines are KEY = VALUE; # begins a comment. Keys: tuning (a table of gannet tune, used where the user has none), interfaces (as
 * UCX_NET_DEVICES), local (as GANNET_LOCAL), join_timeout, heartbeat_timeout, stall_timeout (transport/bootstrap/limits.h),
 * socket_ifname (transport/bootstrap/world.h). Each becomes the environment variable that a user would set, unless it is set.
 * A file that somebody else than root or this user could have written is not read. src/man/site.md tells administrators.
 *
 * Thread safety: called once, before there are other threads, for it sets environment variables.
 */
#ifndef GN_CMD_SITE_H
#define GN_CMD_SITE_H

#include "src/base/log.h"

#include <stddef.h>

/* Reads and applies it; without_tuning for a command that writes a tuning table, which is the user's own. path: the file in use,
 * "" when there is none. What is wrong with it is a warning in log, with file and line; log may be NULL. */
void gn_site_apply(struct gn_log *log, int without_tuning, char *path, size_t path_size);

#endif
