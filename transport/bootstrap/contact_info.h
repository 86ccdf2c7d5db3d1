/* Where a rank can be reached at start, as text that travels through PMIx or rank 0: a port, addresses, and a number by which the
 * one that connects knows that it has come to the right listener.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_CONTACT_INFO_H
#define GN_TRANSPORT_BOOTSTRAP_CONTACT_INFO_H

#include "src/base/strbuf.h"
#include "transport/auth/net.h"
#include "transport/auth/secret.h"

/* No contact is longer. */
#define GN_CONTACT_INFO_MAX 2048

struct gn_contact_info {
	struct gn_secret drawn; /* mixed into the secret of this one listener */
	int port;
	struct gn_net_addresses addresses; /* in the order in which to try them */
};

/* Appends; what is out of memory shows in gn_strbuf_failed(). */
void gn_contact_info_write(const struct gn_contact_info *c, struct gn_strbuf *out);
/* From len_bytes of any origin; GN_ERR_MISMATCH when they are no contact. *out is set only on success. */
enum gn_status gn_contact_info_read(const void *data, size_t len_bytes, struct gn_contact_info *out, struct gn_err *err);
/* That address is tried first; the last one goes when there is no room. */
void gn_contact_info_prefer(struct gn_contact_info *c, const char *address);

#endif
