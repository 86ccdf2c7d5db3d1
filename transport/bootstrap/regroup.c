#include "transport/bootstrap/regroup_internal.h"

#include "src/base/text.h"
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

static void list_contacts(const struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	for (uint32_t i = 0; i < q->value && i < GN_REGROUP_CONTACTS; i++) {
		const struct gn_regroup_contact *c = gn_regroup_find(g, q->wanted[i]);

		if (c)
			a->contacts[a->contact_count++] = *c;
	}
	a->result = GN_MEMBERSHIP_GRANTED;
}

static void note_end(struct gn_regroup *g, const struct gn_regroup_request *q)
{
	g->has_ended = 1;
	g->end_status = -(int)q->value;
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
	else if (q->what == GN_REGROUP_JOIN)
		gn_regroup_note_candidate(g, q, a);
	else if (q->what == GN_REGROUP_CONTACT)
		list_contacts(g, q, a);
	else if (q->what == GN_REGROUP_END)
		note_end(g, q);
	else if (q->what == GN_REGROUP_WHERE)
		a->result = q->epoch < g->acceptor.current.epoch ? GN_MEMBERSHIP_NEWER : GN_MEMBERSHIP_GRANTED;
	if (q->what == GN_REGROUP_WHERE && g->port_epoch == q->epoch)
		a->port = g->port;
	if (a->result == GN_MEMBERSHIP_NEWER || q->what == GN_REGROUP_JOIN)
		a->roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
}

/* One question and its answer. */
static void serve(struct gn_regroup *g, struct gn_channel *c)
{
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);

	if (q && a && !gn_channel_receive(c, q, sizeof *q, GN_REGROUP_MESSAGE_MS)) {
		gn_regroup_answer(g, q, a);
		gn_channel_send(c, a, sizeof *a, GN_REGROUP_MESSAGE_MS);
	}
	free(q);
	free(a);
	gn_channel_close(c);
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
			serve(g, &peer.channel);
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
	struct gn_channel c = {.fd = -1};
	int answered;
	enum gn_status status = gn_net_connect(address, port, GN_REGROUP_CONNECT_MS, &c.fd, &why);

	if (status)
		return status == GN_ERR_PEER_LOST ? GN_REGROUP_DEAD : GN_REGROUP_UNREACHABLE;
	answered = !gn_handshake_join(&c, &g->secret, GN_HANDSHAKE_REGROUP, (uint32_t)g->self.id, (uint32_t)g->first_ranks,
				       GN_REGROUP_MESSAGE_MS, &why) &&
		   !gn_channel_send(&c, q, sizeof *q, GN_REGROUP_MESSAGE_MS) && !gn_channel_receive(&c, a, sizeof *a, GN_REGROUP_MESSAGE_MS) &&
		   a->roster.count <= GN_MEMBERS_MAX && a->contact_count <= GN_REGROUP_CONTACTS;
	gn_channel_close(&c);
	return answered ? GN_REGROUP_ANSWERED : GN_REGROUP_SILENT;
}

const struct gn_regroup_contact *gn_regroup_find(const struct gn_regroup *g, uint64_t id)
{
	for (size_t i = 0; i < g->contact_count; i++)
		if (g->contacts[i].id == id)
			return &g->contacts[i];
	return NULL;
}

int gn_regroup_add_contact(struct gn_regroup *g, const struct gn_regroup_contact *c)
{
	struct gn_regroup_contact *known = (struct gn_regroup_contact *)gn_regroup_find(g, c->id), *more;

	if (!known) {
		more = realloc(g->contacts, (g->contact_count + 1) * sizeof *more);
		if (!more)
			return -1;
		g->contacts = more;
		known = &more[g->contact_count++];
	}
	*known = *c;
	/* texts of another process */
	known->host[sizeof known->host - 1] = 0;
	if (known->addresses.count > GN_NET_ADDRESSES_MAX)
		known->addresses.count = GN_NET_ADDRESSES_MAX;
	for (uint32_t i = 0; i < known->addresses.count; i++)
		known->addresses.text[i][GN_NET_ADDRESS_MAX - 1] = 0;
	return 0;
}

int gn_regroup_is_same_host(struct gn_regroup *g, uint64_t id, uint64_t other)
{
	const struct gn_regroup_contact *c, *d;
	int same;

	pthread_mutex_lock(&g->lock);
	c = gn_regroup_find(g, id);
	d = gn_regroup_find(g, other);
	same = c && d && !strcmp(c->host, d->host);
	pthread_mutex_unlock(&g->lock);
	return same;
}

static enum gn_regroup_reply ask_contact(struct gn_regroup *g, const struct gn_regroup_contact *c, const struct gn_regroup_request *q,
					 struct gn_regroup_answer *a)
{
	enum gn_regroup_reply reply = GN_REGROUP_SILENT;

	if (!strcmp(c->host, g->self.host))
		return ask_at(g, GN_NET_LOOPBACK, c->port, q, a);
	for (uint32_t i = 0; i < c->addresses.count; i++) {
		enum gn_regroup_reply one = ask_at(g, c->addresses.text[i], c->port, q, a);

		if (one == GN_REGROUP_ANSWERED)
			return one;
		/* an address that another host has, too, says nothing: the one that was chosen first does */
		reply = i ? reply : one;
	}
	return reply;
}

enum gn_regroup_reply gn_regroup_ask(struct gn_regroup *g, uint64_t id, const struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	const struct gn_regroup_contact *known;
	struct gn_regroup_contact c = {.port = 0};

	if (id == g->self.id) {
		gn_regroup_answer(g, q, a);
		return GN_REGROUP_ANSWERED;
	}
	pthread_mutex_lock(&g->lock);
	known = gn_regroup_find(g, id);
	if (known)
		c = *known;
	pthread_mutex_unlock(&g->lock);
	return c.port ? ask_contact(g, &c, q, a) : GN_REGROUP_DEAD;
}

