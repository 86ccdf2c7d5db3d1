/* How the ranks of an epoch that is agreed on make their world. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"
#include "src/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most that ranks may take to join a new world: they all wait for it. */
#define JOIN_MAX_S 20.0
/* Between two rounds of questions whether members live. */
#define LOOK_NS 50000000

/* --- members that are lost before the world has a heartbeat --- */

/* Rank 0 asks all others, and they ask rank 0: its end ends the rendezvous. */
struct member_check {
	struct gn_regroup *g;
	const struct gn_roster *roster;
	pthread_t thread;
	int started, stop; /* stop: under the lock of g */
	uint64_t heard_ns[GN_MEMBERS_MAX];
};

/* Whether there is no point in asking on. */
static int note_member(struct member_check *c, uint32_t m, enum gn_regroup_reply reply, const struct gn_regroup_answer *a)
{
	struct gn_regroup *g = c->g;
	int over;

	pthread_mutex_lock(&g->lock);
	if (reply == GN_REGROUP_ANSWERED)
		c->heard_ns[m] = gn_clock_ns();
	if (reply == GN_REGROUP_ANSWERED && a->result == GN_MEMBERSHIP_NEWER)
		gn_acceptor_decide(&g->acceptor, &a->roster);
	if (reply == GN_REGROUP_DEAD || gn_clock_ns() > c->heard_ns[m] + (uint64_t)g->silent_ms * 1000000) {
		g->lost_epoch = c->roster->epoch;
		g->lost = m;
	}
	over = c->stop || g->lost_epoch == c->roster->epoch;
	pthread_mutex_unlock(&g->lock);
	return over;
}

static void *check_members(void *check)
{
	struct member_check *c = check;
	struct gn_regroup *g = c->g;
	const uint32_t own = (uint32_t)gn_roster_rank(c->roster, g->self.id), end = own ? 1 : c->roster->count;
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = calloc(1, sizeof *a);
	int over = !q || !a;

	if (!over)
		*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = c->roster->epoch};
	while (!over) {
		for (uint32_t m = own ? 0 : 1; m < end && !over; m++)
			over = note_member(c, m, gn_regroup_ask(g, c->roster->ids[m], q, a), a);
		if (!over)
			gn_clock_sleep_ns(LOOK_NS);
	}
	free(q);
	free(a);
	return NULL;
}

static void begin_check(struct member_check *c, struct gn_regroup *g, const struct gn_roster *roster)
{
	c->g = g;
	c->roster = roster;
	for (uint32_t m = 0; m < roster->count; m++)
		c->heard_ns[m] = gn_clock_ns();
	/* without it a loss costs JOIN_MAX_S */
	c->started = roster->count > 1 && !gn_thread_start(&c->thread, check_members, c);
}

static void end_check(struct member_check *c)
{
	if (!c->started)
		return;
	pthread_mutex_lock(&c->g->lock);
	c->stop = 1;
	pthread_mutex_unlock(&c->g->lock);
	pthread_join(c->thread, NULL);
}

/* For gn_world_options. */
static enum gn_status check_epoch(void *regroup, struct gn_err *err)
{
	struct gn_regroup *g = regroup;
	uint64_t epoch = g->epoch;
	uint32_t lost;
	int is_lost, given_up;

	if (gn_regroup_is_stopped(g))
		return gn_err_set(err, GN_ERR_STOPPED, "stopped on request");
	pthread_mutex_lock(&g->lock);
	is_lost = g->lost_epoch == epoch;
	lost = g->lost;
	given_up = g->acceptor.current.epoch != epoch || g->acceptor.promised;
	pthread_mutex_unlock(&g->lock);
	if (is_lost)
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank %u of the new world ended or stopped before it had joined", lost);
	return given_up ? gn_err_set(err, GN_ERR_PEER_LOST, "the other ranks have given up this world") : GN_OK;
}

/* --- to meet --- */

static int is_one_host(struct gn_regroup *g, const struct gn_roster *roster)
{
	for (uint32_t m = 0; m < roster->count; m++)
		if (!gn_regroup_is_same_host(g, roster->ids[m], g->self.id))
			return 0;
	return 1;
}

/* Rank 0 listens, and tells those who ask where. */
static enum gn_status open_port(struct gn_regroup *g, const struct gn_roster *roster, int *fd, struct gn_err *err)
{
	int port = 0;
	enum gn_status status = gn_net_listen(is_one_host(g, roster) ? GN_NET_LOOPBACK : NULL, &port, fd, err);

