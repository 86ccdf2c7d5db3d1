/* Messages between two ranks at start, over a connection that a handshake has authenticated: records of 16 KiB of text at most
 * (transport/auth/sealed_stream.h).
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_BOOT_MESSAGE_H
#define GN_TRANSPORT_BOOTSTRAP_BOOT_MESSAGE_H

#include "transport/auth/sealed_stream.h"
#include "transport/bootstrap/bootstrap.h"

/* Transfer texts from or to a rank: what one call sends as head or data is received by a call of the same length. Block until done or
 * gn_bootstrap_check_wait() fails. GN_ERR_PEER_LOST when the connection closes, GN_ERR_FAILED for what is not authentic. */
enum gn_status gn_boot_receive(const struct gn_bootstrap *b, int rank, struct gn_channel *c, void *data, size_t len_bytes, struct gn_err *err);
/* Both in one message; data may be empty. */
enum gn_status gn_boot_send(const struct gn_bootstrap *b, int rank, struct gn_channel *c, const void *head, size_t head_bytes, const void *data,
			    size_t len_bytes, struct gn_err *err);

#endif
