#include "src/train/optim/resize_schedule.h"

#include <ctype.h>
#include <stdlib.h>

static int parse_number(const char **p, char end, long max, long *out)
{
	char *after;

	if (!isdigit((unsigned char)**p))
		return -1;
	*out = strtol(*p, &after, 10);
	if (*out > max || (*after != end && !(end == ',' && !*after)))
		return -1;
	*p = *after ? after + 1 : after;
	return 0;
}

enum gn_status gn_resize_schedule_parse(const char *text, struct gn_resize_schedule *out, struct gn_err *err)
{
	enum { EPOCH_MAX = 1000000, SIDE_MAX = 4096 };
	struct gn_resize_schedule g = {.count = 0};
	const char *p = text;

	while (*p) {
		long epoch, side;

		if (g.count == GN_RESIZE_SCHEDULE_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "more than %d stages of image sides", GN_RESIZE_SCHEDULE_MAX);
		if (parse_number(&p, ':', EPOCH_MAX, &epoch) || parse_number(&p, ',', SIDE_MAX, &side) || side < 1 ||
		    (g.count ? epoch <= g.stages[g.count - 1].epoch : epoch != 0))
			return gn_err_set(err, GN_ERR_USAGE, "sides '%s': write rising epochs from 0 on, each with a side, such as "
					  "0:128,18:160,28:224", text);
		g.stages[g.count].epoch = epoch;
		g.stages[g.count++].side = (int)side;
	}
	*out = g;
	return GN_OK;
}

int gn_resize_schedule_side(const struct gn_resize_schedule *g, uint64_t epoch, int full)
{
	int side = full;

	for (size_t i = 0; i < g->count && (uint64_t)g->stages[i].epoch <= epoch; i++)
		side = g->stages[i].side;
	return side;
}
