#include "src/base/alloc.h"
#include "src/train/plan/plan_internal.h"

#include <stdlib.h>

static int by_bytes(const void *a, const void *b)
{
	const struct gn_memory_planner *const *x = a, *const *y = b;

	if ((*x)->bytes != (*y)->bytes)
		return (*x)->bytes < (*y)->bytes ? 1 : -1;
	return *x < *y ? -1 : *x > *y;
}

static int by_offset(const void *a, const void *b)
{
	const struct gn_memory_planner *const *x = a, *const *y = b;

	return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* Times before the gap and after it. */
static int parts_of(const struct gn_memory_planner *s, int part[2][2])
{
	part[0][0] = s->first;
	part[0][1] = s->last;
	if (s->gap_first > s->gap_last)
		return 1;
	part[0][1] = s->gap_first - 1;
	part[1][0] = s->gap_last + 1;
	part[1][1] = s->last;
	return 2;
}

static int together(const struct gn_memory_planner *a, const struct gn_memory_planner *b)
{
	int x[2][2], y[2][2], xs = parts_of(a, x), ys = parts_of(b, y), found = 0;

	for (int i = 0; i < xs; i++)
		for (int k = 0; k < ys; k++)
			found |= x[i][0] <= y[k][1] && y[k][0] <= x[i][1];
	return found;
}

/* The lowest gap between the pieces already placed that are alive together with s. */
static void place_one(struct gn_memory_planner *s, struct gn_memory_planner **placed, int count, struct gn_memory_planner **rivals)
{
	int rival_count = 0;
	size_t at = 0;

	for (int i = 0; i < count; i++)
		if (together(placed[i], s))
			rivals[rival_count++] = placed[i];
	qsort(rivals, rival_count, sizeof *rivals, by_offset);
	for (int i = 0; i < rival_count; i++) {
		if (at + s->bytes <= rivals[i]->offset)
			break;
		if (at < rivals[i]->offset + gn_round_up(rivals[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES))
			at = rivals[i]->offset + gn_round_up(rivals[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES);
	}
	s->offset = at;
}

/* Largest first, each as low as it goes: within a few percent of the best on networks, where lifetimes nest. */
enum gn_status gn_memory_planner_place(struct gn_memory_planner *pieces, int count, size_t *total_bytes, struct gn_err *err)
{
	struct gn_memory_planner **order = calloc(2 * (size_t)count + 1, sizeof *order);
	size_t total = 0;

	if (!order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for placing %d buffers", count);
	for (int i = 0; i < count; i++)
		order[i] = &pieces[i];
	qsort(order, count, sizeof *order, by_bytes);
	for (int i = 0; i < count && order[i]->bytes; i++) {
		place_one(order[i], order, i, order + count);
		if (order[i]->offset + gn_round_up(order[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES) > total)
			total = order[i]->offset + gn_round_up(order[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES);
	}
	free(order);
	*total_bytes = total;
	return GN_OK;
}
