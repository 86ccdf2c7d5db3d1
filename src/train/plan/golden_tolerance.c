#include "src/train/plan/golden_tolerance.h"

#include "src/base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void gn_tolerance_release(struct gn_tolerance *l)
{
	free(l->entries);
	free(l->theirs);
	free(l->mine);
	free(l->again);
}

void gn_tolerance_begin(struct gn_tolerance *l, int repeat)
{
	l->repeat = repeat;
	l->number_next = 0;
}

static int make_room(struct gn_tolerance *l, size_t numbers)
{
	double **all[] = {&l->theirs, &l->mine, &l->again};

	if (gn_array_grow(&l->entries, &l->entry_room, l->entry_count, sizeof *l->entries))
		return -1;
	if (l->number_next + numbers <= l->number_room)
		return 0;
	l->number_room = 2 * (l->number_room + numbers) + 4096;
	for (int i = 0; i < 3; i++) {
		double *p = realloc(*all[i], l->number_room * sizeof *p);

		if (!p)
			return -1;
		*all[i] = p;
	}
	return 0;
}

void gn_tolerance_entry(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing, double bound,
		     double scale, size_t numbers)
{
	if (l->repeat)
		return;
	if (l->no_memory || make_room(l, numbers)) {
		l->no_memory = 1;
		return;
	}
	l->entries[l->entry_count++] = (struct gn_tolerance_entry){
		.row = {.quantity = quantity, .name = name, .bound = bound},
		.sharing = sharing,
		.scale = fabs(scale),
		.first = l->number_next};
}

void gn_tolerance_number(struct gn_tolerance *l, double mine, double theirs)
{
	if (l->no_memory)
		return;
	if (l->repeat) {
		l->again[l->number_next++] = mine;
		return;
	}
	l->mine[l->number_next] = mine;
	l->theirs[l->number_next++] = theirs;
	l->entries[l->entry_count - 1].count++;
}

void gn_tolerance_single(struct gn_tolerance *l, const char *quantity, const char *name, enum gn_sharing sharing,
		      double bound, double scale, double mine, double theirs)
{
	gn_tolerance_entry(l, quantity, name, sharing, bound, scale, 1);
	gn_tolerance_number(l, mine, theirs);
}

/* Norm of the difference over the entry's scale. */
static double distance(const struct gn_tolerance_entry *e, const double *a, const double *b)
{
	double sum = 0;

	for (size_t i = e->first; i < e->first + e->count; i++)
		sum += (a[i] - b[i]) * (a[i] - b[i]);
	return sum == 0 ? 0 : sqrt(sum) / e->scale;
}

size_t gn_tolerance_judge(struct gn_tolerance *l)
{
	size_t beyond = 0;

	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_tolerance_entry *e = &l->entries[i];

		e->row.deviation = distance(e, l->mine, l->theirs);
		e->row.verdict = e->row.deviation <= e->row.bound ? GN_GOLDEN_OK : GN_GOLDEN_FAIL;
		beyond += e->row.verdict != GN_GOLDEN_OK;
	}
	return beyond;
}

void gn_tolerance_keep_rounding(struct gn_tolerance *l)
{
	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_tolerance_entry *e = &l->entries[i];
		double d = distance(e, l->again, l->mine);

		if (d > e->row.rounding)
			e->row.rounding = d;
	}
}

static int shares(const struct gn_tolerance_entry *one, const struct gn_tolerance_entry *other)
{
	if (one->sharing != other->sharing || one->sharing == GN_SHARE_NOTHING)
		return 0;
	return one->sharing == GN_SHARE_PRECEDING ? other < one : !strcmp(one->row.quantity, other->row.quantity);
}

/* Giving an entry the largest of its group does not change what is the largest, so the order is of no account. */
static void share_rounding(struct gn_tolerance *l)
{
	for (size_t i = 0; i < l->entry_count; i++)
		for (size_t k = 0; k < l->entry_count; k++)
			if (shares(&l->entries[i], &l->entries[k]) &&
			    l->entries[k].row.rounding > l->entries[i].row.rounding)
				l->entries[i].row.rounding = l->entries[k].row.rounding;
}

size_t gn_tolerance_excuse(struct gn_tolerance *l, double tolerance)
{
	size_t failed = 0;

	share_rounding(l);
	for (size_t i = 0; i < l->entry_count; i++) {
		struct gn_golden_row *row = &l->entries[i].row;

		if (row->verdict != GN_GOLDEN_OK && row->deviation <= tolerance * row->rounding)
			row->verdict = GN_GOLDEN_ROUNDING;
		failed += row->verdict == GN_GOLDEN_FAIL;
	}
	return failed;
}
