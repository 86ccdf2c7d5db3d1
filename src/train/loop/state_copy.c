#include "src/train/loop/state_copy.h"

#include "src/base/alloc.h"
#include "src/train/loop/replica.h"

#include <stdlib.h>
#include <string.h>

/* BLOCK: that a thread copies at a time. */
enum { ALIGN_FLOATS = 16, BLOCK = 1 << 16 };

static size_t room(size_t count)
{
	return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

enum gn_status gn_state_copy_reserve(struct gn_state_copy *c, const struct gn_replica *r, struct gn_err *err)
{
	const int slots = gn_optim_slots(gn_optimizer_kind(r->optimizer)), averages = gn_replica_has_average(r);
	size_t elements = r->shard ? gn_shard_parts(r->shard)->elements : r->params.count, buffers = r->buffers.count;
	size_t len = (room(elements) * (size_t)(1 + slots + averages) + room(buffers) * (size_t)(1 + averages)) * sizeof(float);
	float *at;

	if (len > c->len_bytes) {
		gn_state_copy_release(c);
		c->memory = gn_alloc_aligned(len);
		if (!c->memory)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of %.1f MB of the run's state", (double)len * 1e-6);
		c->len_bytes = len;
	}
	*c = (struct gn_state_copy){.memory = c->memory, .len_bytes = c->len_bytes, .elements = elements, .buffer_count = buffers};
	at = c->params = c->memory;
	for (int k = 0; k < slots; k++)
		c->slots[k] = at += room(elements);
	if (averages)
		c->average = at += room(elements);
	c->buffers = at += room(elements);
	if (averages)
		c->average_buffers = at + room(buffers);
	return GN_OK;
}

static void copy(float *to, const float *from, size_t count)
{
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
	for (size_t at = 0; at < count; at += BLOCK)
		memcpy(to + at, from + at, (count - at < BLOCK ? count - at : BLOCK) * sizeof(float));
}

enum gn_status gn_state_copy_take(struct gn_state_copy *c, const struct gn_replica *r, const float *buffers, const struct gn_run_state *state,
				  struct gn_err *err)
{
	enum gn_status status = gn_state_copy_reserve(c, r, err);

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

float *gn_state_copy_array(const struct gn_state_copy *c, int k)
{
	return k == 0 ? c->params : k <= GN_OPTIM_SLOTS_MAX ? c->slots[k - 1] : c->average;
}

void gn_state_copy_release(struct gn_state_copy *c)
{
	free(c->memory);
	*c = (struct gn_state_copy){.memory = NULL};
}
