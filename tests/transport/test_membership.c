/* Agreement on membership under random schedules: proposers that overlap, stop half-way and come back, and messages that are lost, late
 * or repeated. Whatever happens, no epoch is chosen twice with different members. */
#include "tests/test.h"

#include "transport/bootstrap/membership.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 5, EPOCHS = 12, TURNS = 400, SCHEDULES = 2000 };

struct proposer {
	int runs, accepts; /* accepts: in the second phase */
	uint64_t epoch, ballot, asked, promised, accepted; /* sets of ranks of that epoch */
	uint64_t best, own; /* own: its last ballot of all */
	int is_half; /* the witness keeps the proposal */
	struct gn_roster ends, proposal;
};

struct scene {
	unsigned random;
	struct gn_acceptor all[SIZE];
	struct proposer by[SIZE];
	uint64_t chosen[EPOCHS + 2], keys, highest;
	struct gn_roster witness[EPOCHS + 2]; /* by epoch; key 0: nothing is kept */
	int decisions, by_half;
};

static unsigned draw(struct scene *s, unsigned below)
{
	s->random = s->random * 1664525u + 1013904223u;
	return (s->random >> 8) % below;
}

static uint32_t count(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

static void begin(struct scene *s, int p)
{
	struct proposer *x = &s->by[p];
	const struct gn_roster *now = &s->all[p].current;
	int rank = gn_roster_rank(now, (uint64_t)p);
	uint64_t highest;

	x->runs = rank >= 0 && now->epoch < EPOCHS;
	if (!x->runs)
		return;
	*x = (struct proposer){.runs = 1, .epoch = now->epoch, .ends = *now, .own = x->own};
	highest = draw(s, 2) ? s->highest : s->all[p].promised;
	x->own = x->ballot = gn_membership_ballot(highest > x->own ? highest : x->own, rank);
	s->highest = x->ballot > s->highest ? x->ballot : s->highest;
}

/* Of those that have promised. */
static void propose_own(struct scene *s, struct proposer *x)
{
	x->proposal = (struct gn_roster){.epoch = x->epoch + 1, .key = ++s->keys};
	for (uint32_t r = 0; r < x->ends.count; r++)
		if (x->promised >> r & 1)
			x->proposal.ids[x->proposal.count++] = x->ends.ids[r];
	/* one that was out may be taken in */
	for (uint64_t id = 0; id < SIZE; id++)
		if (gn_roster_rank(&x->ends, id) < 0 && draw(s, 2))
			x->proposal.ids[x->proposal.count++] = id;
}

/* One half asks the witness, and may stop when it has. */
static int ask_witness(struct scene *s, struct proposer *x)
{
	struct gn_roster *kept = &s->witness[x->epoch + 1];

	if (!kept->key)
		*kept = x->proposal;
	if (!draw(s, 4))
		x->runs = 0;
	if (!x->runs || (x->best && kept->key != x->proposal.key))
		return 0;
	x->proposal = *kept;
	x->is_half = 1;
	return 1;
}

/* Of those that have promised, unless one of them has accepted something. */
static void second_phase(struct scene *s, struct proposer *x)
{
	const int half = gn_membership_is_half(&x->ends, count(x->promised));

	if (!gn_membership_is_majority(&x->ends, count(x->promised)) && !half)
		return;
	if (!x->best)
		propose_own(s, x);
	if (half && !ask_witness(s, x))
		return;
	x->accepts = 1;
	x->asked = 0;
}

static void decide(struct scene *s, struct proposer *x, int p)
{
	const struct gn_roster *v = &x->proposal;

	const int half = x->is_half && gn_membership_is_half(&x->ends, count(x->accepted));

	if (!gn_membership_is_majority(&x->ends, count(x->accepted)) && !half)
		return;
	if (s->chosen[v->epoch] && s->chosen[v->epoch] != v->key)
		fail_msg("epoch %d was chosen twice", (int)v->epoch);
	s->by_half += half && !s->chosen[v->epoch];
	s->decisions += !s->chosen[v->epoch];
	s->chosen[v->epoch] = v->key;
	gn_acceptor_decide(&s->all[p], v);
	for (int other = 0; other < SIZE; other++)
		if (draw(s, 3))
			gn_acceptor_decide(&s->all[other], v);
	x->runs = 0;
}

/* One message of the proposer to one member, which may be lost, and its answer, which may be, too. */
static void send(struct scene *s, struct proposer *x, int p)
{
	uint32_t r = draw(s, x->ends.count);
	struct gn_acceptor *to = &s->all[x->ends.ids[r]];
	enum gn_membership_answer answer;

	if (!draw(s, 5))
		return;
	answer = x->accepts ? gn_acceptor_accept(to, &x->proposal, x->ballot) : gn_acceptor_prepare(to, x->epoch, x->ballot);
	if (!draw(s, 5))
		return;
	if (answer == GN_MEMBERSHIP_UNKNOWN)
		gn_acceptor_decide(to, &x->ends);
	if (answer == GN_MEMBERSHIP_NEWER)
		gn_acceptor_decide(&s->all[p], &to->current);
	if (answer == GN_MEMBERSHIP_GRANTED && x->accepts)
		x->accepted |= 1ull << r;
	if (answer != GN_MEMBERSHIP_GRANTED || x->accepts)
		return;
	x->promised |= 1ull << r;
	if (to->accepted > x->best) {
		x->best = to->accepted;
		x->proposal = to->proposal;
	}
}

static int run(unsigned seed, int *by_half)
{
	struct gn_roster first = {.epoch = 1, .key = 1, .count = SIZE - seed % 2, .ids = {0, 1, 2, 3, 4}};
	struct scene *s = calloc(1, sizeof *s);
	int decisions;

	assert_non_null(s);
	s->random = seed;
	s->keys = 1;
	for (int p = 0; p < SIZE; p++)
		gn_acceptor_init(&s->all[p], &first);
	for (int turn = 0; turn < TURNS; turn++) {
		int p = (int)draw(s, SIZE);
		struct proposer *x = &s->by[p];

		/* it begins, or gives up what it did and begins again */
		if (!x->runs || !draw(s, 40))
			begin(s, p);
		else if (!x->accepts && !draw(s, 3))
			second_phase(s, x);
		else if (x->accepts && !draw(s, 4))
			decide(s, x, p);
		else
			send(s, x, p);
	}
	decisions = s->decisions;
	*by_half += s->by_half;
	free(s);
	return decisions;
}

static void test_never_two(void **state)
{
	int decisions = 0, by_half = 0;

	(void)state;
	for (unsigned seed = 1; seed <= SCHEDULES; seed++)
		decisions += run(seed, &by_half);
	/* there was something to go wrong */
	assert_true(decisions > SCHEDULES);
	assert_true(by_half > SCHEDULES / 20);
}

static void test_half(void **state)
{
	const struct gn_roster four = {.count = 4}, five = {.count = 5};

	(void)state;
	assert_true(gn_membership_is_majority(&four, 3));
	assert_false(gn_membership_is_majority(&four, 2));
	assert_false(gn_membership_is_majority(&four, 1));
	assert_true(gn_membership_is_majority(&five, 3));
	assert_false(gn_membership_is_majority(&five, 2));
	assert_true(gn_membership_is_half(&four, 2));
	assert_false(gn_membership_is_half(&four, 1));
	assert_false(gn_membership_is_half(&five, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_two), cmocka_unit_test(test_half)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
