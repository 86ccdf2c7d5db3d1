/* How processes agree on the next world's ranks: attempts to end an epoch. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
	int is_cut;	     /* the host of */
	uint64_t cut_off;    /* this process cannot be reached, and is not waited for */
};

/* Ranks that are of use in groups alone: who goes on, who waits; and who of the last world is lost. */

void gn_regroup_set_places(struct gn_regroup *g, const int *places, int ranks)
{
	memcpy(g->places, places, (size_t)(ranks < GN_MEMBERS_MAX ? ranks : GN_MEMBERS_MAX) * sizeof *places);
	g->places_epoch = g->epoch;
}

int gn_regroup_is_surplus(const struct gn_regroup *g)
{
	return g->is_surplus;
}

int gn_regroup_usable(const struct gn_regroup *g, int ranks)
{
	return g->each > 1 && ranks >= g->each ? ranks - ranks % g->each : ranks;
}

/* Appends members of an epoch that stay (by member) to a proposal, in the order of their use: of groups whose members stay all of them;
 * then one of each number, without whom others are of no use; then the rest. */
static void regroup_choose(const struct gn_regroup *g, const struct gn_roster *ends, const char *stays, struct gn_roster *proposal)
{
	const int each = g->each > 1 && g->places_epoch == ends->epoch ? g->each : 1;
	char is_taken[GN_MEMBERS_MAX] = {0}, has_number[GN_MEMBERS_MAX] = {0};
	int staying[GN_MEMBERS_MAX] = {0}; /* of each group */

	for (uint32_t m = 0; m < ends->count && each > 1; m++)
		staying[g->places[m] / each] += stays[m];
	for (int pass = each > 1 ? 0 : 2; pass < 3; pass++)
		for (uint32_t m = 0; m < ends->count; m++) {
			int place = each > 1 ? g->places[m] : 0;

			if (!stays[m] || is_taken[m] || (pass == 0 && staying[place / each] < each) || (pass == 1 && has_number[place % each]))
				continue;
			is_taken[m] = has_number[place % each] = 1;
			proposal->ids[proposal->count++] = ends->ids[m];
		}
}

