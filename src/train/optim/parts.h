/* The parts of the flat parameter array whose optimizer state and averages this rank has, where ranks divide them (parallel/shard.h). State
 * of parts is packed: one part behind the other, in their order. Pure functions. */
#ifndef GN_TRAIN_OPTIM_PARTS_H
#define GN_TRAIN_OPTIM_PARTS_H

#include <stddef.h>
#include <string.h>

/* In elements, without overlap. */
struct gn_part {
	size_t begin, count; /* of the parameters */
	size_t at;	     /* where it begins in packed arrays */
	int is_copy;	     /* another rank has it, too, and counts it in sums over ranks */
};

struct gn_parts {
	struct gn_part *list;
	size_t count;
	size_t elements; /* of all parts: the length of packed arrays */
};

/* From an array of the parameters' length to a packed one. */
static inline void gn_parts_pack(const struct gn_parts *p, const float *flat, float *packed)
{
	for (size_t i = 0; i < p->count; i++)
		memcpy(packed + p->list[i].at, flat + p->list[i].begin, p->list[i].count * sizeof(float));
}

#endif
