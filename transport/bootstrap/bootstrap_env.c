/* A star around rank 0, which listens at MASTER_ADDR:MASTER_PORT: a handshake with each, where it can be reached, and rank 0's word
 * to it; when all have come, to each where its parent in a tree is, and everything else goes over that. Messages of the star begin
 * with their length; in the place of any of rank 0's may come that the meeting is off, and why. */
#include "transport/bootstrap/bootstrap.h"

#include "src/base/clock.h"
#include "src/base/strbuf.h"
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
#include <time.h>
#include <unistd.h>

/* of the messages between rank 0 and each */
#define MESSAGE_MAX 65536
/* instead of a message's length */
#define CALLED_OFF UINT64_MAX

struct called_off {
	uint64_t instead_of_length;
	uint32_t status; /* without its sign */
	char text[GN_ERR_TEXT_MAX];
};

struct env_bootstrap {
	struct gn_bootstrap base;
	struct gn_launcher place;
	struct gn_log *log;
	int *fds; /* rank 0: one per rank; others: fds[0]; until the tree has its connections */
	struct gn_boot_tree *tree;
	int joined;
};

struct meeting {
	struct env_bootstrap *e;
	struct gn_auth_listener *door;
	const void *word;
	size_t word_bytes;
	uint64_t started_ns;
	int missing;
};

static enum gn_status hear_why(const struct gn_bootstrap *b, int rank, int fd, struct gn_err *err)
{
	struct called_off off;
	const size_t heard = sizeof off.instead_of_length;
	enum gn_status status = gn_boot_receive(b, rank, fd, (char *)&off + heard, sizeof off - heard, err);

	if (status)
		return status;
	off.text[sizeof off.text - 1] = 0;
	return gn_err_set(err, off.status == (uint32_t)-GN_ERR_USAGE ? GN_ERR_USAGE : GN_ERR_PEER_LOST, "%s", off.text);
}

static enum gn_status receive_message(const struct gn_bootstrap *b, int rank, int fd, void **out, size_t *len_bytes,
				      struct gn_err *err)
{
	uint64_t len;
	enum gn_status status = gn_boot_receive(b, rank, fd, &len, sizeof len, err);
	void *data;

	if (status)
		return status;
	if (len == CALLED_OFF)
		return hear_why(b, rank, fd, err);
	if (len > MESSAGE_MAX)
		return gn_err_set(err, GN_ERR_FAILED, "rank %d announces a message of %llu bytes: not one of ours", rank,
				  (unsigned long long)len);
	data = malloc(len + 1);
	if (!data)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu bytes", (unsigned long long)len);
	status = gn_boot_receive(b, rank, fd, data, len, err);
	if (status) {
		free(data);
		return status;
	}
	*out = data;
	*len_bytes = len;
	return GN_OK;
}

static enum gn_status send_message(const struct gn_bootstrap *b, int rank, int fd, const void *data, size_t len_bytes,
				   struct gn_err *err)
{
	uint64_t len = len_bytes;
	enum gn_status status = gn_boot_send(b, rank, fd, &len, sizeof len, err);

	return status || !len ? status : gn_boot_send(b, rank, fd, data, len_bytes, err);
}

static void call_off_one(int fd, const struct gn_err *why)
{
	struct called_off off = {.instead_of_length = CALLED_OFF, .status = (uint32_t)-why->status};

	snprintf(off.text, sizeof off.text, "%s", why->text);
	gn_net_send_all(fd, &off, sizeof off, 1000);
}

/* Everyone who is here hears why the meeting is off. */
static enum gn_status call_off(const struct meeting *m, int newcomer, const struct gn_err *why, struct gn_err *err)
{
	call_off_one(newcomer, why);
	for (int r = 1; r < m->e->base.size; r++)
		if (m->e->fds[r] >= 0)
			call_off_one(m->e->fds[r], why);
	close(newcomer);
	return gn_err_set(err, why->status, "%s", why->text);
}

