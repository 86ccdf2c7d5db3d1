/* How a new world is agreed on. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A rank whose turn it is not waits so long for each rank before it. */
#define TURN_NS 2000000000u
/* How often it asks whether they live: more of them ask less often. */
#define TURN_LOOK_NS 50000000u
enum { WORLDS_MAX = 16, TURNS_MAX = 4 };

/* An attempt to end an epoch. */
struct attempt {
	struct gn_regroup *g;
	const struct gn_world *world; /* of that epoch, NULL: it never was */
	struct gn_roster ends;
	uint64_t ballot, began_ns, until_ns;
	int asks_all;	     /* also those that are lost */
	uint32_t promised, dead, refused;
	int is_half;	     /* the witness keeps the proposal */
	uint64_t best;	     /* ballot of the proposal */
	struct gn_roster proposal;
	char granted[GN_MEMBERS_MAX];
};

/* How long a rank may answer nothing. */
static uint64_t silence_ns(const struct gn_world *w)
{
	return w ? (uint64_t)gn_world_silent_after_ms(w) * 1000000 : TURN_NS;
}

static int is_decided(struct gn_regroup *g)
{
	int decided;

	pthread_mutex_lock(&g->lock);
	decided = g->acceptor.current.epoch > g->epoch;
	pthread_mutex_unlock(&g->lock);
	return decided;
}

/* A later epoch is known to somebody else. */
static void take_newer(struct gn_regroup *g, const struct gn_roster *newer)
{
	pthread_mutex_lock(&g->lock);
	gn_acceptor_decide(&g->acceptor, newer);
	pthread_mutex_unlock(&g->lock);
}

/* --- to agree --- */

static void note_promise(struct attempt *t, uint32_t member, const struct gn_regroup_answer *a)
{
	if (a->promised > t->g->highest)
		t->g->highest = a->promised;
	if (a->result == GN_MEMBERSHIP_NEWER)
		take_newer(t->g, &a->roster);
	t->refused += a->result != GN_MEMBERSHIP_GRANTED;
	if (a->result != GN_MEMBERSHIP_GRANTED)
		return;
	t->granted[member] = a->leaves ? 2 : 1;
	t->promised++;
	if (a->accepted > t->best) {
		t->best = a->accepted;
		t->proposal = a->roster;
	}
}

/* Asks until the member has answered or is lost: one that computes has not found the loss yet. */
static void prepare(struct attempt *t, uint32_t member, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	const struct gn_world *w = t->world;
	enum gn_regroup_reply reply;

	for (;;) {
		if (w && !t->asks_all && gn_world_is_lost(w, (int)member))
			return;
		reply = gn_regroup_ask(t->g, t->ends.ids[member], q, a);
		t->dead += reply == GN_REGROUP_DEAD;
		if (reply == GN_REGROUP_DEAD || is_decided(t->g) || gn_clock_ns() >= t->until_ns)
			return;
		if (reply == GN_REGROUP_ANSWERED && !a->busy)
			break;
		if (reply == GN_REGROUP_SILENT && gn_clock_ns() >= t->began_ns + silence_ns(w))
			return;
		gn_regroup_pause();
	}
	note_promise(t, member, a);
}

/* Takes in those that wait, while there are places for them. */
static void add_candidates(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	struct gn_regroup *g = t->g;
	struct gn_regroup_candidate waiting[GN_REGROUP_CANDIDATES];
	int count, has_place;

	pthread_mutex_lock(&g->lock);
	count = g->candidate_count;
	memcpy(waiting, g->candidates, (size_t)count * sizeof *waiting);
	pthread_mutex_unlock(&g->lock);
	*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = t->ends.epoch};
	for (int i = 0; i < count && t->proposal.count < GN_MEMBERS_MAX; i++) {
		pthread_mutex_lock(&g->lock);
		has_place = gn_regroup_has_place(g, &waiting[i], t->proposal.count) && gn_roster_rank(&t->ends, waiting[i].id) < 0;
		pthread_mutex_unlock(&g->lock);
		if (!has_place)
			continue;
		if (gn_regroup_ask(g, waiting[i].id, q, a) == GN_REGROUP_ANSWERED && !a->leaves) {
			t->proposal.ids[t->proposal.count++] = waiting[i].id;
			continue;
		}
		gn_log_warn(g->log, "a process that asked to take part cannot be reached, or has ended: it has to wait");
		gn_regroup_forget_candidate(g, waiting[i].id, 1);
	}
}

