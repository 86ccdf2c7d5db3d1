#include "transport/told.h"

#include <stdlib.h>

enum gn_status gn_told_create(int size, struct gn_told *out, struct gn_err *err)
{
	struct gn_told t = {.size = (size_t)size};

	t.items = calloc(t.size, sizeof *t.items);
	t.lens = calloc(t.size, sizeof *t.lens);
	if (!t.items || !t.lens) {
		gn_told_release(&t);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	}
	*out = t;
	return GN_OK;
}

void gn_told_release(struct gn_told *t)
{
	for (size_t r = 0; t->items && r < t->size; r++)
		free(t->items[r]);
	free(t->items);
	free(t->lens);
	*t = (struct gn_told){0};
}
