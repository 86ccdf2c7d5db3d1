#include "transport/sim/sim_events.h"

#include "src/base/alloc.h"

#include <stdlib.h>

static int before(const struct gn_sim_event *a, const struct gn_sim_event *b)
{
	if (a->at < b->at || a->at > b->at)
		return a->at < b->at;
	return a->kind < b->kind || (a->kind == b->kind && a->what < b->what);
}

void gn_sim_events_push(struct gn_sim_events *e, double at, enum gn_sim_kind kind, uint32_t what)
{
	struct gn_sim_event new = {at, what, kind};
	size_t i;

	if (gn_array_grow(&e->heap, &e->room, e->count, sizeof *e->heap)) {
		e->status = GN_ERR_NO_MEMORY;
		return;
	}
	for (i = e->count++; i && before(&new, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
		e->heap[i] = e->heap[(i - 1) / 2];
	e->heap[i] = new;
}

struct gn_sim_event gn_sim_events_pop(struct gn_sim_events *e)
{
	struct gn_sim_event top = e->heap[0], last = e->heap[--e->count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < e->count) {
		if (child + 1 < e->count && before(&e->heap[child + 1], &e->heap[child]))
			child++;
		if (!before(&e->heap[child], &last))
			break;
		e->heap[i] = e->heap[child];
		i = child;
	}
	e->heap[i] = last;
	return top;
}

void gn_sim_events_release(struct gn_sim_events *e)
{
	free(e->heap);
	*e = (struct gn_sim_events){0};
}
