/* The rendezvous of ranks that know MASTER_ADDR and MASTER_PORT. Rank 0 listens there. Every other rank connects, authenticates,
 * sends its contact info and receives rank 0's root info. Once all have connected, rank 0 sends each the contact info of its parent
 * in the tree of boot_tree.h, which carries everything else. Each message is preceded by its length; rank 0 may send a cancellation
 * with a reason instead of any message. */
#include "transport/bootstrap/bootstrap.h"

#include "src/base/clock.h"
#include "src/base/strbuf.h"
#include "transport/bootstrap/boot_message.h"
#include "transport/bootstrap/boot_tree.h"
#include "transport/auth/auth_listener.h"
#include "transport/auth/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes of a message between rank 0 and another rank. */
#define MESSAGE_MAX 65536
/* Marks a cancellation, in the place of a message's length. */
#define CANCELLED UINT64_MAX
/* How long rank 0, when another version has come, waits for the other ranks, which are to know why. */
#define REFUSED_NS 10000000000u

struct cancellation {
	uint64_t marker;
	uint32_t status; /* negated */
	char text[GN_ERR_TEXT_MAX];
};

struct env_bootstrap {
	struct gn_bootstrap base;
	struct gn_launcher launcher;
	struct gn_log *log;
	struct gn_channel *channels; /* rank 0: [rank]; others: [0]; closed once the tree has what it needs of them */
	struct gn_boot_tree *tree;
	int joined;
};

struct rendezvous {
	struct env_bootstrap *e;
	struct gn_auth_listener *listener;
	const void *root_info;
	size_t root_info_bytes;
	uint64_t started_ns;
	int missing;
	uint64_t refused_ns; /* when a rank of another version was; 0: none */
};

static enum gn_status receive_reason(const struct gn_bootstrap *b, int rank, struct gn_channel *c, struct gn_err *err)
{
	struct cancellation message;
	const size_t marker_bytes = sizeof message.marker;
	enum gn_status status = gn_boot_receive(b, rank, c, (char *)&message + marker_bytes, sizeof message - marker_bytes, err);

	if (status)
		return status;
	message.text[sizeof message.text - 1] = 0;
	status = message.status == (uint32_t)-GN_ERR_USAGE ? GN_ERR_USAGE : message.status == (uint32_t)-GN_ERR_MISMATCH ? GN_ERR_MISMATCH : GN_ERR_PEER_LOST;
	return gn_err_set(err, status, "%s", message.text);
}

static enum gn_status receive_message(const struct gn_bootstrap *b, int rank, struct gn_channel *c, void **out, size_t *len_bytes,
				      struct gn_err *err)
{
	uint64_t len;
	enum gn_status status = gn_boot_receive(b, rank, c, &len, sizeof len, err);
	void *data;

	if (status)
		return status;
	if (len == CANCELLED)
		return receive_reason(b, rank, c, err);
	if (len > MESSAGE_MAX)
		return gn_err_set(err, GN_ERR_FAILED, "invalid message from rank %d: a length of %llu bytes", rank,
				  (unsigned long long)len);
	data = malloc(len + 1);
	if (!data)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu bytes", (unsigned long long)len);
	status = gn_boot_receive(b, rank, c, data, len, err);
	if (status) {
		free(data);
		return status;
	}
	*out = data;
	*len_bytes = len;
	return GN_OK;
}

static enum gn_status send_message(const struct gn_bootstrap *b, int rank, struct gn_channel *c, const void *data, size_t len_bytes,
				   struct gn_err *err)
{
	uint64_t len = len_bytes;

	return gn_boot_send(b, rank, c, &len, sizeof len, data, len_bytes, err);
}

static void send_cancellation(struct gn_channel *c, const struct gn_err *why)
{
	struct cancellation message = {.marker = CANCELLED, .status = (uint32_t)-why->status};
	const size_t marker_bytes = sizeof message.marker;

	snprintf(message.text, sizeof message.text, "%s", why->text);
	if (!gn_channel_send(c, &message, marker_bytes, 1000))
		gn_channel_send(c, (const char *)&message + marker_bytes, sizeof message - marker_bytes, 1000);
}

