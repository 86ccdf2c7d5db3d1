#include "src/train/metrics/curve_axis.h"

#include "src/base/sort.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

double gn_curve_quantile(const struct gn_curve *c, size_t offset, double share)
{
	double *values = malloc((c->step_count + 1) * sizeof *values), result = NAN;
	size_t count = 0;

	for (size_t i = 0; values && i < c->step_count; i++)
		if (gn_curve_field(&c->steps[i], offset) > 0)
			values[count++] = gn_curve_field(&c->steps[i], offset);
	if (count) {
		gn_sort_doubles(values, count);
		result = values[(size_t)(share * (double)(count - 1))];
	}
	free(values);
	return result;
}

void gn_curve_range(const struct gn_curve *curves, size_t count, size_t offset, double limit, double *low, double *high)
{
	*low = *high = 0;
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++) {
			double v = gn_curve_field(&curves[c].steps[i], offset);

			if (!(v > 0) || v > limit)
				continue;
			*high = fmax(*high, v);
			*low = *low > 0 ? fmin(*low, v) : v;
		}
}

size_t gn_curve_axis(const struct gn_curve *curves, size_t count, size_t field, int prefer_log, struct gn_axis *y)
{
	int diverges = field == offsetof(struct gn_curve_step, loss) || field == offsetof(struct gn_curve_step, grad_norm);
	double least = 0, low, high, one;
	size_t beyond = 0;

	for (size_t c = 0; c < count; c++) {
		one = gn_curve_quantile(&curves[c], field, 0.9);
		if (one > 0 && (one < least || !(least > 0)))
			least = one;
	}
	gn_curve_range(curves, count, field, INFINITY, &low, &high);
	if (diverges && least > 0 && high / least > 1e4)
		gn_curve_range(curves, count, field, prefer_log ? 1e3 * least : 4 * least, &low, &high);
	y->low = 0;
	y->high = high;
	y->logarithmic = low > 0 && ((prefer_log && high / low > 20) || high / least > 20);
	if (y->logarithmic)
		y->low = fmax(low, high / 1e5);
	if (!(high > 0))
		return 0;
	gn_axis_widen(y);
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++)
			beyond += gn_axis_side(y, gn_curve_field(&curves[c].steps[i], field)) > 0;
	return beyond;
}
