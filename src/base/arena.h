/* Aligned memory and bump arenas.
 *
 * An arena is one zeroed block, aligned to a cache line, from which pieces are cut and which is freed whole: what a plan
 * needs for its whole life. gn_alloc_aligned() serves single large buffers, gn_pages_map() those of gigabytes.
 *
 * Thread safety: an arena belongs to one thread at a time.
 */
#ifndef GN_BASE_ARENA_H
#define GN_BASE_ARENA_H

#include "src/base/status.h"

#include <stddef.h>

#define GN_ALIGN_BYTES 64

struct gn_arena;

/* Zeroed memory aligned to GN_ALIGN_BYTES, to be given to free(); NULL when there is none or size_bytes overflows. Large pieces
 * lie in huge pages where the kernel has them, which come when they are first touched. */
void *gn_alloc_aligned(size_t size_bytes);
/* Zeroed memory in pages that come when they are first touched, by the threads that work there and not by one before; those of
 * large pieces are huge where the kernel has such. NULL when there is none; to be given to gn_pages_unmap with the same size. */
void *gn_pages_map(size_t size_bytes);
void gn_pages_unmap(void *memory, size_t size_bytes);
/* count * size without overflow into *out; returns 0, or -1 when it does not fit into size_t. */
int gn_size_mul(size_t count, size_t size, size_t *out);

enum gn_status gn_arena_create(size_t capacity_bytes, struct gn_arena **out, struct gn_err *err);
void gn_arena_destroy(struct gn_arena *arena);
/* size_bytes of zeroed memory aligned to GN_ALIGN_BYTES, owned by the arena; NULL when the arena is full. */
void *gn_arena_take(struct gn_arena *arena, size_t size_bytes);
size_t gn_arena_used(const struct gn_arena *arena);
size_t gn_arena_capacity(const struct gn_arena *arena);

#endif