/* Sends the reason to all ranks that have connected, and to c, if it is one, which it closes. Returns the reason as an error. */
static enum gn_status cancel(const struct rendezvous *m, struct gn_channel *c, const struct gn_err *why, struct gn_err *err)
{
	if (c)
		send_cancellation(c, why);
	for (int r = 1; r < m->e->base.size; r++)
		if (m->e->channels[r].fd >= 0)
			send_cancellation(&m->e->channels[r], why);
	if (c)
		gn_channel_close(c);
	return gn_err_set(err, why->status, "%s", why->text);
}

static enum gn_status add_rank(struct rendezvous *m, struct gn_pending_peer *g, struct gn_err *err)
{
	struct env_bootstrap *e = m->e;
	int size = e->base.size;
	struct gn_err why;

	if (g->size != (uint32_t)size) {
		gn_err_set(&why, GN_ERR_USAGE, "rank %u has WORLD_SIZE=%u but rank 0 has WORLD_SIZE=%d", g->rank, g->size,
			   size);
		return cancel(m, &g->channel, &why, err);
	}
	if (g->rank == 0 || g->rank >= (uint32_t)size || e->channels[g->rank].fd >= 0) {
		gn_err_set(&why, GN_ERR_USAGE, "two processes have RANK=%u of WORLD_SIZE=%d", g->rank, size);
		return cancel(m, &g->channel, &why, err);
	}
	e->channels[g->rank] = g->channel;
	m->missing--;
	return send_message(&e->base, (int)g->rank, &e->channels[g->rank], m->root_info, m->root_info_bytes, err);
}

static enum gn_status rendezvous_progress(struct rendezvous *m, struct gn_err *err)
{
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];
	struct gn_pending_peer peer;
	struct gn_err why;
	uint32_t other;
	int others;
	enum gn_status status = GN_OK;

	if (poll(p, (nfds_t)gn_auth_listener_poll(m->listener, p), gn_bootstrap_poll_ms(&m->e->base)) < 0 && errno != EINTR)
		return gn_err_errno(err, errno, "waiting for the other ranks");
	while (!status && m->missing && gn_auth_listener_progress(m->listener, &peer))
		status = add_rank(m, &peer, err);
	others = gn_auth_listener_other_versions(m->listener, &other, &why);
	if (others && !m->refused_ns)
		m->refused_ns = gn_clock_ns();
	if (!status && others && (others >= m->missing || gn_clock_ns() - m->refused_ns > REFUSED_NS)) {
		gn_err_prefix(&why, "rank %u", other);
		status = cancel(m, NULL, &why, err);
	}
	if (!status && m->missing)
		status = gn_bootstrap_check_wait(&m->e->base, m->started_ns, "the rendezvous at MASTER_PORT", err);
	return status;
}

static enum gn_status host_rendezvous(struct env_bootstrap *e, const void *root_info, size_t root_info_bytes, struct gn_err *err)
{
	struct rendezvous m = {e, NULL, root_info, root_info_bytes, gn_clock_ns(), e->base.size - 1, 0};
	int port = e->launcher.port, fd = e->base.listener;
	enum gn_status status = fd ? GN_OK : gn_net_listen(e->base.address, &port, &fd, err);

	e->base.listener = 0;
	if (!status)
		status = gn_auth_listener_take(fd, port, GN_HANDSHAKE_RENDEZVOUS, &e->base.secret, e->log, &m.listener, err);

	if (status) {
		gn_err_prefix(err, "rank 0 (MASTER_PORT)");
		return status;
	}
	while (m.missing && !status)
		status = rendezvous_progress(&m, err);
	gn_auth_listener_close(m.listener);
	return status;
}

/* The same; that a name is unknown here is no failure by itself, but the reason when nobody comes. */
static enum gn_status host_by_name(struct env_bootstrap *e, const void *root_info, size_t root_info_bytes, struct gn_err *err)
{
	const char *name = e->launcher.address;
	struct gn_err why;
	enum gn_status unknown = strchr(name, ',') ? GN_OK : gn_net_check_host(name, &why), status;