static enum gn_status welcome(struct meeting *m, const struct gn_pending_peer *g, struct gn_err *err)
{
	struct env_bootstrap *e = m->e;
	int size = e->base.size;
	struct gn_err why;

	if (g->size != (uint32_t)size) {
		gn_err_set(&why, GN_ERR_USAGE, "rank %u says WORLD_SIZE=%u but rank 0 says WORLD_SIZE=%d", g->rank, g->size,
			   size);
		return call_off(m, g->fd, &why, err);
	}
	if (g->rank == 0 || g->rank >= (uint32_t)size || e->fds[g->rank] >= 0) {
		gn_err_set(&why, GN_ERR_USAGE, "two processes say RANK=%u of WORLD_SIZE=%d", g->rank, size);
		return call_off(m, g->fd, &why, err);
	}
	e->fds[g->rank] = g->fd;
	m->missing--;
	return send_message(&e->base, (int)g->rank, g->fd, m->word, m->word_bytes, err);
}

static enum gn_status meet_once(struct meeting *m, struct gn_err *err)
{
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];
	struct gn_pending_peer guest;
	enum gn_status status = GN_OK;

	if (poll(p, (nfds_t)gn_auth_listener_poll(m->door, p), gn_bootstrap_nap_ms(&m->e->base)) < 0 && errno != EINTR)
		return gn_err_errno(err, errno, "waiting for the other ranks");
	while (!status && m->missing && gn_auth_listener_progress(m->door, &guest))
		status = welcome(m, &guest, err);
	if (!status && m->missing)
		status = gn_bootstrap_may_wait(&m->e->base, m->started_ns, "the meeting at MASTER_PORT", err);
	return status;
}

static enum gn_status host_meeting(struct env_bootstrap *e, const void *word, size_t word_bytes, struct gn_err *err)
{
	struct meeting m = {e, NULL, word, word_bytes, gn_clock_ns(), e->base.size - 1};
	int port = e->place.port;
	enum gn_status status =
		gn_auth_listener_open(e->base.address, &port, GN_HANDSHAKE_RENDEZVOUS, &e->base.secret, e->log, &m.door, err);

	if (status) {
		gn_err_prefix(err, "rank 0 (MASTER_PORT)");
		return status;
	}
	while (m.missing && !status)
		status = meet_once(&m, err);
	gn_auth_listener_close(m.door);
	return status;
}

/* One attempt; GN_ERR_USAGE: what listens there says that our secret is not its own. */
static enum gn_status knock_once(struct env_bootstrap *e, struct gn_err *why)
{
	const struct gn_launcher *d = &e->place;
	enum gn_status status = gn_net_connect(d->address, d->port, gn_net_left_ms(e->base.deadline_ns, 2000), &e->fds[0], why);

	if (!status)
		status = gn_handshake_join(e->fds[0], &e->base.secret, GN_HANDSHAKE_RENDEZVOUS, (uint32_t)d->rank,
					   (uint32_t)d->size, gn_net_left_ms(e->base.deadline_ns, 5000), why);
	if (status && e->fds[0] >= 0)
		close(e->fds[0]);
	if (status)
		e->fds[0] = -1;
	return status;
}

/* Rank 0 may be late, and a stranger may have its port until then: keep knocking until the deadline. That our secret is not the
 * right one anybody can say, so it ends nothing before, but it is logged at once. */
static enum gn_status knock(struct env_bootstrap *e, struct gn_err *err)
{
	const struct gn_launcher *d = &e->place;
	const struct timespec pause = {0, 50000000}, longer = {1, 0};
	struct gn_err why, refusal = {.text = ""};
	enum gn_status status;

