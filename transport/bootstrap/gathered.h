/* What every rank told in an exchange: one message of any length from each.
 *
 * On the wire, and in memory, they are one pack: records one after the other, in rank order, each of them a length (uint64_t), that
 * many bytes, and zeros up to a multiple of eight. Packs of neighbouring ranges of ranks are joined by putting one behind the
 * other.
 *
 * Ownership: a gn_gathered owns its pack; items point into it, aligned to eight bytes, and are never NULL. A zeroed struct is empty
 * and may be released. Thread safety: none of its own.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_GATHERED_H
#define GN_TRANSPORT_BOOTSTRAP_GATHERED_H

#include "src/base/status.h"

#include <stddef.h>

struct gn_gathered {
	void **items; /* [rank] */
	size_t *lens; /* [rank], in bytes */
	size_t size;  /* ranks */
	void *pack;
};

/* What a message of len_bytes takes in a pack. */
size_t gn_gathered_record_bytes(size_t len_bytes);
/* Writes that record at `at`, which is aligned to eight bytes. */
void gn_gathered_write(void *at, const void *data, size_t len_bytes);
/* Whether these pack_bytes, of any origin, are exactly `ranks` records. */
int gn_gathered_is_pack(const void *pack, size_t pack_bytes, size_t ranks);
/* Takes over a malloc'ed pack of that many ranks; frees it on failure, GN_ERR_NO_MEMORY or GN_ERR_MISMATCH. *out is set only on
 * success. */
enum gn_status gn_gathered_take(void *pack, size_t pack_bytes, int size, struct gn_gathered *out, struct gn_err *err);
void gn_gathered_release(struct gn_gathered *t);

#endif
