/* Who is still alive: one TCP connection from each rank to rank 0, a thread in each process, a heartbeat a second.
 *
 * A connection that ends without a goodbye, or is silent for too long, is a lost rank; rank 0 asks all others what they are in,
 * and tells all of the loss with what they said, some tenths of a second later if one does not answer. The loss of rank 0 is seen
 * by all, each for itself. The first loss is kept for good. A rank that leaves orderly is no loss, but whoever then
 * waits for it for more than a few seconds is told so. When nothing moves any more although all are alive, rank 0 lays the
 * ranks' flight records side by side and its verdict ends the job on all ranks. Joining takes the job's secret
 * (transport/auth/handshake.h): strangers and garbage on the port are dropped without harm.
 *
 * Thread safety: the checks from any thread; the rest from one.
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

/* What rank 0 publishes through the bootstrap. */
struct gn_heartbeat_contact {
	int32_t port;
	struct gn_net_addresses addresses;
};

struct gn_heartbeat_options {
	int rank, size;
	int silent_after_ms; /* no sign of life for this long is a loss */
	int timeout_ms;	     /* for everyone to come */
	struct gn_secret secret;
	struct gn_recorder *recorder; /* borrowed; NULL: stalls are not noticed */
	struct gn_log *log; /* who was refused; may be NULL, and outlives the watch */
	/* Whoever joins: whether that is of no use any more, GN_OK when it is, else why. NULL: nobody can tell. */
	enum gn_status (*called_off)(void *context, struct gn_err *err);
	void *context;
	const char *address; /* rank 0: where all ranks reach it; NULL: by those of ifnames. Borrowed by gn_heartbeat_host */
	const char *ifnames; /* rank 0: its interfaces for that, see gn_net_ifname_matches(); NULL: all. Borrowed as well */
};

/* Rank 0: listens, on one address when there is only one, and makes an invitation to hand out; the thread runs from here on. Whoever has not joined timeout_ms later is
 * lost. */
enum gn_status gn_heartbeat_host(const struct gn_heartbeat_options *options, struct gn_heartbeat **out,
			     struct gn_heartbeat_contact *invitation, struct gn_err *err);
/* Rank 0, when all are there and have its invitation: whoever has not joined silent_after_ms (and a millisecond a rank) later is
 * lost. The others: nothing to do. */
void gn_heartbeat_expect_all(struct gn_heartbeat *w);
/* Others: join by rank 0's invitation, which shows that it runs; its addresses are tried in order. Blocks, silent_after_ms and a
 * millisecond a rank at most, and not when nobody listens there any more: then rank 0 is lost, GN_ERR_PEER_LOST, or has refused this rank, GN_ERR_USAGE; or what called_off says. */
enum gn_status gn_heartbeat_join(const struct gn_heartbeat_options *options, const struct gn_heartbeat_contact *invitation,
			     struct gn_heartbeat **out, struct gn_err *err);
/* host_of names ranks in messages from now on: size texts of at most 255 characters, copied. Until then rank 0 tells the address
 * that a lost rank came from. */
enum gn_status gn_heartbeat_name_hosts(struct gn_heartbeat *w, const char *const *host_of, struct gn_err *err);

/* GN_OK; GN_ERR_PEER_LOST naming rank, host and how it was noticed; GN_ERR_STALL or GN_ERR_MISMATCH with what the records of
 * all ranks say. Each ends with what this rank was in. One atomic load when all is well. */
enum gn_status gn_heartbeat_check(const struct gn_heartbeat *w, struct gn_err *err);
/* The same for someone who has been waiting for peers since started_ns: also lost when a peer has left meanwhile. */
enum gn_status gn_heartbeat_check_wait(const struct gn_heartbeat *w, uint64_t started_ns, struct gn_err *err);
/* Whether a rank has left orderly: then connections may end that nobody has lost. */
int gn_heartbeat_anyone_left(const struct gn_heartbeat *w);
/* Tells all others that this rank gives up and why (at most 400 characters arrive): they see it as lost. */
void gn_heartbeat_give_up(struct gn_heartbeat *w, const char *why);
/* leave: says goodbye and waits until everyone has (or someone is lost). Otherwise, or after a loss, it only lets go:
 * without a goodbye the others see a loss. NULL is fine. */
void gn_heartbeat_destroy(struct gn_heartbeat *w, int leave);

#endif