/* --- life --- */

enum gn_status gn_regroup_create(const struct gn_regroup_options *options, uint64_t id, const struct gn_secret *secret,
				 struct gn_regroup **out, struct gn_err *err)
{
	struct gn_regroup *g = calloc(1, sizeof *g);
	struct gn_secret run = {.bytes = {0}};
	enum gn_status status;
	int port = 0;

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to go on after losses");
	pthread_mutex_init(&g->lock, NULL);
	g->log = options->log;
	g->least = options->least;
	g->most = options->most;
	g->each = options->each;
	memcpy(g->digest, options->digest, sizeof g->digest);
	g->stop_asked = options->stop;
	g->secret = *secret;
	g->self.id = id;
	gethostname(g->self.host, sizeof g->self.host - 1);
	status = gn_secret_derive(secret, "gannet run", NULL, 0, &run, err);
	memcpy(&g->run, run.bytes, sizeof g->run);
	if (!status)
		status = gn_auth_listener_open(NULL, &port, GN_HANDSHAKE_REGROUP, secret, options->log, &g->listener, err);
	g->self.port = port;
	if (status)
		gn_regroup_close(g);
	else
		*out = g;
	return status;
}

enum gn_status gn_regroup_start(struct gn_regroup *g, enum gn_status status, struct gn_regroup **out, struct gn_err *err)
{
	if (!status && gn_thread_start(&g->thread, answer_all, g))
		status = gn_err_set(err, GN_ERR_FAILED, "cannot start a thread (see ulimit -u)");
	g->started = !status;
	if (status)
		gn_regroup_close(g);
	else
		*out = g;
	return status;
}

static enum gn_status exchange_contacts(struct gn_regroup *g, struct gn_world *w, const char *ifnames, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = GN_OK;

	/* on one host they are not used */
	if (gn_world_nodes(w) > 1 || g->most)
		status = gn_net_choose(ifnames ? ifnames : getenv(GN_WORLD_IFNAMES), &g->self.addresses, err);
	if (!status)
		status = gn_world_exchange(w, &g->self, sizeof g->self, &all, err);
	for (int r = 0; r < gn_world_size(w) && !status; r++) {
		if (all.lens[r] != sizeof g->self)
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %d runs another version of this program", r);
		else if (gn_regroup_add_contact(g, all.items[r]))
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the contacts of %d ranks", gn_world_size(w));
	}
	gn_gathered_release(&all);
	return status;
}

static void first_epoch(struct gn_regroup *g, int ranks)
{
	struct gn_roster first = {.epoch = 1, .key = 1, .count = (uint32_t)ranks};

	for (int r = 0; r < ranks; r++)
		first.ids[r] = (uint64_t)r;
	gn_acceptor_init(&g->acceptor, &first);
	g->world = first;
	if (g->self.id < (uint64_t)ranks)
		g->begun = first;
	g->first_ranks = g->usual = ranks;
	g->is_spare = g->self.id >= (uint64_t)ranks;
	g->epoch = !g->is_spare;
}

enum gn_status gn_regroup_open(struct gn_world *w, const struct gn_regroup_options *options, struct gn_regroup **out, struct gn_err *err)
{
	struct gn_regroup *g = NULL;
	struct gn_secret secret;
	int size = gn_world_size(w);
	enum gn_status status;

	if (size > GN_MEMBERS_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "a job of %d ranks cannot go on after a loss: %d at most", size, GN_MEMBERS_MAX);
	if (options->spares >= size)
		return gn_err_set(err, GN_ERR_USAGE, "--spares %d leaves none of %d rank%s to train: start more", options->spares, size,
				  gn_text_plural((uint64_t)size));
	if (options->least > size - options->spares)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %d: only %d rank%s train, so the first loss would end the run: start more, or give less",
				  options->least, size - options->spares, gn_text_plural((uint64_t)(size - options->spares)));
	if (options->most && options->most < size - options->spares)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %d:%d: %d ranks train already: give a MAX of as many or more", options->least, options->most,
				  size - options->spares);
	status = gn_world_key(w, "gannet regroup", secret.bytes, sizeof secret.bytes, err);
	if (!status)
		status = gn_regroup_create(options, (uint64_t)gn_world_rank(w), &secret, &g, err);
	gn_secret_wipe(&secret);
	if (status)
		return status;
	g->silent_ms = gn_world_silent_after_ms(w);
	first_epoch(g, size - options->spares);
	return gn_regroup_start(g, exchange_contacts(g, w, options->ifnames, err), out, err);
}

int gn_regroup_is_spare(const struct gn_regroup *g)
{
	return g->is_spare;
}

void gn_regroup_began(struct gn_regroup *g)
{
	g->begun = g->world;
}

int gn_regroup_has_new(const struct gn_regroup *g)
{
	for (uint32_t m = 0; m < g->world.count; m++)
		if (gn_roster_rank(&g->begun, g->world.ids[m]) < 0)
			return 1;
	return 0;
}

uint64_t gn_regroup_epoch(const struct gn_regroup *g)
{
	return g->epoch;
}

uint64_t gn_regroup_run(const struct gn_regroup *g)
{
	return g ? g->run : 0;
}

void gn_regroup_replace(struct gn_regroup *g, int rank)
{
	g->replaced = g->world.ids[rank];
	g->replaces = 1;
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
