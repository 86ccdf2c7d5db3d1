#include "transport/bootstrap/regroup_internal.h"

#include "src/base/thread.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often the thread looks whether it is to end. */
enum { LOOK_MS = 100 };

/* --- answers --- */

static void prepare(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	struct gn_acceptor *own = &g->acceptor;

	/* what it would do in the epoch that is to end, it would do in vain */
	if (!g->ready && q->epoch == own->current.epoch) {
		a->busy = 1;
		return;
	}
	a->result = gn_acceptor_prepare(own, q->epoch, q->ballot);
	a->promised = own->promised;
	a->accepted = own->accepted;
	if (a->result == GN_MEMBERSHIP_GRANTED && own->accepted)
		a->roster = own->proposal;
}

void gn_regroup_answer(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	*a = (struct gn_regroup_answer){.result = GN_MEMBERSHIP_REFUSED};
	if (q->roster.count > GN_MEMBERS_MAX)
		return;
	pthread_mutex_lock(&g->lock);
	a->leaves = (uint32_t)g->leaves;
	if (q->what == GN_REGROUP_PREPARE)
		prepare(g, q, a);
	else if (q->what == GN_REGROUP_ACCEPT)
		a->result = g->ready ? gn_acceptor_accept(&g->acceptor, &q->roster, q->ballot) : GN_MEMBERSHIP_REFUSED;
	else if (q->what == GN_REGROUP_DECIDE)
		a->result = gn_acceptor_decide(&g->acceptor, &q->roster);
	else if (q->what == GN_REGROUP_WHERE)
		a->result = q->epoch < g->acceptor.current.epoch ? GN_MEMBERSHIP_NEWER : GN_MEMBERSHIP_GRANTED;
	if (q->what == GN_REGROUP_WHERE && g->port_epoch == q->epoch)
		a->port = g->port;
	if (a->result == GN_MEMBERSHIP_NEWER)
		a->roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
}

/* One question and its answer. */
static void serve(struct gn_regroup *g, int fd)
{
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);

	if (q && a && !gn_net_receive_all(fd, q, sizeof *q, GN_REGROUP_MESSAGE_MS)) {
		gn_regroup_answer(g, q, a);
		gn_net_send_all(fd, a, sizeof *a, GN_REGROUP_MESSAGE_MS);
	}
	free(q);
	free(a);
	close(fd);
}

static void *answer_all(void *regroup)
{
	struct gn_regroup *g = regroup;
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];
	struct gn_pending_peer peer;
	int stop = 0;

	while (!stop) {
		poll(p, (nfds_t)gn_auth_listener_poll(g->listener, p), LOOK_MS);
		while (gn_auth_listener_progress(g->listener, &peer))
			serve(g, peer.fd);
		pthread_mutex_lock(&g->lock);
		stop = g->stop;
		pthread_mutex_unlock(&g->lock);
	}
	return NULL;
}

/* --- questions --- */

static enum gn_regroup_reply ask_at(struct gn_regroup *g, const char *address, int port, const struct gn_regroup_request *q,
				    struct gn_regroup_answer *a)
{
	struct gn_err why;
	int fd, answered;
	enum gn_status status = gn_net_connect(address, port, GN_REGROUP_MESSAGE_MS, &fd, &why);

	if (status)
		return status == GN_ERR_PEER_LOST ? GN_REGROUP_DEAD : GN_REGROUP_SILENT;
	answered = !gn_handshake_join(fd, &g->secret, GN_HANDSHAKE_REGROUP, g->id, g->count, GN_REGROUP_MESSAGE_MS, &why) &&
		   !gn_net_send_all(fd, q, sizeof *q, GN_REGROUP_MESSAGE_MS) && !gn_net_receive_all(fd, a, sizeof *a, GN_REGROUP_MESSAGE_MS) &&
		   a->roster.count <= GN_MEMBERS_MAX;
	close(fd);
	return answered ? GN_REGROUP_ANSWERED : GN_REGROUP_SILENT;
}

