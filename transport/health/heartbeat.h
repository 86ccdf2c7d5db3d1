/* Failure detection: rank 0 (the coordinator) holds a TCP connection to every other rank (the members); each process has one
 * heartbeat thread, which sends a message a second.
 *
 * Lost ranks: a rank is lost when its connection closes before it has announced that it leaves, or when no message from it arrives
 * within a time limit. Rank 0 queries the state of the other ranks (a few tenths of a second at most) and then reports the loss and
 * their states to all. The others go on: further losses are detected and reported in the same way. Members detect the loss of rank
 * 0 themselves; because it coordinates, that loss ends the job for all of them.
 *
 * Orderly exit: a rank that announces its exit is not lost, but whoever waits for it for more than three seconds afterwards gets an
 * error (where it was not the first to leave, up to a second later).
 *
 * Stalls: when no operation makes progress although all ranks are alive, rank 0 compares the flight records of all ranks, and its
 * diagnosis ends the job on all ranks.
 *
 * Only peers that know the job's secret can join (transport/auth/handshake.h). Other connections are closed and logged.
 *
 * Thread safety: the check functions from any thread, the others from one thread.
 */
#ifndef GN_TRANSPORT_HEALTH_HEARTBEAT_H
#define GN_TRANSPORT_HEALTH_HEARTBEAT_H

#include "src/base/log.h"
#include "src/base/status.h"
#include "transport/auth/net.h"
#include "transport/health/recorder.h"
#include "transport/auth/secret.h"

#include <stdint.h>

struct gn_heartbeat;

/* Where members connect to; rank 0 distributes it through the bootstrap. */
struct gn_heartbeat_contact {
	int32_t port;
	struct gn_net_addresses addresses;
};

struct gn_heartbeat_options {
	int rank, size;
	int silent_after_ms; /* a rank from which no message arrives for this long is lost */
	int timeout_ms;	     /* for all ranks to join */
	struct gn_secret secret;
	struct gn_recorder *recorder; /* borrowed; NULL: stalls are not detected */
	struct gn_log *log; /* refused connections; borrowed, may be NULL, outlives the heartbeat */
	/* Members, while they join: GN_OK, or why rank 0 has cancelled the start. NULL: never cancelled. */
	enum gn_status (*check_cancelled)(void *context, struct gn_err *err);
	void *context;
	/* Rank 0, borrowed by gn_heartbeat_host(): */
	const char *address; /* the only address to listen on and to publish; NULL: see ifnames */
	const char *ifnames; /* the interfaces to publish, see gn_net_ifname_matches(); NULL: all */
};

/* Rank 0: starts the heartbeat thread and listens, on one address if only one is published. *contact is what members need to join.
 * A member that has not joined after timeout_ms is lost. Does not block. */
enum gn_status gn_heartbeat_host(const struct gn_heartbeat_options *options, struct gn_heartbeat **out,
				 struct gn_heartbeat_contact *contact, struct gn_err *err);
/* Rank 0, once all ranks run and have its contact: a member that has not joined silent_after_ms plus 1 ms per rank from now is
 * lost. No effect on other ranks. */
void gn_heartbeat_expect_all(struct gn_heartbeat *h);
/* Members: connect to rank 0, trying its addresses in order. Blocks for at most silent_after_ms plus 1 ms per rank; returns early
 * when all addresses refuse connections. GN_ERR_PEER_LOST: rank 0 does not answer; GN_ERR_USAGE: it refuses this rank; or the
 * status of check_cancelled. */
enum gn_status gn_heartbeat_join(const struct gn_heartbeat_options *options, const struct gn_heartbeat_contact *contact,
				 struct gn_heartbeat **out, struct gn_err *err);
/* Host names of all ranks for messages: `size` texts of at most 255 characters, copied. Before this call rank 0 names the address
 * from which a lost rank had connected. */
enum gn_status gn_heartbeat_name_hosts(struct gn_heartbeat *h, const char *const *host_of, struct gn_err *err);

/* GN_OK; GN_ERR_PEER_LOST with rank, host, reason and cause of the first lost rank; GN_ERR_STALL or GN_ERR_MISMATCH with the diagnosis.
 * Each text ends with the state of this rank. A cause is told by the rank that has it and by rank 0. Costs one atomic load when the job is
 * healthy. */
enum gn_status gn_heartbeat_check(const struct gn_heartbeat *h, struct gn_err *err);
/* The same for a caller that has been waiting for peers since started_ns (gn_clock_ns): also GN_ERR_PEER_LOST when a rank left the
 * job more than three seconds ago. */
enum gn_status gn_heartbeat_check_wait(const struct gn_heartbeat *h, uint64_t started_ns, struct gn_err *err);
/* The same for a caller that depends on `count` ranks alone: GN_ERR_PEER_LOST if one of them is lost (names the first), or rank 0;
 * GN_ERR_STALL or GN_ERR_MISMATCH. With started_ns not 0 also if one of them has left. ranks NULL: 0 .. count - 1. */
enum gn_status gn_heartbeat_check_ranks(const struct gn_heartbeat *h, const int *ranks, int count, uint64_t started_ns,
					struct gn_err *err);
int gn_heartbeat_is_lost(const struct gn_heartbeat *h, int rank);
/* Rank 0: when the last message of a rank arrived (gn_clock_ns), to a tenth of a second; 0 of a rank that is not connected, and elsewhere. */
uint64_t gn_heartbeat_heard_ns(const struct gn_heartbeat *h, int rank);
/* Rises with each lost rank, and with a failure of the job; 0: all is well. */
unsigned gn_heartbeat_losses(const struct gn_heartbeat *h);
/* Of rank 0, or of another one when rank 0 is lost: whether a lost rank may still be there, since it went silent or did not join. */
int gn_heartbeat_has_silent(const struct gn_heartbeat *h);
/* Whether a rank has left the job in an orderly way: connections may then close without a loss. */
int gn_heartbeat_anyone_left(const struct gn_heartbeat *h);
/* Reports to all other ranks that this rank aborts: they see it as lost, with `why` (at most 400 characters) as the reason and `cause` as
 * their error's; GN_OK: it decides nothing. GN_ERR_PEER_LOST: `why` names another rank that is lost, and is their error's whole text. Does
 * not block. */
void gn_heartbeat_abort(struct gn_heartbeat *h, enum gn_status cause, const char *why);
enum gn_heartbeat_exit {
	GN_HEARTBEAT_EXIT_SILENT,   /* only closes the connections: the other ranks see this one as lost */
	GN_HEARTBEAT_EXIT_TOGETHER, /* collective: announces the exit and blocks until all ranks that are not lost have left, the job
				      * has failed, or rank 0 is lost */
	GN_HEARTBEAT_EXIT_ALONE,    /* announces the exit and does not wait; of rank 0: the other ranks see it as lost */
	GN_HEARTBEAT_EXIT_LAST	    /* of rank 0: as TOGETHER, for 3 s at most */
};
/* NULL is fine. */
void gn_heartbeat_destroy(struct gn_heartbeat *h, enum gn_heartbeat_exit how);

#endif
