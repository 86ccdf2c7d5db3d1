/* A listening TCP port that accepts only peers that prove knowledge of the job's secret.
 *
 * The owner polls the listener's descriptors together with its own, calls gn_auth_listener_progress() after each poll, and takes
 * one authenticated peer per call. A peer that sends nothing for three seconds, sends malformed data or fails the proof is dropped
 * and logged: at most one line per address and minute, at most eight lines in ten seconds.
 *
 * No function blocks. Thread safety: one thread per listener.
 */
#ifndef GN_TRANSPORT_AUTH_AUTH_LISTENER_H
#define GN_TRANSPORT_AUTH_AUTH_LISTENER_H

#include "src/base/log.h"
#include "transport/auth/handshake.h"

#include <poll.h>

struct gn_auth_listener;

/* Handshakes in progress at the same time. Further connections wait in the kernel's backlog until one finishes or is evicted. */
#define GN_AUTH_LISTENER_WAITING_MAX 128
#define GN_AUTH_LISTENER_POLL_MAX (GN_AUTH_LISTENER_WAITING_MAX + 1)

/* A peer that has proved knowledge of the secret. Its rank and size are not checked. */
struct gn_pending_peer {
	struct gn_channel channel; /* owned by the caller */
	uint32_t rank, size;
};

/* address and port: see gn_net_listen(). The secret is copied; log is borrowed and may be NULL. GN_ERR_NO_MEMORY, or what
 * gn_net_listen() returns. */
enum gn_status gn_auth_listener_open(const char *address, int *port, enum gn_handshake_purpose purpose,
				     const struct gn_secret *secret, struct gn_log *log, struct gn_auth_listener **out,
				     struct gn_err *err);
/* The same at a descriptor of gn_net_listen() and its port; the descriptor is taken over, and closed on failure. */
enum gn_status gn_auth_listener_take(int fd, int port, enum gn_handshake_purpose purpose, const struct gn_secret *secret,
				     struct gn_log *log, struct gn_auth_listener **out, struct gn_err *err);
/* Closes the port and all connections whose handshake is in progress. NULL is fine. */
void gn_auth_listener_close(struct gn_auth_listener *l);
/* Writes the descriptors to poll into p[GN_AUTH_LISTENER_POLL_MAX]; returns their number. */
int gn_auth_listener_poll(const struct gn_auth_listener *l, struct pollfd *p);
/* Advances all handshakes. Returns 1 and sets *out when a peer has authenticated: the caller then calls again, because there may be
 * more. Returns 0 otherwise. */
int gn_auth_listener_progress(struct gn_auth_listener *l, struct gn_pending_peer *out);
/* How many peers of another version have proved that they are of this job, and were refused. If there are, *rank is that of the last, which
 * is not checked, and *why is GN_ERR_MISMATCH with a sentence that names both. */
int gn_auth_listener_other_versions(const struct gn_auth_listener *l, uint32_t *rank, struct gn_err *why);
/* Closes a peer that the owner does not accept, and logs `why`. */
void gn_auth_listener_refuse(struct gn_auth_listener *l, struct gn_pending_peer *peer, enum gn_handshake_result why);

#endif
