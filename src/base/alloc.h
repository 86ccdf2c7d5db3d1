/* Aligned and zeroed memory: gn_alloc_aligned() for single buffers, gn_pages_map() for those of gigabytes. Arrays that grow.
 *
 * Thread safety: any thread.
 */
#ifndef GN_BASE_ALLOC_H
#define GN_BASE_ALLOC_H

#include <stddef.h>

#define GN_ALIGN_BYTES 64

/* Zeroed memory aligned to GN_ALIGN_BYTES; the caller releases it with free(). NULL when out of memory or on overflow. Large
 * buffers use transparent huge pages where the kernel has them; the kernel allocates these at first access. */
void *gn_alloc_aligned(size_t size_bytes);
/* Zeroed, page-aligned memory that the kernel allocates at first access, on the NUMA node of the thread that accesses it. Large
 * mappings use transparent huge pages where the kernel has them. NULL when out of memory. Release with gn_pages_unmap() and the
 * same size; NULL is fine there. */
void *gn_pages_map(size_t size_bytes);
void gn_pages_unmap(void *memory, size_t size_bytes);
/* Sets *out = count * size. Returns 0, or -1 when the product overflows size_t. */
int gn_size_mul(size_t count, size_t size, size_t *out);
/* Makes room for another element in an array that has count, and *room of them allocated: it doubles, and may move. array is the address of
 * the pointer to it, which the caller releases with free(). Returns 0, or -1, with nothing changed, when out of memory. */
int gn_array_grow(void *array, size_t *room, size_t count, size_t element_bytes);
/* The next multiple of unit from value on, such as a size that keeps what follows it aligned. */
static inline size_t gn_round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

#endif
