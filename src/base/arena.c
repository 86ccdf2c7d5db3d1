#include "src/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct gn_arena {
	unsigned char *base;
	size_t capacity;
	size_t used;
};

/* Rounds up to the alignment; 0 means that the sum does not fit. */
static size_t round_up(size_t size)
{
	if (size > SIZE_MAX - (GN_ALIGN_BYTES - 1))
		return 0;
	return (size + GN_ALIGN_BYTES - 1) & ~(size_t)(GN_ALIGN_BYTES - 1);
}

void *gn_alloc_aligned(size_t size_bytes)
{
	size_t rounded = round_up(size_bytes ? size_bytes : 1);
	void *memory = rounded ? aligned_alloc(GN_ALIGN_BYTES, rounded) : NULL;

	if (memory)
		memset(memory, 0, rounded);
	return memory;
}

int gn_size_mul(size_t count, size_t size, size_t *out)
{
	return __builtin_mul_overflow(count, size, out) ? -1 : 0;
}

enum gn_status gn_arena_create(size_t capacity_bytes, struct gn_arena **out, struct gn_err *err)
{
	struct gn_arena *arena = calloc(1, sizeof *arena);

	if (arena) {
		arena->capacity = round_up(capacity_bytes);
		arena->base = arena->capacity ? gn_alloc_aligned(arena->capacity) : NULL;
	}
	if (!arena || !arena->base) {
		free(arena);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an arena of %zu bytes", capacity_bytes);
	}
	*out = arena;
	return GN_OK;
}

void gn_arena_destroy(struct gn_arena *arena)
{
	if (!arena)
		return;
	free(arena->base);
	free(arena);
}

void *gn_arena_take(struct gn_arena *arena, size_t size_bytes)
{
	size_t rounded = round_up(size_bytes ? size_bytes : 1);
	void *memory;

	if (!rounded || rounded > arena->capacity - arena->used)
		return NULL;
	memory = arena->base + arena->used;
	arena->used += rounded;
	return memory;
}

size_t gn_arena_used(const struct gn_arena *arena)
{
	return arena->used;
}

size_t gn_arena_capacity(const struct gn_arena *arena)
{
	return arena->capacity;
}
