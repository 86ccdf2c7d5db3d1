/* Options of every command with several ranks: struct gn_world_options of transport/bootstrap/world.h.
 *
 * A command's target embeds a struct gn_world_options as `member`, and its option table ends with this macro.
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
		     "seconds for all ranks to connect; rank 0's limits apply to all (default: " GN_LIMITS_JOIN                    \
		     ", or 60 plus 60 per 1,000 ranks)"),                                                                 \
	GN_CMD_LIMIT(type, member, "heartbeat-timeout", heartbeat_s,                                                               \
		     "seconds without a heartbeat until a rank is lost; a closed connection counts immediately (default: " \
		     GN_LIMITS_HEARTBEAT ", or 5, plus 1 per doubling above 64 ranks)"),                                  \
	GN_CMD_LIMIT(type, member, "stall-timeout", stall_s,                                                                       \
		     "seconds without progress on any rank until the job ends (default: " GN_LIMITS_STALL                    \
		     ", or --heartbeat-timeout, but at least its default)"),                                                \
	GN_OPT_FLAG("encrypt-network", offsetof(type, member.encrypt), "encrypt and authenticate messages between nodes (AES-256-GCM, " \
		    "keys from the job's secret), on all ranks; " GN_WORLD_ENCRYPT "=1 in the environment does the same; not with NCCL, " \
		    "nor GPUDirect"), \
	GN_OPT_TEXT("socket-ifname", offsetof(type, member.ifnames), "LIST", "interfaces for bootstrap and heartbeats, as " \
		    "NCCL_SOCKET_IFNAME: name prefixes separated by commas; =eth0: only that; ^docker: all others (default: " \
		    GN_WORLD_IFNAMES ", or all)")
/* clang-format on */

#endif
