/* Sorting of doubles, for medians and percentiles. */
#ifndef GN_BASE_SORT_H
#define GN_BASE_SORT_H

#include <stdlib.h>

static inline int gn_compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Ascending, in place; without NaN. */
static inline void gn_sort_doubles(double *values, size_t count)
{
	qsort(values, count, sizeof *values, gn_compare_doubles);
}

#endif
