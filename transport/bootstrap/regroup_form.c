/* How a new world is agreed on. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

/* A rank whose turn it is not waits so long for each rank before it. */
#define TURN_NS 2000000000u
/* How often it asks whether they live: more of them ask less often. */
#define TURN_LOOK_NS 50000000u
enum { WORLDS_MAX = 16, TURNS_MAX = 4 };

uint64_t gn_regroup_silence_ns(const struct gn_world *w)
{
	return w ? (uint64_t)gn_world_silent_after_ms(w) * 1000000 : TURN_NS;
}

int gn_regroup_is_decided(struct gn_regroup *g)
{
	int decided;

	pthread_mutex_lock(&g->lock);
	decided = g->acceptor.current.epoch > g->epoch;
	pthread_mutex_unlock(&g->lock);
	return decided;
}

int gn_regroup_is_stopped(struct gn_regroup *g)
{
	if (g->stop_asked && *g->stop_asked && !g->stop_ns)
		g->stop_ns = gn_clock_ns();
	return g->stop_ns && gn_clock_ns() > g->stop_ns + GN_REGROUP_STOP_NS;
}

/* Ranks before this one that may be about to propose. */
static int turn(struct gn_regroup *g, const struct gn_world *w, struct gn_roster *roster, struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	int before = 0, rank;
	enum gn_regroup_reply reply;

	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
	rank = gn_roster_rank(roster, g->self.id);
	*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = roster->epoch};
	/* losses that the world did not learn of are found by asking */
	for (int r = 0; r < rank && before < TURNS_MAX; r++) {
		if (w && gn_world_is_lost(w, r))
			continue;
		reply = gn_regroup_ask(g, roster->ids[r], q, a);
		before += reply == GN_REGROUP_ANSWERED || reply == GN_REGROUP_SILENT;
	}
	return before;
}

/* Waits for a decision. */
static void await_decision(struct gn_regroup *g, uint64_t wait_ns)
{
	uint64_t until = gn_clock_ns() + wait_ns;

	while (gn_clock_ns() < until && !gn_regroup_is_decided(g) && !gn_regroup_is_stopped(g))
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
}

static void await_turn(struct gn_regroup *g, const struct gn_world *w)
{
	struct gn_roster *roster = malloc(sizeof *roster);
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	const uint64_t began = gn_clock_ns();

	while (roster && q && a && !gn_regroup_is_decided(g) && !gn_regroup_is_stopped(g) &&
	       gn_clock_ns() < began + (uint64_t)turn(g, w, roster, q, a) * TURN_NS)
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
	for (int number = 0; !status && !gn_regroup_is_decided(g); number++) {
		status = gn_regroup_attempt(g, w, began, until_ns, number, &promised, &ranks, err);
		if (status || gn_regroup_is_decided(g))
			break;
		if (gn_regroup_is_stopped(g))
			return gn_err_set(err, GN_ERR_STOPPED, "stopped on request while the ranks that are left were to form a world");
		/* others that are left have answered by now, or will not */
		if (gn_clock_ns() > until_ns || (number > 2 && gn_clock_ns() > began + gn_regroup_silence_ns(w) + 5 * TURN_NS))
			status = gn_regroup_too_few(promised, ranks, err);
		await_decision(g, (uint64_t)(1 + g->self.id % 7) * 20 * GN_REGROUP_PAUSE_NS);
	}
	return status;
}

/* One round of questions: how many members answer, how many have ended, and whether one of them is in a later world. */
static uint32_t ask_all(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a, uint32_t *dead, int *is_out)
{
	uint32_t answered = 0;

	*dead = 0;
	for (uint32_t m = 0; m < g->world.count && !*is_out; m++) {
		enum gn_regroup_reply reply = gn_regroup_ask(g, g->world.ids[m], q, a);

		*is_out = reply == GN_REGROUP_ANSWERED && a->result == GN_MEMBERSHIP_NEWER;
		answered += reply == GN_REGROUP_ANSWERED;
		*dead += reply == GN_REGROUP_DEAD;
	}
	return answered;
}

enum gn_status gn_regroup_confirm(struct gn_regroup *g, const struct gn_world *w, struct gn_err *err)
{
	const uint64_t until = gn_clock_ns() + (uint64_t)g->silent_ms * 1000000;
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = calloc(1, sizeof *a);
	uint32_t answered = 0, dead;
	int is_out = 0, is_known = !q || !a;

	if (!is_known)
		*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = g->epoch};
	while (!is_known) {
		answered = ask_all(g, q, a, &dead, &is_out);
		is_known = is_out || gn_membership_is_majority(&g->world, answered);
		/* those that are slow to answer may be there for all that */
		is_known |= !gn_membership_is_majority(&g->world, g->world.count - dead) || gn_world_check(w, NULL) || gn_clock_ns() >= until;
		if (!is_known)
			gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	}
	free(q);
	free(a);
	if (is_out)
		return gn_err_set(err, GN_ERR_PEER_LOST, "this rank was taken for lost: others have gone on without it");
	return gn_membership_is_majority(&g->world, answered) ? GN_OK : gn_regroup_too_few(answered, g->world.count, err);
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
	if (gn_roster_rank(roster, g->self.id) < 0 && g->replaces && g->replaced == g->self.id)
		return gn_err_set(err, GN_ERR_PEER_LOST, "a process that waited has taken the place of this rank in world %" PRIu64 " of this run",
				  roster->epoch);
	g->is_surplus = g->each > 1 && gn_roster_rank(roster, g->self.id) < 0;
	g->is_spare |= g->is_surplus;
	if (g->is_surplus)
		return gn_err_set(err, GN_ERR_PEER_LOST, "%u others have gone on, in groups of %d, and this rank is in none", roster->count, g->each);
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

	g->is_last = g->is_surplus = 0;
	g->before = g->world;
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
		g->replaces = 0;
		status = gn_regroup_meet(g, &roster, how, world, err);
		g->world = roster;
		if (!status || status == GN_ERR_NO_MEMORY || status == GN_ERR_STOPPED || i >= WORLDS_MAX)
			return status;
		gn_log_warn(g->log, "another rank was lost before the new world stood: %s", err->text);
	}
}
