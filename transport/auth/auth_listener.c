#include "transport/auth/auth_listener.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS 3000000000u
/* Younger ones are not dropped to make room: a rank on a busy machine needs some time. */
#define FRESH_NS 300000000u
#define KNOWN_MAX 64
#define TELL_AGAIN_NS 60000000000u
#define WINDOW_NS 10000000000u
#define LINES_PER_WINDOW 8
/* Without a descriptor for whoever comes, a listener stays readable: it is left alone for so long. */
#define FULL_NS 100000000u

struct waiting {
	int fd;
	uint64_t came_ns;
	size_t got;
	char address[GN_NET_ADDRESS_MAX];
	struct gn_handshake_challenge challenge;
	unsigned char claim[sizeof(struct gn_handshake_claim)];
};

/* An address that was refused before, so that one stranger does not fill the log. */
struct known {
	char address[GN_NET_ADDRESS_MAX];
	uint64_t told_ns;
	unsigned long untold;
};

struct gn_auth_listener {
	int listener, port;
	enum gn_handshake_purpose purpose;
	struct gn_secret secret;
	struct gn_log *log;
	struct waiting waiting[GN_AUTH_LISTENER_WAITING_MAX]; /* oldest first */
	int count;
	struct known known[KNOWN_MAX];
	unsigned next_known;
	uint64_t window_ns;
	int lines;
	unsigned long untold;
	uint64_t full_until_ns, told_full_ns;
};

static struct known *find_known(struct gn_auth_listener *d, const char *address)
{
	struct known *k;

	for (int i = 0; i < KNOWN_MAX; i++)
		if (!strcmp(d->known[i].address, address))
			return &d->known[i];
	k = &d->known[d->next_known++ % KNOWN_MAX];
	*k = (struct known){0};
	snprintf(k->address, sizeof k->address, "%s", address);
	return k;
}

static void tell(struct gn_auth_listener *d, const char *address, enum gn_handshake_result why)
{
	static const char *const names[] = {[GN_HANDSHAKE_MEETING] = "meeting point", [GN_HANDSHAKE_WATCH] = "heartbeat",
					    [GN_HANDSHAKE_TREE] = "exchange between ranks"};
	struct known *k = find_known(d, address);
	uint64_t now = gn_clock_ns();
	char more[64] = "";

	if (now - d->window_ns > WINDOW_NS) {
		d->window_ns = now;
		d->lines = 0;
	}
	if ((k->told_ns && now - k->told_ns < TELL_AGAIN_NS) || d->lines >= LINES_PER_WINDOW) {
		k->untold++;
		return;
	}
	if (k->untold)
		snprintf(more, sizeof more, " (and %lu more times before)", k->untold);
	k->told_ns = now;
	k->untold = 0;
	d->lines++;
	gn_log_warn(d->log, "refused a connection from %s to the %s, port %d: %s%s; the job goes on", address,
		    names[d->purpose], d->port, gn_handshake_text(why), more);
}

static void forget(struct gn_auth_listener *d, int i)
{
	d->count--;
	memmove(&d->waiting[i], &d->waiting[i + 1], sizeof *d->waiting * (size_t)(d->count - i));
}

static void drop(struct gn_auth_listener *d, int i, enum gn_handshake_result why)
{
	tell(d, d->waiting[i].address, why);
	close(d->waiting[i].fd);
	forget(d, i);
}

enum gn_status gn_auth_listener_open(const char *address, int *port, enum gn_handshake_purpose purpose,
				     const struct gn_secret *secret, struct gn_log *log, struct gn_auth_listener **out,
				     struct gn_err *err)
{
	struct gn_auth_listener *d = calloc(1, sizeof *d);
	enum gn_status status;

	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a listener");
	d->purpose = purpose;
	d->secret = *secret;
	d->log = log;
	status = gn_net_listen(address, port, &d->listener, err);
	if (status) {
		gn_secret_wipe(&d->secret);
		free(d);
		return status;
	}
	d->port = *port;
	*out = d;
	return GN_OK;
}

void gn_auth_listener_close(struct gn_auth_listener *d)
{
	if (!d)
		return;
	for (int i = 0; i < d->count; i++)
		close(d->waiting[i].fd);
	close(d->listener);
	gn_secret_wipe(&d->secret);
	free(d);
}

