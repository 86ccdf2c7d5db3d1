#include "transport/shm/shm_members.h"

#include <string.h>

static enum gn_status gather_from_world(void *world, const void *mine, size_t len_bytes, void *all, struct gn_err *err)
{
	struct gn_gathered got = {0};
	enum gn_status status = gn_world_exchange(world, mine, len_bytes, &got, err);

	for (size_t r = 0; r < got.size && !status; r++)
		if (got.lens[r] == len_bytes)
			memcpy((char *)all + r * len_bytes, got.items[r], len_bytes);
		else
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %zu sent %zu bytes, not %zu", r, got.lens[r], len_bytes);
	gn_gathered_release(&got);
	return status;
}

struct gn_shm_members gn_shm_all_members(struct gn_world *world)
{
	return (struct gn_shm_members){.world = world, .size = gn_world_size(world), .gather = gather_from_world, .argument = world};
}