	while ((status = knock_once(e, &why)) && gn_clock_ns() < e->base.deadline_ns) {
		if (status == GN_ERR_USAGE && !*refusal.text)
			gn_log_warn(e->log, "rank %d: whoever listens at MASTER_ADDR=%s port %d refuses this rank: %s; trying on, it may "
				    "not be rank 0", d->rank, d->address, d->port, why.text);
		if (status == GN_ERR_USAGE)
			refusal = why;
		nanosleep(status == GN_ERR_USAGE ? &longer : &pause, NULL);
	}
	if (!status)
		return GN_OK;
	if (*refusal.text)
		return gn_err_set(err, GN_ERR_USAGE, "rank 0 at MASTER_ADDR=%s port %d refuses this rank: %s; seen last: %s", d->address,
				  d->port, refusal.text, why.text);
	return gn_err_set(err, GN_ERR_STALL, "rank 0 is not at MASTER_ADDR=%s port %d: %s", d->address, d->port, why.text);
}

/* Where this rank's children reach it; empty when it has none. */
static enum gn_status send_contact(struct env_bootstrap *e, int to, int fd, const struct gn_contact_info *c, struct gn_err *err)
{
	struct gn_strbuf text;
	enum gn_status status;

	gn_strbuf_init(&text);
	if (c && c->port)
		gn_contact_info_write(c, &text);
	status = gn_strbuf_failed(&text) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an address")
					 : send_message(&e->base, to, fd, gn_strbuf_text(&text), text.len, err);
	gn_strbuf_release(&text);
	return status;
}

static enum gn_status env_word(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
			       struct gn_err *err)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;
	struct gn_contact_info contact;
	/* First, so that rank 0 hears of a rank that cannot listen: it closes the connection. */
	enum gn_status status = b->rank ? knock(e, err) : GN_OK, sent;

	/* rank 0's children come to the meeting */
	if (!status)
		status = gn_boot_tree_create(b, b->rank > 0, e->log, &e->tree, &contact, err);
	if (status || b->size == 1)
		return status;
	if (b->rank == 0)
		return host_meeting(e, mine, len_bytes, err);
	sent = send_contact(e, 0, e->fds[0], &contact, err);
	if (sent && sent != GN_ERR_PEER_LOST)
		return sent;
	/* A rank 0 that closed the connection has said why before. */
	status = receive_message(b, 0, e->fds[0], out, len, err);
	return status ? status : sent;
}

static enum gn_status receive_contact(struct env_bootstrap *e, int from, int fd, struct gn_contact_info *out, struct gn_err *err)
{
	size_t len = 0;
	void *data = NULL;
	enum gn_status status = receive_message(&e->base, from, fd, &data, &len, err);

	*out = (struct gn_contact_info){.port = 0};
	if (!status && len)
		status = gn_contact_info_read(data, len, out, err);
	if (status)
		gn_err_prefix(err, "rank %d", from);
	free(data);
	return status;
}

/* The address by which it came to rank 0 is a good one, unless it came from this machine, or others were asked for. */
static void prefer_seen(const struct env_bootstrap *e, struct gn_contact_info *c, int fd)
{
	char seen[GN_NET_ADDRESS_MAX];

	gn_net_peer(fd, seen);
	if (c->port && !e->base.ifnames && strncmp(seen, "127.", 4) && strcmp(seen, "::1") && strcmp(seen, "?"))
		gn_contact_info_prefer(c, seen);
}

/* Rank 0, of all: from each where it is, to each where its parent is. */
static enum gn_status hand_out(struct env_bootstrap *e, struct gn_err *err)
{
	int size = e->base.size;
	struct gn_contact_info *all = calloc((size_t)size, sizeof *all);
	enum gn_status status = GN_OK;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", size);
	for (int r = 1; r < size && !status; r++) {
		status = receive_contact(e, r, e->fds[r], &all[r], err);
		prefer_seen(e, &all[r], e->fds[r]);
	}
	for (int r = 1; r < size && !status; r++)
		status = send_contact(e, r, e->fds[r], &all[gn_boot_tree_parent(r)], err);
	for (int r = 1; r < size && !status; r++) {
		if (gn_boot_tree_parent(r))
			close(e->fds[r]);
		else
			gn_boot_tree_adopt(e->tree, r, e->fds[r]);
		e->fds[r] = -1;
	}
	free(all);
	return status;
}