enum gn_regroup_reply gn_regroup_ask(struct gn_regroup *g, uint64_t id, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	const struct gn_regroup_contact *c = &g->contacts[id];
	enum gn_regroup_reply reply;

	if (id == g->id) {
		gn_regroup_answer(g, q, a);
		return GN_REGROUP_ANSWERED;
	}
	if (c->same_host)
		return ask_at(g, GN_NET_LOOPBACK, c->port, q, a);
	reply = GN_REGROUP_SILENT;
	for (uint32_t i = 0; i < c->addresses.count; i++) {
		enum gn_regroup_reply one = ask_at(g, c->addresses.text[i], c->port, q, a);

		if (one == GN_REGROUP_ANSWERED)
			return one;
		/* an address that another host has, too, says nothing: the one that was chosen first does */
		reply = i ? reply : one;
	}
	return reply;
}

/* --- life --- */

static enum gn_status exchange_contacts(struct gn_regroup *g, struct gn_world *w, const char *ifnames, int port, struct gn_err *err)
{
	struct gn_regroup_contact mine = {.port = port};
	struct gn_gathered all = {0};
	enum gn_status status = GN_OK;

	/* on one host they are not used */
	if (gn_world_nodes(w) > 1)
		status = gn_net_choose(ifnames ? ifnames : getenv(GN_WORLD_IFNAMES), &mine.addresses, err);
	if (!status)
		status = gn_world_exchange(w, &mine, sizeof mine, &all, err);
	for (uint32_t r = 0; r < g->count && !status; r++) {
		if (all.lens[r] != sizeof mine)
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %u runs another version of this program", r);
		else
			memcpy(&g->contacts[r], all.items[r], sizeof mine);
		g->contacts[r].same_host = !strcmp(gn_world_host_of(w, (int)r), gn_world_host_of(w, gn_world_rank(w)));
	}
	gn_gathered_release(&all);
	return status;
}

static void first_epoch(struct gn_regroup *g)
{
	struct gn_roster first = {.epoch = 1, .key = 1, .count = g->count};

	for (uint32_t r = 0; r < g->count; r++)
		first.ids[r] = r;
	gn_acceptor_init(&g->acceptor, &first);
	g->epoch = 1;
}

enum gn_status gn_regroup_open(struct gn_world *w, const char *ifnames, int least, struct gn_log *log, struct gn_regroup **out,
			       struct gn_err *err)
{
	struct gn_regroup *g = calloc(1, sizeof *g);
	int port = 0, size = gn_world_size(w);
	enum gn_status status;

	if (size > GN_MEMBERS_MAX) {
		free(g);
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "a job of %d ranks cannot go on after a loss: %d at most", size, GN_MEMBERS_MAX);
	}
	if (!g || !(g->contacts = calloc((size_t)size, sizeof *g->contacts))) {
		free(g);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the contacts of %d ranks", size);
	}
	pthread_mutex_init(&g->lock, NULL);
	g->log = log;
	g->least = least;
	g->count = (uint32_t)size;
	g->id = (uint32_t)gn_world_rank(w);
	first_epoch(g);
	status = gn_world_key(w, "gannet regroup", g->secret.bytes, sizeof g->secret.bytes, err);
	if (!status)
		status = gn_auth_listener_open(NULL, &port, GN_HANDSHAKE_REGROUP, &g->secret, log, &g->listener, err);
	if (!status)
		status = exchange_contacts(g, w, ifnames, port, err);
	if (!status && gn_thread_start(&g->thread, answer_all, g))
		status = gn_err_set(err, GN_ERR_FAILED, "cannot start a thread (see ulimit -u)");
	g->started = !status;
	if (status)
		gn_regroup_close(g);
	else
		*out = g;
	return status;
}

uint64_t gn_regroup_epoch(const struct gn_regroup *g)
{
	return g->epoch;
}

void gn_regroup_set_witness(struct gn_regroup *g, const struct gn_regroup_witness *witness)
{
	g->witness = witness ? *witness : (struct gn_regroup_witness){NULL, NULL};
}

int gn_regroup_is_last(const struct gn_regroup *g)
{
	return g->is_last;
}

void gn_regroup_leave(struct gn_regroup *g)
{
	pthread_mutex_lock(&g->lock);
	g->leaves = g->ready = 1;
	pthread_mutex_unlock(&g->lock);
}

void gn_regroup_close(struct gn_regroup *g)
{
	if (!g)
		return;
	pthread_mutex_lock(&g->lock);
	g->stop = 1;
	pthread_mutex_unlock(&g->lock);
	if (g->started)
		pthread_join(g->thread, NULL);
	gn_auth_listener_close(g->listener);
	gn_secret_wipe(&g->secret);
	pthread_mutex_destroy(&g->lock);
	free(g->contacts);
	free(g);
}
