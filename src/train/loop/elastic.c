#include "src/train/loop/elastic.h"

#include "transport/bootstrap/membership.h"

#include <stdio.h>

enum gn_status gn_elastic_parse(const char *text, int *least, int *most, struct gn_err *err)
{
	int min = 0, max = 0, end = 0, fields;

	if (!text) {
		*least = *most = 0;
		return GN_OK;
	}
	fields = sscanf(text, "%5d%n:%5d%n", &min, &end, &max, &end);
	if (fields == 2 && !text[end] && min >= 1 && max < min)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: at most %d ranks are fewer than at least %d", text, max, min);
	if (fields < 1 || text[end] || min < 0 || min > GN_MEMBERS_MAX || max > GN_MEMBERS_MAX || (fields == 2 && min < 1))
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: MIN or MIN:MAX ranks, %d at most", text, GN_MEMBERS_MAX);
	*least = min;
	*most = max;
	return GN_OK;
}

int gn_elastic_least(const struct gn_train_options *o)
{
	int least = 0, most;

	gn_elastic_parse(o->elastic, &least, &most, NULL);
	return least;
}

int gn_elastic_most(const struct gn_train_options *o)
{
	int least, most = 0;

	gn_elastic_parse(o->elastic, &least, &most, NULL);
	return most;
}