int gn_auth_listener_poll(const struct gn_auth_listener *d, struct pollfd *p)
{
	p[0] = (struct pollfd){.fd = gn_clock_ns() < d->full_until_ns ? -1 : d->listener, .events = POLLIN};
	for (int i = 0; i < d->count; i++)
		p[i + 1] = (struct pollfd){.fd = d->waiting[i].fd, .events = POLLIN};
	return d->count + 1;
}

/* Whom to drop for a newcomer: the oldest from the address that has the most, so that a crowd from one machine crowds out
 * itself. -1 while all of them are fresh. */
static int slowest(const struct gn_auth_listener *d, uint64_t now)
{
	int best = -1, most = 0;

	for (int i = 0; i < d->count && now - d->waiting[i].came_ns > FRESH_NS; i++) {
		int same = 0;

		for (int k = 0; k < d->count; k++)
			same += !strcmp(d->waiting[i].address, d->waiting[k].address);
		if (same > most) {
			most = same;
			best = i;
		}
	}
	return best;
}

static int make_room(struct gn_auth_listener *d)
{
	int i;

	if (d->count < GN_AUTH_LISTENER_WAITING_MAX)
		return 1;
	i = slowest(d, gn_clock_ns());
	if (i >= 0)
		drop(d, i, GN_HANDSHAKE_CROWDED_OUT);
	return i >= 0;
}

/* A challenge fits into any socket's empty buffer, so a short write is a broken connection. */
static void greet(struct gn_auth_listener *d, int fd)
{
	struct waiting *w = &d->waiting[d->count];

	*w = (struct waiting){.fd = fd, .came_ns = gn_clock_ns()};
	gn_net_peer(fd, w->address);
	if (gn_handshake_challenge(&w->challenge, NULL) ||
	    send(fd, &w->challenge, sizeof w->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof w->challenge) {
		close(fd);
		return;
	}
	d->count++;
}

static void be_full(struct gn_auth_listener *d, int failure)
{
	uint64_t now = gn_clock_ns();

	d->full_until_ns = now + FULL_NS;
	if (d->told_full_ns && now - d->told_full_ns < TELL_AGAIN_NS)
		return;
	d->told_full_ns = now;
	gn_log_warn(d->log, "cannot take a connection to port %d, and tries again: %s%s", d->port, strerror(failure),
		    failure == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

static void let_in(struct gn_auth_listener *d)
{
	int fd;

	if (gn_clock_ns() < d->full_until_ns)
		return;
	for (int i = 0; i < GN_AUTH_LISTENER_WAITING_MAX && make_room(d); i++) {
		fd = gn_net_accept(d->listener);
		if (fd >= 0)
			greet(d, fd);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			be_full(d, errno);
		if (fd < 0)
			return;
	}
}

/* 1: it is a guest, and no longer waits. 0: it goes on waiting. -1: it was dropped. */
static int hear(struct gn_auth_listener *d, int i, struct gn_pending_peer *out)
{
	struct waiting *w = &d->waiting[i];
	ssize_t n = recv(w->fd, w->claim + w->got, sizeof w->claim - w->got, MSG_DONTWAIT);
	struct gn_handshake_verdict answer;
	enum gn_handshake_result result;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (gn_clock_ns() - w->came_ns < PATIENCE_NS)
			return 0;
		drop(d, i, GN_HANDSHAKE_SILENT);
		return -1;
	}
	if (n <= 0) {
		drop(d, i, GN_HANDSHAKE_GONE);
		return -1;
	}
	w->got += (size_t)n;
	if (gn_handshake_plausible(w->claim, w->got) && w->got < sizeof w->claim)
		return 0;
	result = gn_handshake_judge(&d->secret, d->purpose, &w->challenge, w->claim, w->got, &out->rank, &out->size, &answer);
	if (send(w->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof answer && !result)
		result = GN_HANDSHAKE_GONE;
	if (result) {
		drop(d, i, result);
		return -1;
	}
	out->fd = w->fd;
	forget(d, i);
	return 1;
}

int gn_auth_listener_turn(struct gn_auth_listener *d, struct gn_pending_peer *out)
{
	let_in(d);
	for (int i = 0; i < d->count;) {
		int became = hear(d, i, out);

		if (became > 0)
			return 1;
		i += became == 0;
	}
	return 0;
}

void gn_auth_listener_refuse(struct gn_auth_listener *d, struct gn_pending_peer *guest, enum gn_handshake_result why)
{
	char address[GN_NET_ADDRESS_MAX];

	gn_net_peer(guest->fd, address);
	tell(d, address, why);
	close(guest->fd);
	guest->fd = -1;
}
