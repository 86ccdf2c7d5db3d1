/* A copy of what a rank writes of a checkpoint, so that training goes on while it is written. */
#include "src/train/checkpoint/checkpoint_snapshot.h"

#include "src/base/alloc.h"

#include <omp.h>
#include <string.h>

enum { ALIGN_FLOATS = 16, ITEMS_MAX = 4 + GN_OPTIM_SLOTS_MAX + GN_CHECKPOINT_OWN_MAX + 1 };

struct item {
	const float *from;
	size_t count;
	float **to;
};

struct items {
	struct item list[ITEMS_MAX];
	size_t count;
};

static void add(struct items *all, const float *from, size_t count, float **to)
{
	if (count)
		all->list[all->count++] = (struct item){from, count, to};
}

static enum gn_status add_own(struct gn_checkpoint_snapshot *s, struct items *all, const struct gn_checkpoint_rank_state *own,
			      struct gn_err *err)
{
	if (!own)
		return GN_OK;
	if (own->count > GN_CHECKPOINT_OWN_MAX)
		return gn_err_set(err, GN_ERR_FAILED, "a rank has %d arrays of its own for checkpoints, more than %d", own->count,
				  GN_CHECKPOINT_OWN_MAX);
	s->own = (struct gn_checkpoint_rank_state){.model = own->model, .part = own->part, .count = own->count, .names = s->own_names, .arrays = s->own_arrays,
						   .shared_count = own->shared_count};
	for (int k = 0; k < own->count; k++) {
		s->own_names[k] = own->names[k];
		add(all, own->arrays[k], gn_model_param_elements(own->model), &s->own_arrays[k]);
	}
	add(all, own->shared, own->shared_count, &s->own.shared);
	s->arrays.own = &s->own;
	return GN_OK;
}

/* What is to be copied, and its place in s. */
static enum gn_status list(struct gn_checkpoint_snapshot *s, const struct gn_model *model, int rank, int with_slots,
			   enum gn_optim_kind optimizer, const struct gn_checkpoint_arrays *a, struct items *all, struct gn_err *err)
{
	size_t params = gn_model_param_elements(model), buffers = gn_model_buffer_elements(model);
	size_t slot = a->is_split ? a->end - a->begin : params;

	s->arrays = (struct gn_checkpoint_arrays){.is_split = a->is_split, .in_layouts = a->in_layouts, .begin = a->begin, .end = a->end};
	all->count = 0;
	if (!rank) {
		add(all, a->params, params, &s->arrays.params);
		add(all, a->buffers, buffers, &s->arrays.buffers);
	}
	if (!rank && a->average_params) {
		add(all, a->average_params, params, &s->arrays.average_params);
		add(all, a->average_buffers, buffers, &s->arrays.average_buffers);
	}
	for (int k = 0; (with_slots || a->is_split) && k < gn_optim_slots(optimizer); k++)
		add(all, a->slots[k], slot, &s->arrays.slots[k]);
	return add_own(s, all, a->own, err);
}

static size_t room(const struct item *i)
{
	return (i->count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS * sizeof(float);
}

static enum gn_status fit(struct gn_checkpoint_snapshot *s, const struct items *all, struct gn_err *err)
{
	size_t need = 0;
	char *at;

	for (size_t i = 0; i < all->count; i++)
		need += room(&all->list[i]);
	if (need > s->len_bytes) {
		gn_pages_unmap(s->memory, s->len_bytes);
		s->len_bytes = 0;
		s->memory = gn_pages_map(need);
		if (!s->memory)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of %.1f MB of the run's state", (double)need * 1e-6);
		s->len_bytes = need;
	}
	at = s->memory;
	for (size_t i = 0; i < all->count; at += room(&all->list[i++]))
		*all->list[i].to = (float *)(void *)at;
	return GN_OK;
}

enum gn_status gn_checkpoint_snapshot_reserve(struct gn_checkpoint_snapshot *s, const struct gn_model *model, int rank, int with_slots,
					      enum gn_optim_kind optimizer, const struct gn_checkpoint_arrays *arrays, struct gn_err *err)
{
	struct items all;
	enum gn_status status = list(s, model, rank, with_slots, optimizer, arrays, &all, err);

	if (!status)
		status = fit(s, &all, err);
	if (!status && s->len_bytes)
		memset(s->memory, 0, s->len_bytes);
	return status;
}

enum gn_status gn_checkpoint_snapshot_take(struct gn_checkpoint_snapshot *s, const struct gn_model *model, int rank, int with_slots,
					   enum gn_optim_kind optimizer, const struct gn_checkpoint_arrays *arrays, struct gn_err *err)
{
	struct items all;
	enum gn_status status = list(s, model, rank, with_slots, optimizer, arrays, &all, err);

	if (!status)
		status = fit(s, &all, err);
	if (status)
		return status;
	/* a part of each array for each thread: parts of megabytes, which memcpy() writes past the caches */
#pragma omp parallel
	{
		size_t me = (size_t)omp_get_thread_num(), threads = (size_t)omp_get_num_threads();

		for (size_t i = 0; i < all.count; i++) {
			size_t begin = all.list[i].count * me / threads, end = all.list[i].count * (me + 1) / threads;

			memcpy(*all.list[i].to + begin, all.list[i].from + begin, (end - begin) * sizeof(float));
		}
	}
	return GN_OK;
}

void gn_checkpoint_snapshot_to_plain(struct gn_checkpoint_snapshot *s, struct gn_weight_layouts *layouts, struct gn_weight_layouts *own)
{
	gn_weight_layouts_out(layouts, s->arrays.params);
	for (int k = 0; k < s->own.count && s->arrays.own; k++)
		gn_weight_layouts_out(own, s->own_arrays[k]);
	if (s->arrays.is_split && (!s->arrays.in_layouts || s->arrays.begin == s->arrays.end))
		return;
	gn_weight_layouts_out(layouts, s->arrays.average_params);
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		gn_weight_layouts_out(layouts, s->arrays.slots[k]);
}

void gn_checkpoint_snapshot_release(struct gn_checkpoint_snapshot *s)
{
	gn_pages_unmap(s->memory, s->len_bytes);
	*s = (struct gn_checkpoint_snapshot){.memory = NULL};
}