static enum gn_status join(struct env_bootstrap *e, struct gn_err *err)
{
	int parent = gn_boot_tree_parent(e->base.rank);
	struct gn_contact_info contact;
	enum gn_status status = e->base.rank ? receive_contact(e, 0, e->fds[0], &contact, err) : hand_out(e, err);

	if (status)
		return status;
	if (parent > 0)
		close(e->fds[0]);
	else if (!parent)
		gn_boot_tree_adopt(e->tree, 0, e->fds[0]);
	if (parent >= 0)
		e->fds[0] = -1;
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

static enum gn_status env_called_off(struct gn_bootstrap *b, struct gn_err *err)
{
	int fd = ((const struct env_bootstrap *)b)->fds[0];
	uint64_t first;

	if (b->rank == 0 || fd < 0 || recv(fd, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof first || first != CALLED_OFF ||
	    recv(fd, &first, sizeof first, MSG_DONTWAIT) != (ssize_t)sizeof first)
		return GN_OK;
	return hear_why(b, 0, fd, err);
}

static void env_destroy(struct gn_bootstrap *b, int clean)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;

	(void)clean;
	for (int i = 0; e->fds && i < (b->rank ? 1 : b->size); i++)
		if (e->fds[i] >= 0)
			close(e->fds[i]);
	gn_boot_tree_destroy(e->tree);
	gn_secret_wipe(&b->secret);
	free(e->fds);
	free(e);
}

static const struct gn_bootstrap_ops env_ops = {"environment", env_word, env_called_off, env_exchange, env_destroy};

/* The file that the user names, or one in the home directory that all of the user's jobs share. */
static enum gn_status find_secret(struct env_bootstrap *e, struct gn_log *log, struct gn_err *err)
{
	const char *named = getenv(GN_BOOTSTRAP_SECRET), *home = getenv("HOME");
	char path[1024];
	enum gn_status status = GN_OK;

	if (named && *named)
		return gn_secret_read(named, &e->base.secret, err);
	if (!home || *home != '/' || (size_t)snprintf(path, sizeof path, "%s/.gannet-secret", home) >= sizeof path)
		status = gn_err_set(err, GN_ERR_USAGE, "there is no home directory for a secret");
	if (!status)
		status = gn_secret_make(path, err);
	if (!status)
		status = gn_secret_read(path, &e->base.secret, err);
	if (status) {
		gn_err_prefix(err, "no secret by which ranks know each other: set " GN_BOOTSTRAP_SECRET " to a file that all ranks can "
			      "read, made by (umask 077; head -c 32 /dev/urandom >FILE)");
		return status;
	}
	if (e->base.rank == 0 && e->base.size > 1)
		gn_log_warn(log, GN_BOOTSTRAP_SECRET " is not set: ranks know each other by %s, which all jobs of this user share", path);
	return GN_OK;
}

enum gn_status gn_bootstrap_env(const struct gn_launcher *d, struct gn_log *log, struct gn_bootstrap **out, struct gn_err *err)
{
	struct env_bootstrap *e = calloc(1, sizeof *e);
	int *fds = malloc(sizeof *fds * (size_t)d->size);
	struct in_addr numeric;
	enum gn_status status;

	if (!e || !fds) {
		free(e);
		free(fds);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	}
	e->base = (struct gn_bootstrap){.ops = &env_ops, .rank = d->rank, .size = d->size};
	e->place = *d;
	if (!strcmp(e->place.address, "localhost"))
		e->base.address = GN_NET_LOOPBACK;
	else if (!strncmp(e->place.address, "127.", 4) && inet_pton(AF_INET, e->place.address, &numeric) == 1)
		e->base.address = e->place.address;
	e->log = log;
	e->fds = fds;
	for (int i = 0; i < d->size; i++)
		fds[i] = -1;
	status = d->size > 1 ? find_secret(e, log, err) : GN_OK;
	if (status) {
		env_destroy(&e->base, 0);
		return status;
	}
	*out = &e->base;
	return GN_OK;
}