	if (unknown)
		gn_log_warn(e->log, "rank 0: MASTER_ADDR=%s: %s; waiting for ranks that know it", name, why.text);
	status = host_rendezvous(e, root_info, root_info_bytes, err);
	return status && unknown ? gn_err_set(err, GN_ERR_USAGE, "no other rank has come: MASTER_ADDR=%s: %s", name, why.text) : status;
}

/* One attempt at one address; GN_ERR_USAGE: the listener reports that this rank's secret is not its own. */
static enum gn_status try_address(struct env_bootstrap *e, const char *address, struct gn_err *why)
{
	const struct gn_launcher *d = &e->launcher;
	enum gn_status status = gn_net_connect(address, d->port, gn_net_left_ms(e->base.deadline_ns, 2000), &e->channels[0].fd, why);

	if (!status)
		status = gn_handshake_join(&e->channels[0], &e->base.secret, GN_HANDSHAKE_RENDEZVOUS, (uint32_t)d->rank,
					   (uint32_t)d->size, gn_net_left_ms(e->base.deadline_ns, 5000), why);
	if (status)
		gn_channel_close(&e->channels[0]);
	return status;
}

/* The same at each of its addresses until one answers. */
static enum gn_status try_connect(struct env_bootstrap *e, struct gn_err *why)
{
	char list[sizeof e->launcher.address], *rest = NULL;
	enum gn_status status = gn_err_set(why, GN_ERR_USAGE, "it has no address");

	memcpy(list, e->launcher.address, sizeof list);
	for (char *a = strtok_r(list, ",", &rest); a && status; a = strtok_r(NULL, ",", &rest))
		status = try_address(e, a, why);
	return status;
}

/* Retries until the deadline, because rank 0 may start late, and another process may own its port until then. A report of a wrong
 * secret is not authenticated, so it is logged but does not end the attempts. */
static enum gn_status connect_to_root(struct env_bootstrap *e, struct gn_err *err)
{
	const struct gn_launcher *d = &e->launcher;
	struct gn_err why, refused = {.text = ""};
	enum gn_status status;
	int is_told = 0;

	while ((status = try_connect(e, &why)) && gn_clock_ns() < e->base.deadline_ns) {
		enum gn_status ended = e->base.check ? e->base.check(e->base.check_context, err) : GN_OK;

		if (ended)
			return ended;
		if (status == GN_ERR_MISMATCH)
			return gn_err_set(err, status, "rank 0 refuses rank %d: %s", d->rank, why.text);
		if (status == GN_ERR_NOT_FOUND && !is_told++)
			gn_log_warn(e->log, "rank %d: MASTER_ADDR=%s: %s; retrying", d->rank, d->address, why.text);
		if (status == GN_ERR_USAGE && !*refused.text)
			gn_log_warn(e->log, "rank %d: the listener at MASTER_ADDR=%s port %d refuses this rank: %s; retrying, "
				    "because it may not be rank 0", d->rank, d->address, d->port, why.text);
		if (status == GN_ERR_USAGE)
			refused = why;
		gn_clock_sleep_ns(status == GN_ERR_USAGE ? 1000000000 : 50000000);
	}
	if (!status)
		return GN_OK;
	if (*refused.text)
		return gn_err_set(err, GN_ERR_USAGE, "rank 0 at MASTER_ADDR=%s port %d refuses this rank: %s; last error: %s",
				  d->address,
				  d->port, refused.text, why.text);
	return gn_err_set(err, status == GN_ERR_NOT_FOUND ? GN_ERR_USAGE : GN_ERR_STALL, "rank 0 is not reachable at MASTER_ADDR=%s port %d: %s", d->address, d->port,
			  why.text);
}

/* Sends contact info; an empty message when the rank does not listen. */
static enum gn_status send_contact(struct env_bootstrap *e, int to, struct gn_channel *through, const struct gn_contact_info *c, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	if (c && c->port)
		gn_contact_info_write(c, &text);
	status = gn_strbuf_failed(&text) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an address")
					 : send_message(&e->base, to, through, gn_strbuf_text(&text), text.len, err);
	gn_strbuf_release(&text);
	return status;
}

