/* Time limits of waits between ranks: for all ranks to join, for a heartbeat, for an operation to make progress.
 *
 * Each limit is set by an option, else by an environment variable, else it has a default that depends on the number of ranks p:
 *
 *   join       GANNET_JOIN_TIMEOUT       60 s + 60 ms * p
 *   heartbeat  GANNET_HEARTBEAT_TIMEOUT  5 s, and above 64 ranks 1 s more for each doubling: 9 s at 1,024, 11 s at 4,096
 *   stall      GANNET_STALL_TIMEOUT      the heartbeat's default, or the heartbeat's limit if that is longer
 *
 * What ranks need to join is provided to one after the other (programs and libraries by a file server, processes by the launcher,
 * handshakes by rank 0), so its time is linear in p. The other two are exceeded by the slowest of p hosts or connections: the
 * maximum of p independent delays with exponential tails (paging, scheduling, retransmission) grows with log p. A stall limit below
 * the heartbeat's would report a stall before the lost host that causes it. Rank 0's limits apply to all ranks.
 *
 * Pure functions except for the environment and the log. Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_LIMITS_H
#define GN_TRANSPORT_BOOTSTRAP_LIMITS_H

#include "src/base/log.h"
#include "src/base/status.h"

#define GN_LIMITS_MIN_S 1
#define GN_LIMITS_MAX_S 86400
#define GN_LIMITS_JOIN "GANNET_JOIN_TIMEOUT"
#define GN_LIMITS_HEARTBEAT "GANNET_HEARTBEAT_TIMEOUT"
#define GN_LIMITS_STALL "GANNET_STALL_TIMEOUT"

/* In seconds; 0: not set. Sent between ranks as it is in memory. */
struct gn_limits {
	double join_s, heartbeat_s, stall_s;
};

/* The defaults for a number of ranks. */
void gn_limits_default(int ranks, struct gn_limits *out);
/* Parses a number of seconds from GN_LIMITS_MIN_S to GN_LIMITS_MAX_S; GN_ERR_USAGE if it is none. */
enum gn_status gn_limits_parse(const char *text, double *out, struct gn_err *err);
/* Resolves the limits that are not set: from the environment, else the default. GN_ERR_USAGE names an invalid variable. */
enum gn_status gn_limits_resolve(struct gn_limits *limits, int ranks, struct gn_err *err);
/* Replaces this rank's limits by rank 0's; warns when this rank was configured with others. GN_ERR_MISMATCH when rank 0's are
 * invalid. log may be NULL. */
enum gn_status gn_limits_take(struct gn_limits *limits, const struct gn_limits *theirs, int rank, int ranks, struct gn_log *log,
			      struct gn_err *err);

#endif
