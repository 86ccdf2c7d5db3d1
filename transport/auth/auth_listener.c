#include "transport/auth/auth_listener.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Time limit of a handshake. */
#define HANDSHAKE_NS 3000000000u
/* A handshake is not evicted before this age: a rank on an oversubscribed host needs time to answer. */
#define EVICT_AFTER_NS 300000000u
#define REFUSED_MAX 64
#define LOG_INTERVAL_NS 60000000000u
#define WINDOW_NS 10000000000u
#define LINES_PER_WINDOW 8
/* When accept() fails for want of descriptors or memory the port stays readable: it is not polled for this long. */
#define PAUSE_NS 100000000u

/* A connection whose handshake is in progress. */
struct pending {
	int fd;
	uint64_t accepted_ns;
	size_t got;
	char address[GN_NET_ADDRESS_MAX];
	struct gn_handshake_challenge challenge;
	unsigned char claim[sizeof(struct gn_handshake_claim)];
};

/* An address that was refused before: limits the log to one line per address and LOG_INTERVAL_NS. */
struct refused {
	char address[GN_NET_ADDRESS_MAX];
	uint64_t logged_ns;
	unsigned long suppressed;
};

struct gn_auth_listener {
	int listener, port;
	enum gn_handshake_purpose purpose;
	struct gn_secret secret;
	struct gn_log *log;
	struct pending pending[GN_AUTH_LISTENER_WAITING_MAX]; /* oldest first */
	int count;
	struct refused refused[REFUSED_MAX];
	unsigned next_refused;
	uint64_t window_ns;
	int lines;
	unsigned long suppressed;
	uint64_t paused_until_ns, pause_logged_ns;
	int others; /* peers of another version; the last one's rank and the reason */
	uint32_t other_rank;
	struct gn_err other;
};

static struct refused *find_refused(struct gn_auth_listener *l, const char *address)
{
	struct refused *k;

	for (int i = 0; i < REFUSED_MAX; i++)
		if (!strcmp(l->refused[i].address, address))
			return &l->refused[i];
	k = &l->refused[l->next_refused++ % REFUSED_MAX];
	*k = (struct refused){0};
	snprintf(k->address, sizeof k->address, "%s", address);
	return k;
}

static void log_refusal(struct gn_auth_listener *l, const char *address, enum gn_handshake_result why)
{
	static const char *const names[] = {[GN_HANDSHAKE_RENDEZVOUS] = "rendezvous", [GN_HANDSHAKE_HEARTBEAT] = "heartbeat",
					    [GN_HANDSHAKE_TREE] = "exchange between ranks",
					    [GN_HANDSHAKE_REGROUP] = "agreement after losses"};
	struct refused *k = find_refused(l, address);
	uint64_t now = gn_clock_ns();
	char more[64] = "";

	if (now - l->window_ns > WINDOW_NS) {
		l->window_ns = now;
		l->lines = 0;
	}
	if ((k->logged_ns && now - k->logged_ns < LOG_INTERVAL_NS) || l->lines >= LINES_PER_WINDOW) {
		k->suppressed++;
		return;
	}
	if (k->suppressed)
		snprintf(more, sizeof more, " (and %lu more times before)", k->suppressed);
	k->logged_ns = now;
	k->suppressed = 0;
	l->lines++;
	gn_log_warn(l->log, "refused a connection from %s to the %s, port %d: %s%s; the job goes on", address,
		    names[l->purpose], l->port, gn_handshake_text(why), more);
}

static void remove_pending(struct gn_auth_listener *l, int i)
{
	l->count--;
	memmove(&l->pending[i], &l->pending[i + 1], sizeof *l->pending * (size_t)(l->count - i));
}

static void drop(struct gn_auth_listener *l, int i, enum gn_handshake_result why)
{
	if (why != GN_HANDSHAKE_OTHER_VERSION) /* the owner tells */
		log_refusal(l, l->pending[i].address, why);
	close(l->pending[i].fd);
	remove_pending(l, i);
}

enum gn_status gn_auth_listener_take(int fd, int port, enum gn_handshake_purpose purpose, const struct gn_secret *secret,
				     struct gn_log *log, struct gn_auth_listener **out, struct gn_err *err)
{
	struct gn_auth_listener *l = calloc(1, sizeof *l);

	if (!l) {
		close(fd);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a listener");
	}
	l->listener = fd;
	l->port = port;
	l->purpose = purpose;
	l->secret = *secret;
	l->log = log;
	*out = l;
	return GN_OK;
}

enum gn_status gn_auth_listener_open(const char *address, int *port, enum gn_handshake_purpose purpose,
				     const struct gn_secret *secret, struct gn_log *log, struct gn_auth_listener **out,
				     struct gn_err *err)
{
	int fd;
	enum gn_status status = gn_net_listen(address, port, &fd, err);

	return status ? status : gn_auth_listener_take(fd, *port, purpose, secret, log, out, err);
}

void gn_auth_listener_close(struct gn_auth_listener *l)
{
	if (!l)
		return;
	for (int i = 0; i < l->count; i++)
		close(l->pending[i].fd);
	close(l->listener);
	gn_secret_wipe(&l->secret);
	free(l);
}

