/* Messages between two ranks at start, over a connection that a handshake has authenticated: records of 16 KiB of text at most
 * (transport/auth/handshake.h).
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_BOOT_MESSAGE_H
#define GN_TRANSPORT_BOOTSTRAP_BOOT_MESSAGE_H

#include "src/base/strbuf.h"
#include "transport/auth/handshake.h"
#include "transport/auth/net.h"
#include "transport/auth/secret.h"
#include "transport/bootstrap/bootstrap.h"

/* Transfer texts from or to a rank: what one call sends as head or data is received by a call of the same length. Block until done or
 * gn_bootstrap_check_wait() fails. GN_ERR_PEER_LOST when the connection closes, GN_ERR_FAILED for what is not authentic. */
enum gn_status gn_boot_receive(const struct gn_bootstrap *b, int rank, struct gn_channel *c, void *data, size_t len_bytes, struct gn_err *err);
/* Both in one message; data may be empty. */
enum gn_status gn_boot_send(const struct gn_bootstrap *b, int rank, struct gn_channel *c, const void *head, size_t head_bytes, const void *data,
			    size_t len_bytes, struct gn_err *err);

/* How a rank can be reached at start: a port, addresses and a random number, as bytes that PMIx or rank 0 distributes. Whoever
 * connects authenticates with a secret derived from that random number, and so knows that it has reached the right listener.
 *
 * Thread safety: any thread, no shared state.
 */

/* The largest encoding in bytes. */
#define GN_CONTACT_INFO_MAX 2048

struct gn_contact_info {
	struct gn_secret drawn; /* random, for the secret of this listener */
	int port; /* 0: the rank does not listen */
	struct gn_net_addresses addresses; /* in the order in which to try them */
};

/* Appends the encoding; gn_strbuf_failed() reports exhausted memory. */
void gn_contact_info_write(const struct gn_contact_info *c, struct gn_strbuf *out);
/* Decodes len_bytes of any origin; GN_ERR_MISMATCH when they are invalid. *out is set only on success. */
enum gn_status gn_contact_info_read(const void *data, size_t len_bytes, struct gn_contact_info *out, struct gn_err *err);
/* Inserts an address as the first one; drops the last one when the list is full. */
void gn_contact_info_prefer(struct gn_contact_info *c, const char *address);

#endif
