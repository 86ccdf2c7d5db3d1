/* What every rank told in an exchange: one message of any length from each.
 *
 * Ownership: gn_told_create makes room, whoever exchanges fills it with malloc'ed messages, gn_told_release frees them all.
 * A zeroed struct is empty and may be released. Thread safety: none of its own.
 */
#ifndef GN_TRANSPORT_TOLD_H
#define GN_TRANSPORT_TOLD_H

#include "src/base/status.h"

#include <stddef.h>

struct gn_told {
	void **items; /* [rank] */
	size_t *lens; /* [rank], in bytes */
	size_t size;  /* ranks */
};

/* No messages yet. *out is set only on success. */
enum gn_status gn_told_create(int size, struct gn_told *out, struct gn_err *err);
void gn_told_release(struct gn_told *t);

#endif