void gn_regroup_losses(struct gn_regroup *g, struct gn_strbuf *out)
{
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	const struct gn_regroup_contact *c;
	enum gn_regroup_reply reply = GN_REGROUP_DEAD;
	uint64_t last = 0; /* that was asked */
	int count = 0;

	for (uint32_t m = 0; m < g->before.count && q && a; m++) {
		uint64_t id = g->before.ids[m];

		if (gn_roster_rank(&g->world, id) >= 0)
			continue;
		q->what = GN_REGROUP_WHERE;
		q->epoch = g->epoch;
		/* the ranks of a host that cannot be reached are not asked one by one: the others wait */
		if (reply != GN_REGROUP_UNREACHABLE || !gn_regroup_is_same_host(g, id, last))
			reply = gn_regroup_ask(g, last = id, q, a);
		/* one that answers has left the others, or waits */
		if (reply == GN_REGROUP_ANSWERED)
			continue;
		pthread_mutex_lock(&g->lock);
		c = gn_regroup_find(g, id);
		gn_strbuf_printf(out, "%srank %u on %s", count++ ? ", " : "", m, c ? c->host : "an unknown host");
		pthread_mutex_unlock(&g->lock);
	}
	if (count)
		gn_strbuf_printf(out, " %s lost", count > 1 ? "are" : "is");
	free(q);
	free(a);
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

/* The network, not the member, fails: a lost rank cannot be reached either. So the limit of silence has passed for both: only rank 0 of the old
 * world knew that of the others. */
static int is_cut_off(struct attempt *t, uint64_t id, struct gn_regroup_answer *a)
{
	const struct gn_regroup_request q = {.what = GN_REGROUP_WHERE, .epoch = t->ends.epoch};

	for (uint32_t m = 0; m < t->ends.count && t->world && !t->is_cut; m++)
		if (gn_world_is_lost(t->world, (int)m))
			t->is_cut = gn_regroup_is_same_host(t->g, id, t->ends.ids[m]) ||
				    gn_regroup_ask(t->g, t->ends.ids[m], &q, a) == GN_REGROUP_UNREACHABLE;
	if (t->is_cut)
		t->cut_off = id;
	return t->is_cut;
}

/* Whether there is no point in asking again a member that has not answered. */
static int is_given_up(struct attempt *t, uint32_t member, enum gn_regroup_reply reply, int asked, struct gn_regroup_answer *a)
{
	const struct gn_world *w = t->world;
	/* those before this one were asked before: it is not their turn */
	const int is_asked_again = asked > 1 || (int)member < gn_roster_rank(&t->ends, t->g->self.id);

	if (w && gn_world_is_lost(w, (int)member))
		return 1;
	if (reply == GN_REGROUP_UNREACHABLE && is_asked_again && is_cut_off(t, t->ends.ids[member], a))
		return 1;
	return gn_clock_ns() >= t->began_ns + gn_regroup_silence_ns(w);
}

/* Asks until the member has answered or is lost: one that computes has not found the loss yet. */
static void prepare(struct attempt *t, uint32_t member, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	const struct gn_world *w = t->world;
	enum gn_regroup_reply reply;

	for (int asked = 1;; asked++) {
		if (w && !t->asks_all && gn_world_is_lost(w, (int)member))
			return;
		if (t->is_cut && gn_regroup_is_same_host(t->g, t->ends.ids[member], t->cut_off))
			return;
		reply = gn_regroup_ask(t->g, t->ends.ids[member], q, a);
		t->dead += reply == GN_REGROUP_DEAD;
		if (reply == GN_REGROUP_DEAD || gn_regroup_is_decided(t->g) || gn_clock_ns() >= t->until_ns || gn_regroup_is_stopped(t->g))
			return;
		if (reply == GN_REGROUP_ANSWERED && !a->busy)
			break;
		if (reply != GN_REGROUP_ANSWERED && is_given_up(t, member, reply, asked, a))
			return;
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
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

static int is_replaced(const struct attempt *t, uint32_t member)
{
	return t->g->replaces && t->ends.ids[member] == t->g->replaced;
}

static enum gn_status propose_own(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_err *err)
{
	char stays[GN_MEMBERS_MAX] = {0};
	struct gn_secret random;
	enum gn_status status = gn_secret_random(&random, err);

	t->proposal = (struct gn_roster){.epoch = t->ends.epoch + 1};
	memcpy(&t->proposal.key, random.bytes, sizeof t->proposal.key);
	for (uint32_t m = 0; m < t->ends.count; m++)
		stays[m] = t->granted[m] == 1 && !is_replaced(t, m);
	regroup_choose(t->g, &t->ends, stays, &t->proposal);
	if (t->proposal.count)
		add_candidates(t, q, a);
	for (uint32_t m = 0; m < t->ends.count; m++)
		if (t->granted[m] == 1 && is_replaced(t, m) && t->proposal.count < t->ends.count)
			t->proposal.ids[t->proposal.count++] = t->ends.ids[m];
	t->proposal.count = (uint32_t)gn_regroup_usable(t->g, (int)t->proposal.count);
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

enum gn_status gn_regroup_too_few(uint32_t promised, uint32_t ranks, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_PEER_LOST, "%u of %u ranks of the last world answer, and more than half of them must be left", promised, ranks);
}

static enum gn_status run_attempt(struct attempt *t, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	*q = (struct gn_regroup_request){.what = GN_REGROUP_PREPARE, .epoch = t->ends.epoch, .ballot = t->ballot};
	for (uint32_t m = 0; m < t->ends.count && !gn_regroup_is_decided(t->g); m++)
		prepare(t, m, q, a);
	if (gn_regroup_is_decided(t->g))
		return GN_OK;
	if (!gn_membership_is_majority(&t->ends, t->ends.count - t->dead) && !is_tie(t)) {
		/* a tie is of all: the next attempt asks those, too, that the world holds for lost */
		if (!t->asks_all && t->g->witness.settle)
			return GN_OK;
		/* of those that are dead none goes on, and the others are too few */
		t->g->is_last = is_first(t);
		return gn_regroup_too_few(t->promised, t->ends.count, err);
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

enum gn_status gn_regroup_attempt(struct gn_regroup *g, const struct gn_world *w, uint64_t began_ns, uint64_t until_ns, int number, uint32_t *promised,
				  uint32_t *ranks, struct gn_err *err)
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