static enum gn_status env_root_info(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
				    struct gn_err *err)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;
	struct gn_contact_info contact;
	/* Connect first: when this rank then fails to listen, rank 0 notices that the connection closes. */
	enum gn_status status = b->rank ? connect_to_root(e, err) : GN_OK, sent;

	/* rank 0 does not listen for its children: they are connected by the rendezvous */
	if (!status)
		status = gn_boot_tree_create(b, b->rank > 0, e->log, &e->tree, &contact, err);
	if (status || b->size == 1)
		return status;
	if (b->rank == 0)
		return host_by_name(e, mine, len_bytes, err);
	sent = send_contact(e, 0, &e->channels[0], &contact, err);
	if (sent && sent != GN_ERR_PEER_LOST)
		return sent;
	/* when rank 0 has closed the connection its reason is still to be read */
	status = receive_message(b, 0, &e->channels[0], out, len, err);
	return status ? status : sent;
}

static enum gn_status receive_contact(struct env_bootstrap *e, int from, struct gn_channel *through, struct gn_contact_info *out, struct gn_err *err)
{
	size_t len = 0;
	void *data = NULL;
	enum gn_status status = receive_message(&e->base, from, through, &data, &len, err);

	*out = (struct gn_contact_info){.port = 0};
	if (!status && len)
		status = gn_contact_info_read(data, len, out, err);
	if (status)
		gn_err_prefix(err, "rank %d", from);
	free(data);
	return status;
}

/* The source address of a rank's connection is the first to try, unless it is loopback or interfaces were selected. */
static void prefer_peer_address(const struct env_bootstrap *e, struct gn_contact_info *c, int fd)
{
	char address[GN_NET_ADDRESS_MAX];

	gn_net_peer(fd, address);
	if (c->port && !e->base.ifnames && strncmp(address, "127.", 4) && strcmp(address, "::1") && strcmp(address, "?"))
		gn_contact_info_prefer(c, address);
}

/* Rank 0: receives the contact info of all ranks and sends each that of its parent. */
static enum gn_status distribute_contacts(struct env_bootstrap *e, struct gn_err *err)
{
	int size = e->base.size;
	struct gn_contact_info *all = calloc((size_t)size, sizeof *all);
	enum gn_status status = GN_OK;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", size);
	for (int r = 1; r < size && !status; r++) {
		status = receive_contact(e, r, &e->channels[r], &all[r], err);
		prefer_peer_address(e, &all[r], e->channels[r].fd);
	}
	for (int r = 1; r < size && !status; r++)
		status = send_contact(e, r, &e->channels[r], &all[gn_boot_tree_parent(r)], err);
	for (int r = 1; r < size && !status; r++) {
		if (gn_boot_tree_parent(r))
			gn_channel_close(&e->channels[r]);
		else
			gn_boot_tree_adopt(e->tree, r, &e->channels[r]);
	}
	free(all);
	return status;
}

static enum gn_status join(struct env_bootstrap *e, struct gn_err *err)
{
	int parent = gn_boot_tree_parent(e->base.rank);
	struct gn_contact_info contact;
	enum gn_status status = e->base.rank ? receive_contact(e, 0, &e->channels[0], &contact, err) : distribute_contacts(e, err);

	if (status)
		return status;
	if (parent > 0)
		gn_channel_close(&e->channels[0]);
	else if (!parent)
		gn_boot_tree_adopt(e->tree, 0, &e->channels[0]);
	status = gn_boot_tree_join(e->tree, parent > 0 ? &contact : NULL, gn_clock_ns() + e->base.timeout_ns, err);
	gn_secret_wipe(&contact.drawn);
	return status;
}

static enum gn_status env_exchange(struct gn_bootstrap *b, const void *mine, size_t len_bytes, struct gn_gathered *out,
				   struct gn_err *err)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;
	enum gn_status status = e->joined ? GN_OK : join(e, err);

	e->joined = !status;
	return status ? status : gn_boot_tree_exchange(e->tree, mine, len_bytes, out, err);
}