int gn_auth_listener_poll(const struct gn_auth_listener *l, struct pollfd *p)
{
	p[0] = (struct pollfd){.fd = gn_clock_ns() < l->paused_until_ns ? -1 : l->listener, .events = POLLIN};
	for (int i = 0; i < l->count; i++)
		p[i + 1] = (struct pollfd){.fd = l->pending[i].fd, .events = POLLIN};
	return l->count + 1;
}

/* The handshake to evict for a new connection: the oldest from the address with most handshakes in progress, so that one host
 * cannot displace the others. -1 when all are younger than EVICT_AFTER_NS. */
static int slowest_handshake(const struct gn_auth_listener *l, uint64_t now)
{
	int best = -1, most = 0;

	for (int i = 0; i < l->count && now - l->pending[i].accepted_ns > EVICT_AFTER_NS; i++) {
		int same = 0;

		for (int k = 0; k < l->count; k++)
			same += !strcmp(l->pending[i].address, l->pending[k].address);
		if (same > most) {
			most = same;
			best = i;
		}
	}
	return best;
}

static int make_room(struct gn_auth_listener *l)
{
	int i;

	if (l->count < GN_AUTH_LISTENER_WAITING_MAX)
		return 1;
	i = slowest_handshake(l, gn_clock_ns());
	if (i >= 0)
		drop(l, i, GN_HANDSHAKE_EVICTED);
	return i >= 0;
}

/* A challenge fits into the empty send buffer of any socket: a short write means a broken connection. */
static void send_challenge(struct gn_auth_listener *l, int fd)
{
	struct pending *w = &l->pending[l->count];

	*w = (struct pending){.fd = fd, .accepted_ns = gn_clock_ns()};
	gn_net_peer(fd, w->address);
	if (gn_handshake_challenge(&w->challenge, NULL) ||
	    send(fd, &w->challenge, sizeof w->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof w->challenge) {
		close(fd);
		return;
	}
	l->count++;
}

static void pause_accepting(struct gn_auth_listener *l, int failure)
{
	uint64_t now = gn_clock_ns();

	l->paused_until_ns = now + PAUSE_NS;
	if (l->pause_logged_ns && now - l->pause_logged_ns < LOG_INTERVAL_NS)
		return;
	l->pause_logged_ns = now;
	gn_log_warn(l->log, "cannot accept a connection on port %d, will retry: %s%s", l->port, strerror(failure),
		    failure == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

static void accept_connections(struct gn_auth_listener *l)
{
	int fd;

	if (gn_clock_ns() < l->paused_until_ns)
		return;
	for (int i = 0; i < GN_AUTH_LISTENER_WAITING_MAX && make_room(l); i++) {
		fd = gn_net_accept(l->listener);
		if (fd >= 0)
			send_challenge(l, fd);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(l, errno);
		if (fd < 0)
			return;
	}
}

static void note_other_version(struct gn_auth_listener *l, const struct pending *w)
{
	struct gn_handshake_claim claim;

	memcpy(&claim, w->claim, sizeof claim);
	l->others++;
	l->other_rank = claim.rank;
	gn_handshake_compare(&claim.version, &l->other);
}

int gn_auth_listener_other_versions(const struct gn_auth_listener *l, uint32_t *rank, struct gn_err *why)
{
	if (l->others) {
		*rank = l->other_rank;
		*why = l->other;
	}
	return l->others;
}

/* 1: the peer has authenticated and is no longer pending. 0: the handshake is still in progress. -1: the peer was dropped. */
static int receive_claim(struct gn_auth_listener *l, int i, struct gn_pending_peer *out)
{
	struct pending *w = &l->pending[i];
	ssize_t n = recv(w->fd, w->claim + w->got, sizeof w->claim - w->got, MSG_DONTWAIT);
	struct gn_handshake_reply reply;
	enum gn_handshake_result result;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (gn_clock_ns() - w->accepted_ns < HANDSHAKE_NS)
			return 0;
		drop(l, i, GN_HANDSHAKE_TIMEOUT);
		return -1;
	}
	if (n <= 0) {
		drop(l, i, GN_HANDSHAKE_CLOSED);
		return -1;
	}
	w->got += (size_t)n;
	if (gn_handshake_is_prefix(w->claim, w->got) && w->got < sizeof w->claim)
		return 0;
	result = gn_handshake_verify(&l->secret, l->purpose, &w->challenge, w->claim, w->got, &out->rank, &out->size, &out->channel.keys, &reply);
	if (send(w->fd, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof reply && !result)
		result = GN_HANDSHAKE_CLOSED;
	if (result == GN_HANDSHAKE_OTHER_VERSION)
		note_other_version(l, w);
	if (result) {
		drop(l, i, result);
		return -1;
	}
	out->channel.fd = w->fd;
	remove_pending(l, i);
	return 1;
}

int gn_auth_listener_progress(struct gn_auth_listener *l, struct gn_pending_peer *out)
{
	accept_connections(l);
	for (int i = 0; i < l->count;) {
		int result_of = receive_claim(l, i, out);

		if (result_of > 0)
			return 1;
		i += result_of == 0;
	}
	return 0;
}

void gn_auth_listener_refuse(struct gn_auth_listener *l, struct gn_pending_peer *peer, enum gn_handshake_result why)
{
	char address[GN_NET_ADDRESS_MAX];

	gn_net_peer(peer->channel.fd, address);
	log_refusal(l, address, why);
	gn_channel_close(&peer->channel);
}
