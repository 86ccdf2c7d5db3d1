/* The result of an allgather of messages of any length, one from each rank.
 *
 * On the wire and in memory the messages are one pack: a record per rank in rank order, each a length (uint64_t), that many bytes,
 * and zeros up to a multiple of eight. Packs of adjacent ranges of ranks are joined by concatenation.
 *
 * Ownership: a gn_gathered owns its pack; items point into it, are aligned to eight bytes and never NULL. A zeroed struct is empty
 * and may be released. Thread safety: any thread, no shared state.
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

/* The size of the record of a message of len_bytes. */
size_t gn_gathered_record_bytes(size_t len_bytes);
/* Writes that record at `at`, which is aligned to eight bytes. */
void gn_gathered_write(void *at, const void *data, size_t len_bytes);
/* Whether pack_bytes, of any origin, are exactly `ranks` records. */
int gn_gathered_is_pack(const void *pack, size_t pack_bytes, size_t ranks);
/* Takes ownership of a malloc'ed pack of `size` ranks; frees it on failure: GN_ERR_NO_MEMORY or GN_ERR_MISMATCH. *out is set only
 * on success. */
enum gn_status gn_gathered_take(void *pack, size_t pack_bytes, int size, struct gn_gathered *out, struct gn_err *err);
void gn_gathered_release(struct gn_gathered *t);

#endif
