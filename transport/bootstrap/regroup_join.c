/* Processes that wait, spare ranks and those that join: how members know of them, and how they are taken in. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Of the members; it asks so many of the first ones that answer, one of which proposes the next epoch in all likelihood. */
enum { REGISTRARS = 4 };
#define ASK_AGAIN_NS 300000000u
/* One that has not asked for so long is gone. */
#define FRESH_NS 3000000000u
/* Others that come with the first one are taken in together with it. */
#define GATHER_NS 700000000u
/* One that could not be reached waits for twice that, and for twice as long each time, up to the fifth. */
#define HOLD_NS UINT64_C(2000000000)
enum { HOLDS_MAX = 5 };

/* --- members --- */

static struct gn_regroup_candidate *place_for(struct gn_regroup *g, uint64_t id, uint64_t now)
{
	for (int i = 0; i < g->candidate_count; i++)
		if (g->candidates[i].id == id)
			return &g->candidates[i];
	for (int i = 0; i < g->candidate_count; i++)
		if (now > g->candidates[i].heard_ns + FRESH_NS)
			return &g->candidates[i];
	return g->candidate_count < GN_REGROUP_CANDIDATES ? &g->candidates[g->candidate_count++] : NULL;
}

void gn_regroup_note_candidate(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	uint64_t now = gn_clock_ns();
	struct gn_regroup_candidate *c;

	if (!q->value && !g->most)
		a->refusal = GN_REGROUP_CLOSED;
	if (!q->value && memcmp(q->digest, g->digest, sizeof g->digest))
		a->refusal = GN_REGROUP_DIFFERS;
	if (a->refusal || g->leaves || gn_roster_rank(&g->acceptor.current, q->self.id) >= 0)
		return;
	/* all places taken: it asks again */
	c = place_for(g, q->self.id, now);
	if (!c || gn_regroup_add_contact(g, &q->self))
		return;
	if (c->id != q->self.id)
		*c = (struct gn_regroup_candidate){.id = q->self.id};
	if (now > c->heard_ns + FRESH_NS)
		c->since_ns = now;
	c->is_spare = q->value != 0;
	c->heard_ns = now;
	a->result = GN_MEMBERSHIP_GRANTED;
}

void gn_regroup_forget_candidate(struct gn_regroup *g, uint64_t id, int is_missed)
{
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->candidate_count; i++)
		if (g->candidates[i].id == id) {
			g->candidates[i].heard_ns = 0;
			if (is_missed && g->candidates[i].misses < HOLDS_MAX)
				g->candidates[i].misses++;
			if (is_missed)
				g->candidates[i].held_until_ns = gn_clock_ns() + (HOLD_NS << g->candidates[i].misses);
		}
	pthread_mutex_unlock(&g->lock);
}

int gn_regroup_has_place(const struct gn_regroup *g, const struct gn_regroup_candidate *c, uint32_t ranks)
{
	const uint64_t now = gn_clock_ns();

	return now < c->heard_ns + FRESH_NS && now >= c->held_until_ns && (int)ranks < (c->is_spare ? g->usual : g->most);
}

/* How many of those that wait would be taken in beside so many ranks; *is_time: one of them has waited for long enough. */
static int count_candidates(struct gn_regroup *g, uint32_t ranks, int *is_time)
{
	uint64_t now = gn_clock_ns();
	int taken = 0;

	*is_time = 0;
	for (int i = 0; i < g->candidate_count; i++) {
		const struct gn_regroup_candidate *c = &g->candidates[i];

		if (gn_roster_rank(&g->acceptor.current, c->id) >= 0 || !gn_regroup_has_place(g, c, ranks + (uint32_t)taken))
			continue;
		taken++;
		*is_time |= now > c->since_ns + GATHER_NS;
	}
	return taken;
}

int gn_regroup_candidates(struct gn_regroup *g)
{
	int taken, is_time, ranks;

	pthread_mutex_lock(&g->lock);
	ranks = (int)g->acceptor.current.count;
	taken = count_candidates(g, (uint32_t)ranks, &is_time);
	pthread_mutex_unlock(&g->lock);
	return is_time && gn_regroup_usable(g, ranks + taken) > ranks ? taken : 0;
}

int gn_regroup_has_substitute(struct gn_regroup *g)
{
	int taken, is_time;

	pthread_mutex_lock(&g->lock);
	taken = count_candidates(g, g->acceptor.current.count - 1, &is_time);
	pthread_mutex_unlock(&g->lock);
	return taken > 0;
}

void gn_regroup_end(struct gn_regroup *g, enum gn_status status)
{
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	struct gn_regroup_candidate waiting[GN_REGROUP_CANDIDATES];
	int count;

	pthread_mutex_lock(&g->lock);
	count = g->candidate_count;
	memcpy(waiting, g->candidates, (size_t)count * sizeof *waiting);
	pthread_mutex_unlock(&g->lock);
	for (int i = 0; i < count && q && a; i++) {
		q->what = GN_REGROUP_END;
		q->value = (uint32_t)-status;
		if (gn_clock_ns() < waiting[i].heard_ns + FRESH_NS)
			gn_regroup_ask(g, waiting[i].id, q, a);
	}
	free(q);
	free(a);
}

/* --- contacts --- */

