/* Which ranks a segment or shared-memory operations are for, and how they exchange small records while those are created. Ranks of one
 * node share memory; the exchange is among all, so that a failure on one node is known on the others.
 *
 * Ownership: everything is borrowed. Thread safety: as the exchange. */
#ifndef GN_TRANSPORT_SHM_SHM_MEMBERS_H
#define GN_TRANSPORT_SHM_SHM_MEMBERS_H

#include "transport/bootstrap/world.h"

#include <stddef.h>

/* A group of ranks, on any nodes. */
struct gn_shm_members {
	struct gn_world *world;
	int size;
	const int *ranks; /* of the world; NULL: the first `size` */
	/* Collective over the group; blocks: all[r * len_bytes] is what rank r gave. */
	enum gn_status (*gather)(void *argument, const void *mine, size_t len_bytes, void *all, struct gn_err *err);
	void *argument;
};
static inline int gn_shm_member(const struct gn_shm_members *m, int rank)
{
	return m->ranks ? m->ranks[rank] : rank;
}
/* All ranks. */
struct gn_shm_members gn_shm_all_members(struct gn_world *world);

#endif
