#include "src/train/loop/state_copy.h"

#include "src/base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_FLOATS = 16 };

static size_t room(size_t count)
{
	return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

enum gn_status gn_state_copy_reserve(struct gn_state_copy *c, size_t elements, size_t buffers, int slots, int averages, struct gn_err *err)
{
	const size_t len = (room(elements) * (size_t)(1 + slots + averages) + room(buffers) * (size_t)(1 + averages)) * sizeof(float);
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

float *gn_state_copy_array(const struct gn_state_copy *c, int k)
{
	return k == 0 ? c->params : k <= GN_OPTIM_SLOTS_MAX ? c->slots[k - 1] : c->average;
}

static void join(float *to, const float *one, size_t count, const float *other, size_t other_count)
{
	if (to && count)
		memcpy(to, one, count * sizeof *to);
	if (to && other_count)
		memcpy(to + count, other, other_count * sizeof *to);
}

enum gn_status gn_state_copy_append(struct gn_state_copy *c, const struct gn_state_copy *more, struct gn_err *err)
{
	struct gn_state_copy both = {.memory = NULL};
	enum gn_status status;
	int slots = 0;

	while (slots < GN_OPTIM_SLOTS_MAX && c->slots[slots])
		slots++;
	status = gn_state_copy_reserve(&both, c->elements + more->elements, c->buffer_count + more->buffer_count, slots, c->average != NULL, err);
	if (status)
		return status;
	for (int k = 0; k < GN_STATE_ARRAYS; k++)
		join(gn_state_copy_array(&both, k), gn_state_copy_array(c, k), c->elements, gn_state_copy_array(more, k), more->elements);
	join(both.buffers, c->buffers, c->buffer_count, more->buffers, more->buffer_count);
	join(both.average_buffers, c->average_buffers, c->buffer_count, more->average_buffers, more->buffer_count);
	both.state = c->state;
	both.is_there = c->is_there;
	gn_state_copy_release(c);
	*c = both;
	return GN_OK;
}

void gn_state_copy_release(struct gn_state_copy *c)
{
	free(c->memory);
	*c = (struct gn_state_copy){.memory = NULL};
}