static uint32_t list_unknown(struct gn_regroup *g, const struct gn_roster *roster, uint64_t wanted[GN_REGROUP_CONTACTS])
{
	uint32_t count = 0;

	pthread_mutex_lock(&g->lock);
	for (uint32_t m = 0; m < roster->count && count < GN_REGROUP_CONTACTS; m++)
		if (!gn_regroup_find(g, roster->ids[m]))
			wanted[count++] = roster->ids[m];
	pthread_mutex_unlock(&g->lock);
	return count;
}

/* Asks members in turn until one knows some; how many are known now. */
static uint32_t learn_some(struct gn_regroup *g, const struct gn_roster *roster, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	for (uint32_t m = 0; m < roster->count; m++) {
		if (roster->ids[m] == g->self.id || gn_regroup_ask(g, roster->ids[m], q, a) != GN_REGROUP_ANSWERED || !a->contact_count)
			continue;
		pthread_mutex_lock(&g->lock);
		for (uint32_t i = 0; i < a->contact_count; i++)
			gn_regroup_add_contact(g, &a->contacts[i]);
		pthread_mutex_unlock(&g->lock);
		return a->contact_count;
	}
	return 0;
}

void gn_regroup_learn_contacts(struct gn_regroup *g, const struct gn_roster *roster)
{
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	uint32_t found = 1;

	/* one that nobody knows is lost to this world */
	while (q && a && found) {
		q->what = GN_REGROUP_CONTACT;
		q->value = list_unknown(g, roster, q->wanted);
		found = q->value ? learn_some(g, roster, q, a) : 0;
	}
	free(q);
	free(a);
}

/* --- to wait --- */

/* Registers with the first members that answer: how many did, or -1 when one has refused. */
static int ask_in(struct gn_regroup *g, struct gn_regroup_request *q, struct gn_regroup_answer *a, struct gn_roster *roster, struct gn_err *err)
{
	int answered = 0;

	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
	*q = (struct gn_regroup_request){.what = GN_REGROUP_JOIN, .value = (uint32_t)g->is_spare, .self = g->self};
	memcpy(q->digest, g->digest, sizeof q->digest);
	for (uint32_t m = 0; m < roster->count && answered < REGISTRARS; m++) {
		if (gn_regroup_ask(g, roster->ids[m], q, a) != GN_REGROUP_ANSWERED)
			continue;
		answered++;
		if (a->refusal == GN_REGROUP_CLOSED)
			gn_err_set(err, GN_ERR_USAGE, "the run takes nobody in: it was started without --elastic MIN:MAX");
		if (a->refusal == GN_REGROUP_DIFFERS)
			gn_err_set(err, GN_ERR_USAGE, "options or data differ from the run's: give its own, which are in the file options of its folder");
		if (a->refusal)
			return -1;
		pthread_mutex_lock(&g->lock);
		gn_acceptor_decide(&g->acceptor, &a->roster);
		pthread_mutex_unlock(&g->lock);
	}
	return answered;
}

/* Until it is taken in or told of the run's end, for a moment. */
static int is_over(struct gn_regroup *g, uint64_t until_ns, const volatile sig_atomic_t *stop, int *taken)
{
	int ended;

	do {
		pthread_mutex_lock(&g->lock);
		ended = g->has_ended;
		*taken = gn_roster_rank(&g->acceptor.current, g->self.id) >= 0;
		pthread_mutex_unlock(&g->lock);
		if (*taken || ended || *stop)
			return 1;
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	} while (gn_clock_ns() < until_ns);
	return 0;
}

static enum gn_status wait_to_be_taken(struct gn_regroup *g, const volatile sig_atomic_t *stop, int *taken, struct gn_err *err)
{
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	struct gn_roster *roster = malloc(sizeof *roster);
	uint64_t heard = gn_clock_ns();
	enum gn_status status = q && a && roster ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages");

	while (!status) {
		int answered = ask_in(g, q, a, roster, err);

		if (answered)
			heard = gn_clock_ns();
		if (answered < 0)
			status = err->status;
		else if (is_over(g, gn_clock_ns() + ASK_AGAIN_NS, stop, taken))
			break;
		else if (gn_clock_ns() > heard + FRESH_NS + (uint64_t)g->silent_ms * 1000000)
			status = gn_err_set(err, GN_ERR_PEER_LOST, "none of the run's ranks answers any more");
	}
	free(q);
	free(a);
	free(roster);
	return status;
}

enum gn_status gn_regroup_await(struct gn_regroup *g, const struct gn_world_options *how, const volatile sig_atomic_t *stop, int limit_ms,
				struct gn_world **world, struct gn_err *err)
{
	int taken = 0, ended;
	enum gn_status status;

	g->is_surplus = 0;
	status = wait_to_be_taken(g, stop, &taken, err);
	*world = NULL;
	if (status)
		return status;
	if (taken)
		return gn_regroup_form(g, how, limit_ms, world, err);
	pthread_mutex_lock(&g->lock);
	ended = g->has_ended;
	status = g->end_status;
	pthread_mutex_unlock(&g->lock);
	if (!ended)
		return gn_err_set(err, GN_ERR_STOPPED, "stopped on request while it waited to be taken in");
	return status ? gn_err_set(err, status, "the run has ended before this process was taken in") : GN_OK;
}

enum gn_status gn_regroup_begin(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
				struct gn_err *err)
{
	gn_world_destroy(*world);
	*world = NULL;
	if (g->is_spare)
		return GN_OK;
	pthread_mutex_lock(&g->lock);
	g->ready = 1;
	pthread_mutex_unlock(&g->lock);
	return gn_regroup_meet(g, &g->world, how, world, err) ? gn_regroup_form(g, how, limit_ms, world, err) : GN_OK;
}
