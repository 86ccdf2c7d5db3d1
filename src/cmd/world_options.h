/* The options that every command of several ranks has: what transport/bootstrap/world.h takes from its caller.
 *
 * A command's target embeds a struct gn_world_options as `member`, and its table of options ends with these.
 */
#ifndef GN_CMD_WORLD_OPTIONS_H
#define GN_CMD_WORLD_OPTIONS_H

#include "src/base/option.h"
#include "transport/bootstrap/world.h"

#include <stddef.h>

#define GN_CMD_LIMIT(type, member, option, field, text)                                                                           \
	{.name = option, .kind = GN_OPTION_REAL, .offset = offsetof(type, member.limits.field), .value_name = "S",                 \
	 .min = GN_LIMITS_MIN_S, .max = GN_LIMITS_MAX_S, .help = text}
/* clang-format off */
#define GN_CMD_WORLD_OPTIONS(type, member)                                                                                        \
	GN_CMD_LIMIT(type, member, "join-timeout", join_s,                                                                         \
		     "seconds for all ranks to arrive; rank 0's limits count for all (default: " GN_LIMITS_JOIN                    \
		     ", or 60 and 60 more for each 1,000 ranks)"),                                                                 \
	GN_CMD_LIMIT(type, member, "heartbeat-timeout", heartbeat_s,                                                               \
		     "seconds without a sign of life until a rank is lost; one whose connection closes is lost at once (default: " \
		     GN_LIMITS_HEARTBEAT ", or 5, and above 64 ranks 1 more for each doubling)"),                                  \
	GN_CMD_LIMIT(type, member, "stall-timeout", stall_s,                                                                       \
		     "seconds in which nothing moves on any rank until the job ends (default: " GN_LIMITS_STALL                    \
		     ", or as --heartbeat-timeout, and no less than its default)"),                                                \
	{.name = "socket-ifname", .kind = GN_OPTION_TEXT, .offset = offsetof(type, member.ifnames), .value_name = "LIST",          \
	 .help = "interfaces for heartbeats and start, as NCCL_SOCKET_IFNAME: prefixes of names, separated by commas; =eth0: this " \
		 "one; ^docker: all but these (default: " GN_WORLD_IFNAMES ", or all)"}
/* clang-format on */

#endif
