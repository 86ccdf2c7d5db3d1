#include "src/train/parallel/pipe_schedule.h"

#include <string.h>

static const char *const names[] = {[GN_PIPE_GPIPE] = "gpipe", [GN_PIPE_1F1B] = "1f1b", [GN_PIPE_PIPEDREAM] = "pipedream",
				    [GN_PIPE_DECOUPLED] = "decoupled"};

enum gn_pipe_kind gn_pipe_kind_of(const char *name)
{
	for (int k = 0; name && k <= GN_PIPE_DECOUPLED; k++)
		if (!strcmp(name, names[k]))
			return (enum gn_pipe_kind)k;
	return GN_PIPE_1F1B;
}

const char *gn_pipe_kind_name(enum gn_pipe_kind kind)
{
	return names[kind];
}

int gn_pipe_kind_is_async(enum gn_pipe_kind kind)
{
	return kind == GN_PIPE_PIPEDREAM || kind == GN_PIPE_DECOUPLED;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* The last round may be shorter. */
static struct gn_pipe_action gpipe(const struct gn_pipe_schedule *s, int i)
{
	int begin = i / (2 * s->micro) * s->micro, at = i % (2 * s->micro), len = least(s->micro, s->batches - begin);

	return (struct gn_pipe_action){at >= len, begin + at % len};
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
	if (s->kind == GN_PIPE_DECOUPLED)
		return (struct gn_pipe_action){i % 2, i / 2};
	return s->kind == GN_PIPE_GPIPE ? gpipe(s, i) : one_forward_one_backward(s, i);
}

int gn_pipe_schedule_in_flight(const struct gn_pipe_schedule *s)
{
	switch (s->kind) {
	case GN_PIPE_GPIPE:
		return least(s->micro, s->batches);
	case GN_PIPE_PIPEDREAM:
		return s->stages - s->stage;
	case GN_PIPE_DECOUPLED:
		return 1;
	default:
		return least(s->stages - s->stage, s->batches);
	}
}

double gn_pipe_schedule_bubble(const struct gn_pipe_schedule *s)
{
	int n = s->kind == GN_PIPE_GPIPE ? s->micro : s->batches;

	if (s->kind == GN_PIPE_DECOUPLED)
		return 0;
	return (double)(s->stages - 1) / (n + s->stages - 1);
}
