#include "transport/bootstrap/boot_tree.h"

#include "src/base/clock.h"
#include "transport/auth/auth_listener.h"
#include "transport/auth/net.h"
#include "transport/bootstrap/boot_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define JOINING "connecting the ranks to each other"
/* Bytes of one rank's message, and of all together. */
#define MESSAGE_MAX ((size_t)64 << 20)
#define PACK_MAX ((size_t)1 << 30)
#define CONNECT_MS 2000

struct child {
	int rank, end; /* the ranks of its subtree are [rank, end) */
	struct gn_channel channel;
};

struct gn_boot_tree {
	const struct gn_bootstrap *base;
	struct gn_channel parent;
	int count;
	struct child children[32]; /* in ascending order of rank and of subtree size */
	struct gn_auth_listener *listener;
};

int gn_boot_tree_parent(int rank)
{
	return rank ? rank & (rank - 1) : -1;
}

/* --- connections --- */

static void find_children(struct gn_boot_tree *t)
{
	int rank = t->base->rank, size = t->base->size;

	for (int step = 1; step < size - rank && !(rank & step); step *= 2)
		t->children[t->count++] = (struct child){rank + step, step < size - rank - step ? rank + 2 * step : size, {.fd = -1}};
}

static enum gn_status derive_secret(const struct gn_bootstrap *b, const struct gn_contact_info *c, struct gn_secret *out,
				    struct gn_err *err)
{
	return gn_secret_derive(&b->secret, "gannet tree", &c->drawn, sizeof c->drawn, out, err);
}

/* The addresses to publish, chosen as for rank 0's heartbeat; *only: the address to listen on, NULL for all. */
static enum gn_status find_addresses(const struct gn_bootstrap *b, struct gn_net_addresses *out, const char **only,
				     struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (b->address)
		out->count = (uint32_t)(snprintf(out->text[0], sizeof out->text[0], "%s", b->address) > 0);
	else if (b->ifnames)
		status = gn_net_choose(b->ifnames, out, err);
	else
		gn_net_addresses(out);
	if (status)
		gn_err_prefix(err, "rank %d, --socket-ifname", b->rank);
	*only = (b->address || b->ifnames) && out->count == 1 ? out->text[0] : NULL;
	return status;
}

static enum gn_status listen_for(struct gn_boot_tree *t, struct gn_log *log, struct gn_contact_info *c, struct gn_err *err)
{
	struct gn_secret secret = {{0}};
	const char *only = NULL;
	enum gn_status status = find_addresses(t->base, &c->addresses, &only, err);

	if (!status)
		status = gn_secret_random(&c->drawn, err);
	if (!status)
		status = derive_secret(t->base, c, &secret, err);
	if (!status)
		status = gn_auth_listener_open(only, &c->port, GN_HANDSHAKE_TREE, &secret, log, &t->listener, err);
	gn_secret_wipe(&secret);
	return status;
}

enum gn_status gn_boot_tree_create(const struct gn_bootstrap *b, int listens, struct gn_log *log, struct gn_boot_tree **out,
				   struct gn_contact_info *contact, struct gn_err *err)
{
	struct gn_boot_tree *t = calloc(1, sizeof *t);
	enum gn_status status = GN_OK;

	if (!t)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	t->base = b;
	t->parent.fd = -1;
	find_children(t);
	*contact = (struct gn_contact_info){.port = 0};
	if (listens && t->count)
		status = listen_for(t, log, contact, err);
	if (status) {
		gn_boot_tree_destroy(t);
		return status;
	}
	*out = t;
	return GN_OK;
}

void gn_boot_tree_destroy(struct gn_boot_tree *t)
{
	if (!t)
		return;
	gn_auth_listener_close(t->listener);
	gn_channel_close(&t->parent);
	for (int i = 0; i < t->count; i++)
		gn_channel_close(&t->children[i].channel);
	free(t);
}

static struct child *find_child(struct gn_boot_tree *t, uint32_t rank)
{
	for (int i = 0; i < t->count; i++)
		if ((uint32_t)t->children[i].rank == rank)
			return &t->children[i];
	return NULL;
}

void gn_boot_tree_adopt(struct gn_boot_tree *t, int rank, struct gn_channel *c)
{
	struct child *child = find_child(t, (uint32_t)rank);
	struct gn_channel *slot = child ? &child->channel : &t->parent;

	gn_channel_close(slot);
	*slot = *c;
	c->fd = -1;
	gn_channel_close(c);
}

