/* How a rank can be reached at start: a port, addresses and a random number, as bytes that PMIx or rank 0 distributes. Whoever
 * connects authenticates with a secret derived from that random number, and so knows that it has reached the right listener.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_CONTACT_INFO_H
#define GN_TRANSPORT_BOOTSTRAP_CONTACT_INFO_H

#include "src/base/strbuf.h"
#include "transport/auth/net.h"
#include "transport/auth/secret.h"

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