static enum gn_status env_check_cancelled(struct gn_bootstrap *b, struct gn_err *err)
{
	struct gn_channel *c = ((const struct env_bootstrap *)b)->channels;
	struct gn_stream_keys keys = c->keys; /* of a record that may be read again */
	unsigned char record[sizeof(uint64_t) + GN_RECORD_TAG_BYTES];
	uint64_t first;

	if (b->rank == 0 || c->fd < 0 || recv(c->fd, record, sizeof record, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof record ||
	    gn_stream_open(&keys, record, sizeof first))
		return GN_OK;
	memcpy(&first, record, sizeof first);
	if (first != CANCELLED || recv(c->fd, record, sizeof record, MSG_DONTWAIT) != (ssize_t)sizeof record)
		return GN_OK;
	c->keys = keys;
	return receive_reason(b, 0, c, err);
}

static void env_destroy(struct gn_bootstrap *b, int clean)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;

	(void)clean;
	for (int i = 0; e->channels && i < (b->rank ? 1 : b->size); i++)
		gn_channel_close(&e->channels[i]);
	gn_boot_tree_destroy(e->tree);
	gn_secret_wipe(&b->secret);
	free(e->channels);
	free(e);
}

static const struct gn_bootstrap_ops env_ops = {"environment", env_root_info, env_check_cancelled, env_exchange, NULL, env_destroy};

/* Reads the secret from GANNET_SECRET_FILE, or from a file in the home directory that all jobs of the user share. */
static enum gn_status find_secret(struct env_bootstrap *e, struct gn_log *log, struct gn_err *err)
{
	const char *path_given = getenv(GN_BOOTSTRAP_SECRET), *home = getenv("HOME");
	char path[1024];
	enum gn_status status = GN_OK;

	if (path_given && *path_given)
		return gn_secret_read(path_given, &e->base.secret, err);
	if (!home || *home != '/' || (size_t)snprintf(path, sizeof path, "%s/.gannet-secret", home) >= sizeof path)
		status = gn_err_set(err, GN_ERR_USAGE, "there is no home directory for a secret");
	if (!status)
		status = gn_secret_make(path, err);
	if (!status)
		status = gn_secret_read(path, &e->base.secret, err);
	if (status) {
		gn_err_prefix(err, "no secret to authenticate ranks: set " GN_BOOTSTRAP_SECRET " to a file that all ranks can "
			      "read, created "
			      "by (umask 077; head -c 32 /dev/urandom >FILE)");
		return status;
	}
	if (e->base.rank == 0 && e->base.size > 1)
		gn_log_warn(log, GN_BOOTSTRAP_SECRET " is not set: ranks authenticate by %s, which all jobs of this user share",
			    path);
	return GN_OK;
}

enum gn_status gn_bootstrap_env(const struct gn_launcher *d, const struct gn_secret *secret, struct gn_log *log, struct gn_bootstrap **out,
				struct gn_err *err)
{
	struct env_bootstrap *e = calloc(1, sizeof *e);
	struct gn_channel *channels = calloc((size_t)d->size, sizeof *channels);
	struct in_addr numeric;
	enum gn_status status;

	if (!e || !channels) {
		free(e);
		free(channels);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	}
	e->base = (struct gn_bootstrap){.ops = &env_ops, .rank = d->rank, .size = d->size};
	e->launcher = *d;
	if (!strcmp(e->launcher.address, "localhost"))
		e->base.address = GN_NET_LOOPBACK;
	else if (!strncmp(e->launcher.address, "127.", 4) && inet_pton(AF_INET, e->launcher.address, &numeric) == 1)
		e->base.address = e->launcher.address;
	e->log = log;
	e->channels = channels;
	for (int i = 0; i < d->size; i++)
		channels[i].fd = -1;
	if (secret)
		e->base.secret = *secret;
	status = d->size > 1 && !secret ? find_secret(e, log, err) : GN_OK;
	if (status) {
		env_destroy(&e->base, 0);
		return status;
	}
	*out = &e->base;
	return GN_OK;
}