static enum gn_status propose_own(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_err *err)
{
	struct gn_secret random;
	enum gn_status status = gn_secret_random(&random, err);

	t->proposal = (struct gn_roster){.epoch = t->ends.epoch + 1};
	memcpy(&t->proposal.key, random.bytes, sizeof t->proposal.key);
	for (uint32_t m = 0; m < t->ends.count; m++)
		if (t->granted[m] == 1)
			t->proposal.ids[t->proposal.count++] = t->ends.ids[m];
	if (t->proposal.count)
		add_candidates(t, q, a);
	/* a world of nobody: all learn at once that the run ends, which the first of them tells */
	if (t->proposal.count < (uint32_t)t->g->least)
		t->proposal.count = 0;
	return status;
}

static size_t roster_bytes(uint32_t count)
{
	/* of nobody: with who tells it */
	return offsetof(struct gn_roster, ids) + (count ? count : 1) * sizeof(uint64_t);
}

/* Has the witness keep the proposal, or takes the one that it keeps, unless that contradicts what a member has accepted. */
static enum gn_status ask_witness(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_err *err)
{
	const struct gn_regroup_witness *w = &t->g->witness;
	struct gn_roster *kept = calloc(1, sizeof *kept);
	size_t len = 0;
	struct gn_err why;
	enum gn_status status = kept ? GN_OK : gn_err_set(&why, GN_ERR_NO_MEMORY, "no memory to agree on the ranks that are left");

	if (!status && !t->best)
		status = propose_own(t, q, a, &why);
	if (!status)
		status = w->settle(w->context, &t->proposal, roster_bytes(t->proposal.count), kept, sizeof *kept, &len, &why);
	if (!status && (len < roster_bytes(0) || kept->count > GN_MEMBERS_MAX || len != roster_bytes(kept->count) ||
			kept->epoch != t->proposal.epoch || (t->best && kept->key != t->proposal.key)))
		status = gn_err_set(&why, GN_ERR_PEER_LOST, "another world was begun and not agreed on");
	if (!status) {
		t->proposal = *kept;
		t->is_half = 1;
	}
	free(kept);
	if (!status)
		return GN_OK;
	return gn_err_set(err, GN_ERR_PEER_LOST, "%u of %u ranks of the last world answer, which are exactly half, and it is not known that the others "
			  "do not go on: %s", t->promised, t->ends.count, why.text);
}

enum gn_status gn_regroup_fence(struct gn_regroup *g, struct gn_err *err)
{
	struct gn_roster *mine = calloc(2, sizeof *mine), *kept = mine ? mine + 1 : NULL;
	size_t len = 0;
	enum gn_status status = mine ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to agree on the ranks that are left");

	if (!status && g->witness.settle) {
		pthread_mutex_lock(&g->lock);
		*mine = g->acceptor.current;
		pthread_mutex_unlock(&g->lock);
		status = g->witness.settle(g->witness.context, mine, roster_bytes(mine->count), kept, sizeof *kept, &len, err);
		/* it keeps nothing for anybody any more */
		if (status == GN_ERR_EXISTS)
			status = GN_OK;
		else if (!status && (len < roster_bytes(0) || kept->epoch > g->epoch))
			status = gn_err_set(err, GN_ERR_PEER_LOST, "half of the ranks of this world have gone on without the others");
	}
	free(mine);
	return status;
}

/* Whether so many members can choose. */
static int is_enough(const struct attempt *t, uint32_t members)
{
	return gn_membership_is_majority(&t->ends, members) || (t->is_half && gn_membership_is_half(&t->ends, members));
}

