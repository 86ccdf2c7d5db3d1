/* A listening port that lets in only who proves to know the job's secret, however many strangers crowd before it.
 *
 * The owner polls its descriptors together with others of its own, gives it a turn after each poll, and takes from it one
 * guest after the other. Nothing here blocks. Whoever says nothing, says garbage, or cannot prove itself is dropped after
 * three seconds at the latest, and the log tells of it: once for each address in a minute, at most eight lines in ten seconds.
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_AUTH_AUTH_LISTENER_H
#define GN_TRANSPORT_AUTH_AUTH_LISTENER_H

#include "src/base/log.h"
#include "transport/auth/handshake.h"

#include <poll.h>

struct gn_auth_listener;

/* Who waits at once; more have to wait in the system's queue, or for the slowest to be dropped. */
#define GN_AUTH_LISTENER_WAITING_MAX 128
#define GN_AUTH_LISTENER_POLL_MAX (GN_AUTH_LISTENER_WAITING_MAX + 1)

struct gn_pending_peer {
	int fd; /* the owner's from here on */
	uint32_t rank, size; /* what it says; proved is only that it knows the secret */
};

/* address, port: see gn_net_listen(). secret is copied; log (borrowed) may be NULL. */
enum gn_status gn_auth_listener_open(const char *address, int *port, enum gn_handshake_purpose purpose,
				     const struct gn_secret *secret, struct gn_log *log, struct gn_auth_listener **out,
				     struct gn_err *err);
/* Sends away who still waits. NULL is fine. */
void gn_auth_listener_close(struct gn_auth_listener *d);
/* Writes what to poll for into p[GN_AUTH_LISTENER_POLL_MAX]; returns how many. */
int gn_auth_listener_poll(const struct gn_auth_listener *d, struct pollfd *p);
/* Looks after all who wait. 1 and a guest when one has proved itself: then call again, for there may be more. */
int gn_auth_listener_turn(struct gn_auth_listener *d, struct gn_pending_peer *out);
/* The owner would not have this guest after all: closes it and logs why. */
void gn_auth_listener_refuse(struct gn_auth_listener *d, struct gn_pending_peer *guest, enum gn_handshake_result why);

#endif
