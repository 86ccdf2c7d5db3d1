#include "transport/shm/shm_internal.h"

#include <stdlib.h>
#include <unistd.h>

enum gn_status gn_shm_create(struct gn_world *world, int oversubscribed, struct gn_shm **out, struct gn_err *err)
{
	struct gn_shm *n = calloc(1, sizeof *n);
	enum gn_status status;

	if (n)
		n->flags_committed = calloc((size_t)gn_world_local_size(world), sizeof *n->flags_committed);
	if (!n || !n->flags_committed) {
		free(n);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for shared-memory collectives");
	}
	n->world = world;
	n->local_rank = gn_world_local_rank(world);
	n->local_size = gn_world_local_size(world);
	n->oversubscribed = oversubscribed;
	status = gn_segment_create(world, sizeof(struct gn_shm_control), gn_shm_has_bounce_buffers(n) ?
				   offsetof(struct gn_shm_control, flags) : offsetof(struct gn_shm_control, bounce), &n->control, err);
	if (status) {
		free(n->flags_committed);
		free(n);
		return status;
	}
	*out = n;
	return GN_OK;
}

void gn_shm_destroy(struct gn_shm *n)
{
	if (!n)
		return;
	while (n->allocations)
		gn_shm_free(n, gn_segment_part(n->allocations->segment, n->local_rank));
	gn_segment_destroy(n->control);
	free(n->flags_committed);
	free(n);
}

int gn_shm_has_bounce_buffers(const struct gn_shm *n)
{
	return n->local_size <= GN_BOUNCE_RANKS;
}

size_t gn_shm_eager_bytes(const struct gn_shm *n)
{
	return gn_shm_has_bounce_buffers(n) ? GN_EAGER_BYTES : GN_EAGER_NO_BOUNCE_BYTES;
}

enum gn_status gn_shm_alloc(struct gn_shm *n, size_t len_bytes, void **out, struct gn_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = len_bytes ? (len_bytes + page - 1) / page * page : page;
	struct gn_shm_allocation *a = calloc(1, sizeof *a);
	enum gn_status status;

	if (!a)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an allocation");
	status = gn_segment_create(n->world, len, len, &a->segment, err);
	if (status) {
		free(a);
		return status;
	}
	a->number = ++n->allocations_made;
	a->next = n->allocations;
	n->allocations = a;
	*out = gn_segment_part(a->segment, n->local_rank);
	return GN_OK;
}

void gn_shm_free(struct gn_shm *n, void *memory)
{
	for (struct gn_shm_allocation **at = &n->allocations; *at; at = &(*at)->next) {
		struct gn_shm_allocation *a = *at;

		if (gn_segment_part(a->segment, n->local_rank) == memory) {
			*at = a->next;
			gn_segment_destroy(a->segment);
			free(a);
			return;
		}
	}
}

const struct gn_shm_allocation *gn_shm_find(const struct gn_shm *n, const void *memory, size_t len, uint64_t *offset)
{
	for (const struct gn_shm_allocation *a = n->allocations; a; a = a->next) {
		uintptr_t base = (uintptr_t)gn_segment_part(a->segment, n->local_rank), at = (uintptr_t)memory;
		size_t size = gn_segment_len(a->segment);

		if (at >= base && at - base <= size && len <= size - (at - base)) {
			*offset = at - base;
			return a;
		}
	}
	return NULL;
}

int gn_shm_owns(const struct gn_shm *n, const void *memory, size_t len_bytes)
{
	uint64_t offset;

	return gn_shm_find(n, memory, len_bytes, &offset) != NULL;
}