/* Waits for the listener's challenge for up to limit_ms: a parent sends it once it is connected itself. GN_OK also when none has
 * come: the handshake then reports it. */
static enum gn_status await_challenge(const struct gn_boot_tree *t, int fd, uint64_t started, int limit_ms, struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + (uint64_t)limit_ms * 1000000;
	enum gn_status status = GN_OK;

	while (!status && gn_clock_ns() < until && !gn_net_readable(fd, gn_bootstrap_poll_ms(t->base)))
		status = gn_bootstrap_check_wait(t->base, started, JOINING, err);
	return status;
}

/* Tries each address once; on success t->parent is set. The time for a handshake grows with the number of ranks, which may share
 * few processors. *why is the error at the first address: the last one, loopback, fails on every other host. */
static enum gn_status try_parent(struct gn_boot_tree *t, const struct gn_contact_info *parent, const struct gn_secret *secret,
				 uint64_t started, uint64_t until_ns, struct gn_err *why, struct gn_err *err)
{
	const struct gn_bootstrap *b = t->base;
	const struct gn_net_addresses *a = &parent->addresses;
	enum gn_status status = GN_OK;

	for (uint32_t i = 0; !status && t->parent.fd < 0 && i < a->count; i++) {
		struct gn_channel c = {.fd = -1};
		int limit_ms = gn_net_left_ms(until_ns, 3000 + 5 * b->size);
		struct gn_err failure;
		enum gn_status reached = gn_net_connect(a->text[i], parent->port, gn_net_left_ms(until_ns, CONNECT_MS), &c.fd,
							&failure);

		if (!reached)
			status = await_challenge(t, c.fd, started, limit_ms, err);
		if (!reached && !status)
			reached = gn_handshake_join(&c, secret, GN_HANDSHAKE_TREE, (uint32_t)b->rank, (uint32_t)b->size, 3000,
						    &failure);
		if (!reached && !status) {
			t->parent = c;
		} else {
			gn_channel_close(&c);
			gn_err_prefix(&failure, "%s port %d", a->text[i], parent->port);
			if (!i && !status)
				*why = failure;
		}
	}
	return status;
}

static enum gn_status reach_parent(struct gn_boot_tree *t, const struct gn_contact_info *parent, uint64_t until_ns,
				   struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	struct gn_secret secret;
	struct gn_err why = {.text = "it has published no address"};
	enum gn_status status = derive_secret(t->base, parent, &secret, err);

	while (!status && t->parent.fd < 0) {
		status = try_parent(t, parent, &secret, started, until_ns, &why, err);
		if (status || t->parent.fd >= 0)
			break;
		status = gn_bootstrap_check_wait(t->base, started, JOINING, err);
		if (!status && gn_clock_ns() > until_ns)
			status = gn_err_set(err, GN_ERR_FAILED, "rank %d cannot reach rank %d at any of its %u addresses: %s; does "
					    "a firewall block TCP connections between nodes?", t->base->rank,
					    gn_boot_tree_parent(t->base->rank), parent->addresses.count, why.text);
		gn_clock_sleep_ns(20000000);
	}
	gn_secret_wipe(&secret);
	return status;
}

/* A child that connects again has lost its connection: the new one replaces it. */
static void add_child(struct gn_boot_tree *t, struct gn_pending_peer *peer)
{
	if (peer->size != (uint32_t)t->base->size || !find_child(t, peer->rank))
		gn_auth_listener_refuse(t->listener, peer, GN_HANDSHAKE_BAD_RANK);
	else
		gn_boot_tree_adopt(t, (int)peer->rank, &peer->channel);
}

static int all_connected(const struct gn_boot_tree *t)
{
	for (int i = 0; i < t->count; i++)
		if (t->children[i].channel.fd < 0)
			return 0;
	return 1;
}

static enum gn_status await_children(struct gn_boot_tree *t, struct gn_err *err)
{
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];
	uint64_t started = gn_clock_ns();
	enum gn_status status = GN_OK;
	struct gn_pending_peer peer;

	while (!status && !all_connected(t)) {
		poll(p, (nfds_t)gn_auth_listener_poll(t->listener, p), gn_bootstrap_poll_ms(t->base));
		while (!all_connected(t) && gn_auth_listener_progress(t->listener, &peer))
			add_child(t, &peer);
		status = gn_bootstrap_check_wait(t->base, started, JOINING, err);
	}
	gn_auth_listener_close(t->listener);
	t->listener = NULL;
	return status;
}

