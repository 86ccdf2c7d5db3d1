/* Copies of what a replica has of a run's state. */
#include "src/train/loop/replica.h"

#include <string.h>

enum { BLOCK = 1 << 16 }; /* that a thread copies at a time */

enum gn_status gn_replica_reserve_copy(const struct gn_replica *r, struct gn_state_copy *c, struct gn_err *err)
{
	size_t elements = r->shard ? gn_shard_parts(r->shard)->elements : r->params.count;

	return gn_state_copy_reserve(c, elements, r->buffers.count, gn_optim_slots(gn_optimizer_kind(r->optimizer)), gn_replica_has_average(r), err);
}

static void copy(float *to, const float *from, size_t count)
{
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
	for (size_t at = 0; at < count; at += BLOCK)
		memcpy(to + at, from + at, (count - at < BLOCK ? count - at : BLOCK) * sizeof(float));
}

enum gn_status gn_replica_copy_state(const struct gn_replica *r, struct gn_state_copy *c, const float *buffers, const struct gn_run_state *state,
				     struct gn_err *err)
{
	enum gn_status status = gn_replica_reserve_copy(r, c, err);

	if (status)
		return status;
	if (r->shard)
		gn_parts_pack(gn_shard_parts(r->shard), r->params.host, c->params);
	else
		copy(c->params, r->params.host, c->elements);
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		if (c->slots[k])
			copy(c->slots[k], gn_optimizer_slot(r->optimizer, k)->host, c->elements);
	if (c->average) {
		copy(c->average, r->ema.params.host, c->elements);
		copy(c->average_buffers, r->ema.buffers.host, c->buffer_count);
	}
	copy(c->buffers, buffers, c->buffer_count);
	c->state = *state;
	c->is_there = 1;
	return GN_OK;
}
