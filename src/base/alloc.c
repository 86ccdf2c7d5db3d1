#include "src/base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Size of a transparent huge page on most processors, and the size from which huge pages are requested. With pages of 4 KiB, a
 * gigabyte takes 262,144 page faults. */
enum { HUGE_BYTES = 2 << 20, LARGE_BYTES = 4 * HUGE_BYTES };

/* Rounds size up to a multiple of to, a power of two. Returns 0 on overflow. */
static size_t round_to(size_t size, size_t to)
{
	if (size > SIZE_MAX - (to - 1))
		return 0;
	return (size + to - 1) & ~(to - 1);
}

/* A hint to the kernel: failure costs speed, not correctness. */
static void advise_huge_pages(void *memory, size_t size)
{
	madvise(memory, size / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
}

/* Returns the whole huge pages at the start of memory to the kernel: they are zero at the next access. Returns their bytes. */
static size_t discard_pages(void *memory, size_t size)
{
	size_t whole = size / HUGE_BYTES * HUGE_BYTES;

	return madvise(memory, whole, MADV_DONTNEED) ? 0 : whole;
}

void *gn_alloc_aligned(size_t size_bytes)
{
	size_t align = size_bytes >= LARGE_BYTES ? HUGE_BYTES : GN_ALIGN_BYTES;
	size_t rounded = round_to(size_bytes ? size_bytes : 1, GN_ALIGN_BYTES), empty = 0;
	void *memory;

	if (!rounded || posix_memalign(&memory, align, rounded))
		return NULL;
	if (align == HUGE_BYTES) {
		empty = discard_pages(memory, rounded);
		advise_huge_pages(memory, rounded);
	}
	memset((char *)memory + empty, 0, rounded - empty);
	return memory;
}

/* Maps a huge page more than needed and unmaps what lies outside the aligned range. */
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
		advise_huge_pages(memory + before, size);
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

int gn_array_grow(void *array, size_t *room, size_t count, size_t element_bytes)
{
	size_t wanted = *room ? 2 * *room : 64;
	void *items;

	if (count < *room)
		return 0;
	memcpy(&items, array, sizeof items);
	items = reallocarray(items, wanted, element_bytes);
	if (!items)
		return -1;
	memcpy(array, &items, sizeof items);
	*room = wanted;
	return 0;
}