enum gn_status gn_boot_tree_join(struct gn_boot_tree *t, const struct gn_contact_info *parent, uint64_t until_ns,
				 struct gn_err *err)
{
	enum gn_status status = parent && t->parent.fd < 0 ? reach_parent(t, parent, until_ns, err) : GN_OK;

	return status || !t->listener ? status : await_children(t, err);
}

/* --- exchange --- */

struct pack {
	char *data; /* records */
	uint64_t len_bytes;
};

/* Makes room for `more` bytes. */
static enum gn_status grow(struct pack *p, uint64_t more, struct gn_err *err)
{
	char *data = more <= PACK_MAX - p->len_bytes ? realloc(p->data, p->len_bytes + more) : NULL;

	if (!data)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu bytes of an exchange",
				  (unsigned long long)(p->len_bytes + more));
	p->data = data;
	return GN_OK;
}

/* Receives a pack of `ranks` records and appends it. */
static enum gn_status receive_pack(const struct gn_bootstrap *b, int rank, struct gn_channel *c, size_t ranks, struct pack *p, struct gn_err *err)
{
	uint64_t len;
	enum gn_status status = gn_boot_receive(b, rank, c, &len, sizeof len, err);

	if (!status && len > PACK_MAX - p->len_bytes)
		status = gn_err_set(err, GN_ERR_FAILED, "invalid message from rank %d: a length of %llu bytes", rank,
				    (unsigned long long)len);
	if (!status)
		status = grow(p, len, err);
	if (!status)
		status = gn_boot_receive(b, rank, c, p->data + p->len_bytes, (size_t)len, err);
	if (!status && !gn_gathered_is_pack(p->data + p->len_bytes, (size_t)len, ranks))
		status = gn_err_set(err, GN_ERR_MISMATCH, "invalid message from rank %d: not the records of %zu ranks; do all "
				    "ranks run the "
				    "same build of gannet?", rank, ranks);
	if (!status)
		p->len_bytes += len;
	return status;
}

static enum gn_status send_pack(const struct gn_bootstrap *b, int rank, struct gn_channel *c, const struct pack *p, struct gn_err *err)
{
	return gn_boot_send(b, rank, c, &p->len_bytes, sizeof p->len_bytes, p->data, p->len_bytes, err);
}

static enum gn_status gather(struct gn_boot_tree *t, const void *mine, size_t len_bytes, struct pack *p, struct gn_err *err)
{
	uint64_t own_bytes = gn_gathered_record_bytes(len_bytes);
	enum gn_status status = grow(p, own_bytes, err);

	if (status)
		return status;
	gn_gathered_write(p->data, mine, len_bytes);
	p->len_bytes = own_bytes;
	for (int i = 0; i < t->count && !status; i++) {
		struct child *c = &t->children[i];

		status = receive_pack(t->base, c->rank, &c->channel, (size_t)(c->end - c->rank), p, err);
	}
	return status;
}

enum gn_status gn_boot_tree_exchange(struct gn_boot_tree *t, const void *mine, size_t len_bytes, struct gn_gathered *out,
				     struct gn_err *err)
{
	int parent = gn_boot_tree_parent(t->base->rank);
	struct pack p = {0};
	enum gn_status status;

	if (len_bytes > MESSAGE_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%zu bytes are too many to exchange at start", len_bytes);
	status = gather(t, mine, len_bytes, &p, err);
	if (!status && parent >= 0) {
		status = send_pack(t->base, parent, &t->parent, &p, err);
		p.len_bytes = 0;
		if (!status)
			status = receive_pack(t->base, parent, &t->parent, (size_t)t->base->size, &p, err);
	}
	/* the largest subtree first: it has the most levels below it */
	for (int i = t->count; i-- > 0 && !status;)
		status = send_pack(t->base, t->children[i].rank, &t->children[i].channel, &p, err);
	if (status) {
		free(p.data);
		return status;
	}
	return gn_gathered_take(p.data, (size_t)p.len_bytes, t->base->size, out, err);
}