/* The other half is lost, as far as this one can tell: each of its members was asked. */
static int is_tie(const struct attempt *t)
{
	return t->g->witness.settle && t->asks_all && !t->refused && gn_membership_is_half(&t->ends, t->promised);
}

/* Whether this process is the first of those that have promised. */
static int is_first(const struct attempt *t)
{
	uint32_t m = 0;

	while (m < t->ends.count && !t->granted[m])
		m++;
	return m < t->ends.count && t->ends.ids[m] == t->g->self.id;
}

/* Tells those that have promised, and of a decision those that are taken in; counts which of the former have taken it. */
static uint32_t tell(struct attempt *t, enum gn_regroup_what what, struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	uint32_t taken = 0;

	*q = (struct gn_regroup_request){.what = what, .epoch = t->proposal.epoch, .ballot = t->ballot, .roster = t->proposal};
	for (uint32_t m = 0; m < t->ends.count; m++)
		if (t->granted[m] && gn_regroup_ask(t->g, t->ends.ids[m], q, a) == GN_REGROUP_ANSWERED)
			taken += a->result == GN_MEMBERSHIP_GRANTED;
	for (uint32_t m = 0; m < t->proposal.count && what == GN_REGROUP_DECIDE; m++)
		if (gn_roster_rank(&t->ends, t->proposal.ids[m]) < 0)
			gn_regroup_ask(t->g, t->proposal.ids[m], q, a);
	return taken;
}

static enum gn_status too_few(uint32_t promised, uint32_t ranks, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_PEER_LOST, "%u of %u ranks of the last world answer, and more than half of them must be left", promised, ranks);
}

static enum gn_status run_attempt(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	*q = (struct gn_regroup_request){.what = GN_REGROUP_PREPARE, .epoch = t->ends.epoch, .ballot = t->ballot};
	for (uint32_t m = 0; m < t->ends.count && !is_decided(t->g); m++)
		prepare(t, m, q, a);
	if (is_decided(t->g))
		return GN_OK;
	if (!gn_membership_is_majority(&t->ends, t->ends.count - t->dead) && !is_tie(t)) {
		/* a tie is of all: the next attempt asks those, too, that the world holds for lost */
		if (!t->asks_all && t->g->witness.settle)
			return GN_OK;
		/* of those that are dead none goes on, and the others are too few */
		t->g->is_last = is_first(t);
		return too_few(t->promised, t->ends.count, err);
	}
	if (is_tie(t))
		status = ask_witness(t, q, a, err);
	/* ranks that promise without being a majority have decided nothing: the next attempt asks again */
	else if (!gn_membership_is_majority(&t->ends, t->promised))
		return GN_OK;
	else if (!t->best)
		status = propose_own(t, q, a, err);
	if (status)
		return status;
	if (is_enough(t, tell(t, GN_REGROUP_ACCEPT, q, a)))
		tell(t, GN_REGROUP_DECIDE, q, a);
	return GN_OK;
}

static enum gn_status attempt(struct gn_regroup *g, const struct gn_world *w, uint64_t began_ns, uint64_t until_ns, int number,
			      uint32_t *promised, uint32_t *ranks, struct gn_err *err)
{
	struct attempt *t = calloc(1, sizeof *t);
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	enum gn_status status = GN_ERR_NO_MEMORY;

	if (t && q && a) {
		*t = (struct attempt){.g = g, .world = w, .began_ns = began_ns, .until_ns = until_ns, .asks_all = number > 0 || !w};
		pthread_mutex_lock(&g->lock);
		t->ends = g->acceptor.current;
		if (g->acceptor.promised > g->highest)
			g->highest = g->acceptor.promised;
		pthread_mutex_unlock(&g->lock);
		t->ballot = g->highest = gn_membership_ballot(g->highest, gn_roster_rank(&t->ends, g->self.id));
		status = t->ends.epoch > g->epoch ? GN_OK : run_attempt(t, q, a, err);
		*promised = t->promised;
		*ranks = t->ends.count;
	} else {
		gn_err_set(err, status, "no memory to agree on the ranks that are left");
	}
	free(t);
	free(q);
	free(a);
	return status;
}

