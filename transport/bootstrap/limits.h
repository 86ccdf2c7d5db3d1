/* For how long ranks wait for each other before the job ends: to join, for a heartbeat, for anything to move.
 *
 * Each limit is what an option says, else an environment variable, else a default that grows with the number of ranks p:
 *
 *   join       GANNET_JOIN_TIMEOUT       60 s + 60 ms * p
 *   heartbeat  GANNET_HEARTBEAT_TIMEOUT  5 s, and above 64 ranks 1 s more for each doubling: 9 s at 1,024, 11 s at 4,096
 *   stall      GANNET_STALL_TIMEOUT      the heartbeat's default, or the heartbeat's limit where that is longer
 *
 * What ranks need to join is served to one after the other (programs and libraries from one file server, processes by the launcher,
 * handshakes by rank 0), so its time is linear in p. The other two end when the slowest of p hosts or connections is too late:
 * the longest of p independent delays with exponential tails (paging, scheduling, retransmission) grows with log p. A stall
 * that were found before a missing heartbeat would hide which host is gone. Rank 0's limits count for all ranks.
 *
 * Pure functions but for the environment and the log. Any thread.
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

/* In seconds; 0: not given. Travels between ranks as it is. */
struct gn_limits {
	double join_s, heartbeat_s, stall_s;
};

void gn_limits_default(int ranks, struct gn_limits *out);
/* A number of seconds from GN_LIMITS_MIN_S to GN_LIMITS_MAX_S; GN_ERR_USAGE otherwise. */
enum gn_status gn_limits_parse(const char *text, double *out, struct gn_err *err);
/* Fills in what is not given by the environment or else the default. GN_ERR_USAGE names a variable that is no number of seconds. */
enum gn_status gn_limits_resolve(struct gn_limits *limits, int ranks, struct gn_err *err);
/* Rank 0's instead of this rank's own, with a warning when this rank was told others. GN_ERR_MISMATCH: no limits. log may be NULL. */
enum gn_status gn_limits_take(struct gn_limits *limits, const struct gn_limits *theirs, int rank, int ranks, struct gn_log *log,
			      struct gn_err *err);

#endif