	if (status)
		return status;
	pthread_mutex_lock(&g->lock);
	g->port = port;
	g->port_epoch = g->epoch;
	pthread_mutex_unlock(&g->lock);
	return GN_OK;
}

/* Asks rank 0 for its port. */
static enum gn_status ask_port(struct gn_regroup *g, uint64_t id, int *port, struct gn_err *err)
{
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = calloc(1, sizeof *a);
	uint64_t until = gn_clock_ns() + (uint64_t)(JOIN_MAX_S * 1e9);
	enum gn_status status = q && a ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a message");

	*port = 0;
	if (!status)
		*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = g->epoch};
	while (!status && !*port) {
		enum gn_regroup_reply reply = gn_regroup_ask(g, id, q, a);

		if (reply == GN_REGROUP_ANSWERED && a->port)
			*port = a->port;
		else if ((status = check_epoch(g, err)))
			break;
		else if (reply == GN_REGROUP_DEAD || a->result == GN_MEMBERSHIP_NEWER || gn_clock_ns() > until)
			status = gn_err_set(err, GN_ERR_PEER_LOST, "the new world's rank 0 does not answer");
		else
			gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	}
	free(q);
	free(a);
	return status;
}

/* The loopback address is for worlds of one host: rank 0 listens there alone. */
static void write_rendezvous(struct gn_regroup *g, const struct gn_roster *roster, int port, char text[256])
{
	struct gn_net_addresses all = {.count = 1, .text = {GN_NET_LOOPBACK}};
	const struct gn_regroup_contact *c;
	size_t len = 0;

	if (!is_one_host(g, roster)) {
		pthread_mutex_lock(&g->lock);
		c = gn_regroup_find(g, roster->ids[0]);
		if (c)
			all = c->addresses;
		pthread_mutex_unlock(&g->lock);
	}
	for (uint32_t i = 0; i < all.count; i++)
		if (len + strlen(all.text[i]) < 240)
			len += (size_t)snprintf(text + len, 256 - len, "%s%s", len ? "," : "", all.text[i]);
	snprintf(text + len, 256 - len, ":%d", port);
}

static enum gn_status make_world(struct gn_regroup *g, const struct gn_roster *roster, const struct gn_world_options *how,
				 struct gn_world **world, struct gn_err *err)
{
	struct gn_world_options o = *how;
	struct gn_secret secret;
	char rendezvous[256];
	int port = 0;
	enum gn_status status = gn_secret_derive(&g->secret, "gannet epoch", &roster->key, sizeof roster->key, &secret, err);

	o.rank = gn_roster_rank(roster, g->self.id);
	o.size = (int)roster->count;
	o.listener = 0;
	if (!status)
		status = o.rank ? ask_port(g, roster->ids[0], &port, err) : open_port(g, roster, &o.listener, err);
	if (status)
		return status;
	write_rendezvous(g, roster, o.rank ? port : g->port, rendezvous);
	o.rendezvous = rendezvous;
	o.secret = &secret;
	o.check = check_epoch;
	o.check_context = g;
	o.keep_going = 0;
	if (!(o.limits.join_s > 0) || o.limits.join_s > JOIN_MAX_S)
		o.limits.join_s = JOIN_MAX_S;
	status = gn_world_create(&o, g->log, world, err);
	gn_secret_wipe(&secret);
	return status;
}

/* The world stands, unless it has been given up by others meanwhile, with the promise of this process. */
static int settle(struct gn_regroup *g)
{
	int stands;

	pthread_mutex_lock(&g->lock);
	stands = g->acceptor.current.epoch == g->epoch && !g->acceptor.promised;
	if (stands)
		g->ready = 0;
	pthread_mutex_unlock(&g->lock);
	return stands;
}

enum gn_status gn_regroup_meet(struct gn_regroup *g, const struct gn_roster *roster, const struct gn_world_options *how,
			       struct gn_world **world, struct gn_err *err)
{
	struct member_check *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to make a world");
	begin_check(c, g, roster);
	status = make_world(g, roster, how, world, err);
	end_check(c);
	free(c);
	if (status || settle(g))
		return status;
	/* the others, which have given it up as well, are not waited for */
	gn_world_abort(*world, GN_OK, "the world was given up before it stood");
	gn_world_destroy(*world);
	*world = NULL;
	return gn_err_set(err, GN_ERR_PEER_LOST, "the other ranks have given up this world");
}
