#include "src/train/parallel/pipe_schedule.h"

#include <string.h>

enum gn_pipe_kind gn_pipe_kind_of(const char *name)
{
	return name && !strcmp(name, "gpipe") ? GN_PIPE_GPIPE : GN_PIPE_1F1B;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static struct gn_pipe_action gpipe(const struct gn_pipe_schedule *s, int i)
{
	int round = i / (2 * s->micro), at = i % (2 * s->micro);

	return (struct gn_pipe_action){at >= s->micro, round * s->micro + at % s->micro};
}

static struct gn_pipe_action one_forward_one_backward(const struct gn_pipe_schedule *s, int i)
{
	int first = least(s->stages - 1 - s->stage, s->batches), pairs = s->batches - first, at = i - first;

	if (at < 0)
		return (struct gn_pipe_action){0, i};
	if (at < 2 * pairs)
		return (struct gn_pipe_action){at % 2, at / 2 + (at % 2 ? 0 : first)};
	return (struct gn_pipe_action){1, at - pairs};
}

struct gn_pipe_action gn_pipe_schedule_action(const struct gn_pipe_schedule *s, int i)
{
	return s->kind == GN_PIPE_GPIPE ? gpipe(s, i) : one_forward_one_backward(s, i);
}

int gn_pipe_schedule_in_flight(const struct gn_pipe_schedule *s)
{
	return s->kind == GN_PIPE_GPIPE ? s->micro : least(s->stages - s->stage, s->batches);
}

double gn_pipe_schedule_bubble(const struct gn_pipe_schedule *s)
{
	int n = s->kind == GN_PIPE_GPIPE ? s->micro : s->batches;

	return (double)(s->stages - 1) / (n + s->stages - 1);
}
