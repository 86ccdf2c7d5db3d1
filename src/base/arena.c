#include "src/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A huge page of most processors; a large piece is one of several. Page by page, a gigabyte costs 262144 faults. */
enum { HUGE_BYTES = 2 << 20, LARGE_BYTES = 4 * HUGE_BYTES };

struct gn_arena {
	unsigned char *base;
	size_t capacity;
	size_t used;
};

/* Up to a power of two; 0 means that the sum does not fit. */
static size_t round_to(size_t size, size_t to)
{
	if (size > SIZE_MAX - (to - 1))
		return 0;
	return (size + to - 1) & ~(to - 1);
}

static size_t round_up(size_t size)
{
	return round_to(size, GN_ALIGN_BYTES);
}

/* A wish: without it the memory is as good, and slower. */
static void ask_for_huge_pages(void *memory, size_t size)
{
	madvise(memory, size / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
}

/* Whole huge pages at the beginning are given back: they come empty when they are first touched. Returns their bytes. */
static size_t empty_pages(void *memory, size_t size)
{
	size_t whole = size / HUGE_BYTES * HUGE_BYTES;

	return madvise(memory, whole, MADV_DONTNEED) ? 0 : whole;
}

void *gn_alloc_aligned(size_t size_bytes)
{
	size_t align = size_bytes >= LARGE_BYTES ? HUGE_BYTES : GN_ALIGN_BYTES;
	size_t rounded = round_up(size_bytes ? size_bytes : 1), empty = 0;
	void *memory;

	if (!rounded || posix_memalign(&memory, align, rounded))
		return NULL;
	if (align == HUGE_BYTES) {
		empty = empty_pages(memory, rounded);
		ask_for_huge_pages(memory, rounded);
	}
	memset((char *)memory + empty, 0, rounded - empty);
	return memory;
}

/* More is mapped than is wanted, as much as lies before and behind whole huge pages is given back. */
void *gn_pages_map(size_t size_bytes)
{
	size_t size = round_to(size_bytes ? size_bytes : 1, HUGE_BYTES), all = size + HUGE_BYTES, before;
	char *memory;

	if (!size || all < size)
		return NULL;
	memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	before = round_to((uintptr_t)memory, HUGE_BYTES) - (uintptr_t)memory;
	if (before)
		munmap(memory, before);
	if (before < HUGE_BYTES)
		munmap(memory + before + size, HUGE_BYTES - before);
	if (size >= LARGE_BYTES)
		ask_for_huge_pages(memory + before, size);
	return memory + before;
}

void gn_pages_unmap(void *memory, size_t size_bytes)
{
	if (memory)
		munmap(memory, round_to(size_bytes ? size_bytes : 1, HUGE_BYTES));
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
