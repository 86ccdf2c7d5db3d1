/* Schedules of pipelines: every micro-batch forward and backward once, in order, in an order in which all stages can go on. */
#include "tests/test.h"

#include "src/train/parallel/pipe_schedule.h"

enum { STAGES_MAX = 6, BATCHES_MAX = 24 };

/* What a stage has done. */
struct progress {
	int actions, forwards, backwards, in_flight_max;
};

/* Whether the next action of a stage has what it needs from its neighbours. */
static int can_run(const struct gn_pipe_schedule *s, const struct progress *all, struct gn_pipe_action a)
{
	const struct progress *own = &all[s->stage];

	if (a.is_backward)
		return own->forwards > a.batch && (s->kind == GN_PIPE_DECOUPLED || s->stage == s->stages - 1 || all[s->stage + 1].backwards > a.batch);
	return s->stage == 0 || all[s->stage - 1].forwards > a.batch;
}

static int advance(const struct gn_pipe_schedule *s, struct progress *all)
{
	struct progress *own = &all[s->stage];
	struct gn_pipe_action a;

	if (own->actions == 2 * s->batches)
		return 0;
	a = gn_pipe_schedule_action(s, own->actions);
	if (!can_run(s, all, a))
		return 0;
	assert_int_equal(a.batch, a.is_backward ? own->backwards : own->forwards);
	own->backwards += a.is_backward;
	own->forwards += !a.is_backward;
	own->actions++;
	if (own->forwards - own->backwards > own->in_flight_max)
		own->in_flight_max = own->forwards - own->backwards;
	return 1;
}

static void run_all(enum gn_pipe_kind kind, int stages, int micro, int batches)
{
	struct progress all[STAGES_MAX] = {{0}};
	int moved = 1;

	while (moved) {
		moved = 0;
		for (int stage = 0; stage < stages; stage++) {
			const struct gn_pipe_schedule s = {kind, stage, stages, micro, batches};

			moved |= advance(&s, all);
		}
	}
	for (int stage = 0; stage < stages; stage++) {
		const struct gn_pipe_schedule s = {kind, stage, stages, micro, batches};

		assert_int_equal(all[stage].forwards, batches);
		assert_int_equal(all[stage].backwards, batches);
		/* of pipedream for runs of any length */
		assert_int_equal(all[stage].in_flight_max, kind == GN_PIPE_PIPEDREAM && batches < stages - stage ? batches
											: gn_pipe_schedule_in_flight(&s));
	}
}

/* What is known when it is cut short: a run of fewer micro-batches begins with the same actions, until its last two forwards. */
static void test_shorter(void **state)
{
	(void)state;
	for (int stages = 1; stages <= STAGES_MAX; stages++)
		for (int stage = 0; stage < stages; stage++)
			for (int batches = 2; batches < BATCHES_MAX; batches++) {
				const struct gn_pipe_schedule all = {GN_PIPE_PIPEDREAM, stage, stages, 1, BATCHES_MAX};
				struct gn_pipe_schedule cut = all;

				cut.batches = batches;
				for (int i = 0;; i++) {
					const struct gn_pipe_action a = gn_pipe_schedule_action(&all, i), b = gn_pipe_schedule_action(&cut, i);

					if (!a.is_backward && a.batch >= batches)
						break;
					assert_true(a.is_backward == b.is_backward && a.batch == b.batch);
				}
			}
}

static void test_all_run(void **state)
{
	(void)state;
	for (int stages = 1; stages <= STAGES_MAX; stages++)
		for (int micro = 1; micro <= 8; micro++)
			for (int batches = 1; batches <= BATCHES_MAX; batches++) {
				run_all(GN_PIPE_GPIPE, stages, micro, batches);
				run_all(GN_PIPE_1F1B, stages, micro, batches);
				run_all(GN_PIPE_PIPEDREAM, stages, micro, batches);
				run_all(GN_PIPE_DECOUPLED, stages, micro, batches);
			}
}

/* Of stages that take equally long for a forward, and twice that for a backward, by a clock of its own. */
static double idle_share(enum gn_pipe_kind kind, int stages, int micro, int batches)
{
	double forward[STAGES_MAX][BATCHES_MAX] = {{0}}, backward[STAGES_MAX][BATCHES_MAX] = {{0}}, free_at[STAGES_MAX] = {0}, end = 0;
	struct progress all[STAGES_MAX] = {{0}};

	for (int left = 2 * stages * batches; left;)
		for (int at = 0; at < stages; at++) {
			const struct gn_pipe_schedule s = {kind, at, stages, micro, batches};
			struct gn_pipe_action a;
			double from = free_at[at], needs = 0;

			if (all[at].actions == 2 * batches)
				continue;
			a = gn_pipe_schedule_action(&s, all[at].actions);
			if (!advance(&s, all))
				continue;
			if (a.is_backward)
				needs = at + 1 < stages ? backward[at + 1][a.batch] : 0;
			else if (at)
				needs = forward[at - 1][a.batch];
			from = needs > from ? needs : from;
			free_at[at] = from + (a.is_backward ? 2 : 1);
			(a.is_backward ? backward : forward)[at][a.batch] = free_at[at];
			end = free_at[at] > end ? free_at[at] : end;
			left--;
		}
	return 1 - 3.0 * batches / end;
}

static void test_bubble(void **state)
{
	static const int cases[][3] = {{2, 4, 4}, {4, 8, 8}, {4, 4, 4}, {3, 6, 12}, {6, 8, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int kind = GN_PIPE_GPIPE; kind <= GN_PIPE_1F1B; kind++) {
			const struct gn_pipe_schedule s = {(enum gn_pipe_kind)kind, 0, cases[i][0], cases[i][1], cases[i][2]};
			double idle = idle_share(s.kind, s.stages, s.micro, s.batches);

			assert_true(idle - gn_pipe_schedule_bubble(&s) < 1e-9 && gn_pipe_schedule_bubble(&s) - idle < 1e-9);
		}
}

static void test_names(void **state)
{
	(void)state;
	assert_int_equal(gn_pipe_kind_of("gpipe"), GN_PIPE_GPIPE);
	assert_int_equal(gn_pipe_kind_of("1f1b"), GN_PIPE_1F1B);
	assert_int_equal(gn_pipe_kind_of(NULL), GN_PIPE_1F1B);
	for (int kind = GN_PIPE_GPIPE; kind <= GN_PIPE_DECOUPLED; kind++)
		assert_int_equal(gn_pipe_kind_of(gn_pipe_kind_name((enum gn_pipe_kind)kind)), kind);
	assert_true(gn_pipe_kind_is_async(GN_PIPE_PIPEDREAM) && gn_pipe_kind_is_async(GN_PIPE_DECOUPLED));
	assert_false(gn_pipe_kind_is_async(GN_PIPE_GPIPE) || gn_pipe_kind_is_async(GN_PIPE_1F1B));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_run), cmocka_unit_test(test_shorter), cmocka_unit_test(test_bubble), cmocka_unit_test(test_names)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