/* Ranks before this one that may be about to propose. */
static int turn(struct gn_regroup *g, const struct gn_world *w, struct gn_roster *roster, struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	int before = 0, rank;

	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
	rank = gn_roster_rank(roster, g->self.id);
	*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = roster->epoch};
	/* losses that the world did not learn of are found by asking */
	for (int r = 0; r < rank && before < TURNS_MAX; r++)
		before += (!w || !gn_world_is_lost(w, r)) && gn_regroup_ask(g, roster->ids[r], q, a) != GN_REGROUP_DEAD;
	return before;
}

/* Waits for a decision. */
static void await_decision(struct gn_regroup *g, uint64_t wait_ns)
{
	uint64_t until = gn_clock_ns() + wait_ns;

	while (gn_clock_ns() < until && !is_decided(g))
		gn_regroup_pause();
}

static void await_turn(struct gn_regroup *g, const struct gn_world *w)
{
	struct gn_roster *roster = malloc(sizeof *roster);
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	const uint64_t began = gn_clock_ns();

	while (roster && q && a && !is_decided(g) && gn_clock_ns() < began + (uint64_t)turn(g, w, roster, q, a) * TURN_NS)
		await_decision(g, TURN_LOOK_NS * (1 + roster->count / 16));
	free(roster);
	free(q);
	free(a);
}

static enum gn_status agree(struct gn_regroup *g, const struct gn_world *w, uint64_t until_ns, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	uint32_t promised = 0, ranks = 0;
	enum gn_status status = GN_OK;

	await_turn(g, w);
	for (int number = 0; !status && !is_decided(g); number++) {
		status = attempt(g, w, began, until_ns, number, &promised, &ranks, err);
		if (status || is_decided(g))
			break;
		/* others that are left have answered by now, or will not */
		if (gn_clock_ns() > until_ns || (number > 2 && gn_clock_ns() > began + silence_ns(w) + 5 * TURN_NS))
			status = too_few(promised, ranks, err);
		await_decision(g, (uint64_t)(1 + g->self.id % 7) * 20 * GN_REGROUP_PAUSE_NS);
	}
	return status;
}

/* --- the new world --- */

static enum gn_status enter(struct gn_regroup *g, struct gn_roster *roster, struct gn_err *err)
{
	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	if ((int)roster->count > g->usual)
		g->usual = (int)roster->count;
	pthread_mutex_unlock(&g->lock);
	for (uint32_t m = 0; m < roster->count; m++)
		gn_regroup_forget_candidate(g, roster->ids[m], 0);
	g->epoch = roster->epoch;
	g->is_last = !roster->count && roster->ids[0] == g->self.id;
	if (!roster->count)
		return gn_err_set(err, GN_ERR_PEER_LOST, "fewer ranks are left than the %d that this run needs", g->least);
	if (gn_roster_rank(roster, g->self.id) < 0)
		return gn_err_set(err, GN_ERR_PEER_LOST, "this rank was taken for lost: %u others have gone on without it, in world %" PRIu64
				  " of this run", roster->count, roster->epoch);
	gn_regroup_learn_contacts(g, roster);
	return GN_OK;
}

enum gn_status gn_regroup_form(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
			       struct gn_err *err)
{
	const uint64_t until = gn_clock_ns() + (uint64_t)limit_ms * 1000000;
	struct gn_roster roster;
	enum gn_status status;

	g->is_last = 0;
	pthread_mutex_lock(&g->lock);
	g->ready = 1;
	pthread_mutex_unlock(&g->lock);
	for (int i = 0;; i++) {
		status = agree(g, *world, until, err);
		/* the heartbeat of the old world was of use until here */
		gn_world_destroy(*world);
		*world = NULL;
		if (!status)
			status = enter(g, &roster, err);
		if (status)
			return status;
		status = gn_regroup_meet(g, &roster, how, world, err);
		g->world = roster;
		if (!status || status == GN_ERR_NO_MEMORY || i >= WORLDS_MAX)
			return status;
		gn_log_warn(g->log, "another rank was lost before the new world stood: %s", err->text);
	}
}
