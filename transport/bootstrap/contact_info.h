/* Where a rank can be reached at start, as text that travels through PMIx or rank 0: a port, addresses, and a number by which the
 * one that connects knows that it has come to the right listener.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_BOOT_CONTACT_H
#define GN_TRANSPORT_BOOT_CONTACT_H

#include "src/base/strbuf.h"
#include "transport/auth/net.h"
#include "transport/auth/secret.h"

/* No contact is longer. */
#define GN_BOOT_CONTACT_MAX 2048

struct gn_boot_contact {
	struct gn_secret drawn; /* mixed into the secret of this one listener */
	int port;
	struct gn_net_addresses addresses; /* in the order in which to try them */
};

/* Appends; what is out of memory shows in gn_strbuf_failed(). */
void gn_boot_contact_write(const struct gn_boot_contact *c, struct gn_strbuf *out);
/* From len_bytes of any origin; GN_ERR_MISMATCH when they are no contact. *out is set only on success. */
enum gn_status gn_boot_contact_read(const void *data, size_t len_bytes, struct gn_boot_contact *out, struct gn_err *err);
/* That address is tried first; the last one goes when there is no room. */
void gn_boot_contact_prefer(struct gn_boot_contact *c, const char *address);

#endif
