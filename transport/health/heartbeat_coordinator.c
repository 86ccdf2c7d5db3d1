#include "src/base/clock.h"
#include "transport/health/heartbeat_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64
/* From this number of ranks on the thread sleeps BATCH_NS after each poll, so that it handles several heartbeats per wakeup. */
#define BATCH_SIZE_MIN 64
#define BATCH_NS 10000000
/* Between two reports of ranks that have left. */
#define LEFT_EVERY_NS 1000000000u

enum gn_status gn_heartbeat_coordinator_open(struct gn_heartbeat *h, struct gn_err *err)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.u32 = 0};

	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (h->epoll_fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->wake_fd, &wake))
		return gn_err_errno(err, errno, "cannot start the heartbeat");
	return GN_OK;
}

void gn_heartbeat_coordinator_broadcast(struct gn_heartbeat *h, enum gn_heartbeat_type type, int rank, const char *text)
{
	struct gn_heartbeat_message m = gn_heartbeat_text_message(type, rank, text);
	uint64_t until = gn_heartbeat_send_deadline_ns();

	/* that of a failure of the job is no rank */
	m.cause = type == GN_HEARTBEAT_LOST ? atomic_load(&h->causes[rank]) : GN_OK;
	for (int r = 1; r < h->options.size; r++)
		if (r != rank && h->members[r].stream.fd >= 0)
			gn_heartbeat_send(&h->members[r].stream, &m, until);
}

void gn_heartbeat_coordinator_peer_left(struct gn_heartbeat *h, int rank)
{
	gn_heartbeat_set_left(h, rank);
	if (h->left_sent_ns) {
		h->left_unsent = 1;
		return;
	}
	h->left_sent_ns = gn_clock_ns();
	gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_LEFT, rank, NULL);
}

void gn_heartbeat_coordinator_report_left(struct gn_heartbeat *h, uint64_t now)
{
	uint64_t until = gn_heartbeat_send_deadline_ns();
	struct gn_heartbeat_message m;

	if (!h->left_unsent || now - h->left_sent_ns < LEFT_EVERY_NS)
		return;
	h->left_unsent = 0;
	h->left_sent_ns = now;
	for (int base = 0; base < h->options.size; base += GN_HEARTBEAT_SET_RANKS) {
		m = gn_heartbeat_text_message(GN_HEARTBEAT_LEFT_SET, base, NULL);
		for (int i = 0; i < GN_HEARTBEAT_SET_RANKS && base + i < h->options.size; i++)
			if (atomic_load(&h->left_ns[base + i]))
				m.text[i / 8] = (char)(m.text[i / 8] | 1 << i % 8);
		for (int r = 1; r < h->options.size; r++)
			if (h->members[r].stream.fd >= 0)
				gn_heartbeat_send(&h->members[r].stream, &m, until);
	}
}

static void close_stream(struct gn_heartbeat *h, struct gn_heartbeat_peer *m)
{
	if (m->stream.fd < 0)
		return;
	/* close() does not remove it from the epoll set while a child process holds the descriptor, too */
	epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, m->stream.fd, NULL);
	close(m->stream.fd);
	m->stream.fd = -1;
}

/* Appends the peer's address to the reason until host names are known. */
static void add_address(struct gn_heartbeat *h, int fd, char reason[GN_HEARTBEAT_TEXT_MAX])
{
	char address[GN_NET_ADDRESS_MAX];
	size_t len = strlen(reason);
	int named;

	pthread_mutex_lock(&h->lock);
	named = h->hosts != NULL;
	pthread_mutex_unlock(&h->lock);
	if (named || fd < 0)
		return;
	gn_net_peer(fd, address);
	if (*address != '?')
		snprintf(reason + len, GN_HEARTBEAT_TEXT_MAX - len, " (connected from %s)", address);
}

static void member_lost(struct gn_heartbeat *h, int rank, const char *why)
{
	struct gn_heartbeat_peer *m = &h->members[rank];
	char reason[GN_HEARTBEAT_TEXT_MAX];

	snprintf(reason, sizeof reason, "%s", why);
	add_address(h, m->stream.fd, reason);
	m->state = GN_HEARTBEAT_PEER_LOST;
	h->remaining--;
	close_stream(h, m);
	gn_state_query_peer_lost(h, rank, reason);
}

static void handle_message(struct gn_heartbeat *h, int rank)
{
	struct gn_heartbeat_peer *m = &h->members[rank];
	const struct gn_heartbeat_message *in = &m->stream.in;

	if (in->type == GN_HEARTBEAT_LEAVE && m->state == GN_HEARTBEAT_PEER_CONNECTED) {
		m->state = GN_HEARTBEAT_PEER_LEFT;
		h->remaining--;
		gn_heartbeat_coordinator_peer_left(h, rank);
	} else if (in->type == GN_HEARTBEAT_ABORT && m->state == GN_HEARTBEAT_PEER_CONNECTED) {
		m->stream.in.text[GN_HEARTBEAT_TEXT_MAX - 1] = 0;
		atomic_store(&h->causes[rank], in->cause);
		member_lost(h, rank, in->text);
	} else if (m->state == GN_HEARTBEAT_PEER_CONNECTED) {
		gn_state_query_receive(h, rank, in);
	}
}

/* Reads at most one message; epoll reports the stream again while there is more. */
static void receive_from(struct gn_heartbeat *h, int rank)
{
	struct gn_heartbeat_peer *m = &h->members[rank];
	enum gn_heartbeat_read got = m->stream.fd >= 0 ? gn_heartbeat_read(&m->stream) : GN_HEARTBEAT_NOTHING;

	if (got == GN_HEARTBEAT_MESSAGE)
		handle_message(h, rank);
	else if (got != GN_HEARTBEAT_NOTHING && m->state == GN_HEARTBEAT_PEER_CONNECTED)
		member_lost(h, rank, got == GN_HEARTBEAT_CLOSED ? "its connection closed unexpectedly" : "a heartbeat that claims to be its own is not authentic");
	else if (got != GN_HEARTBEAT_NOTHING)
		close_stream(h, m);
}

static void add_member(struct gn_heartbeat *h, const struct gn_pending_peer *peer)
{
	struct gn_heartbeat_peer *m = &h->members[peer->rank];
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = peer->rank};
	struct gn_heartbeat_message hello = gn_heartbeat_text_message(GN_HEARTBEAT_BEAT, 0, NULL);
	char reason[64];

	m->stream = (struct gn_heartbeat_stream){.fd = peer->channel.fd, .keys = peer->channel.keys, .heard_ns = gn_clock_ns()};
	m->state = GN_HEARTBEAT_PEER_CONNECTED;
	if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, peer->channel.fd, &event)) {
		snprintf(reason, sizeof reason, "rank 0 cannot poll its connection: %s", strerror(errno));
		member_lost(h, (int)peer->rank, reason);
		return;
	}
	gn_heartbeat_send(&m->stream, &hello, gn_heartbeat_send_deadline_ns());
	/* in their order: the first is the cause */
	for (unsigned at = 1, losses = gn_heartbeat_losses(h); at <= losses; at++) {
		int r = 1;

		while (r < h->options.size && atomic_load(&h->lost_at[r]) != at)
			r++;
		if (r == h->options.size)
			continue;
		hello = gn_heartbeat_text_message(GN_HEARTBEAT_LOST, r, h->reasons[r]);
		hello.cause = atomic_load(&h->causes[r]);
		gn_heartbeat_send(&m->stream, &hello, gn_heartbeat_send_deadline_ns());
	}
}

/* A rank of another version, which has been refused: all that have joined, and those that still will, learn it. */
static void lose_other_version(struct gn_heartbeat *h)
{
	struct gn_err why;
	uint32_t rank = 0;

	if (!gn_auth_listener_other_versions(h->listener, &rank, &why) || !rank || rank >= (uint32_t)h->options.size ||
	    h->members[rank].state != GN_HEARTBEAT_PEER_ABSENT)
		return;
	atomic_store(&h->causes[rank], why.status);
	member_lost(h, (int)rank, why.text);
}

static void accept_members(struct gn_heartbeat *h)
{
	struct gn_pending_peer peer;

	while (gn_auth_listener_progress(h->listener, &peer)) {
		struct gn_heartbeat_peer *m = &h->members[peer.rank < (uint32_t)h->options.size ? peer.rank : 0];

		if (m == h->members || (int)peer.size != h->options.size || m->state != GN_HEARTBEAT_PEER_ABSENT) {
			gn_auth_listener_refuse(h->listener, &peer, GN_HANDSHAKE_BAD_RANK);
			continue;
		}
		add_member(h, &peer);
	}
	lose_other_version(h);
}

static int next_absent(const struct gn_heartbeat *h, int after)
{
	for (int r = after + 1; r < h->options.size; r++)
		if (h->members[r].state == GN_HEARTBEAT_PEER_ABSENT)
			return r;
	return 0;
}

/* Marks all members as lost that have not joined by the deadline; the reason of the first, which is the one reported, names the
 * others. */
static void lose_absent(struct gn_heartbeat *h, uint64_t now)
{
	int first = next_absent(h, 0), r = first;
	char reason[GN_HEARTBEAT_TEXT_MAX];
	size_t len;

	if (!first)
		return;
	atomic_store(&h->has_silent, 1);
	len = (size_t)snprintf(reason, sizeof reason, "it did not join within %.1f s", (double)(now - h->started_ns) / 1e9);
	for (const char *before = "; neither did "; (r = next_absent(h, r)) && len < sizeof reason / 2; before = ", ")
		len += (size_t)snprintf(reason + len, sizeof reason - len, "%s%d", before, r);
	snprintf(reason + len, sizeof reason - len, "%s: are all %d ranks started?", r ? ", ..." : "", h->options.size);
	member_lost(h, first, reason);
	while ((r = next_absent(h, first))) {
		h->members[r].state = GN_HEARTBEAT_PEER_LOST;
		h->remaining--;
		gn_heartbeat_set_lost(h, r, reason);
	}
}

void gn_heartbeat_coordinator_check(struct gn_heartbeat *h, uint64_t now)
{
	uint64_t limit = (uint64_t)h->options.silent_after_ms * 1000000;
	char reason[64];

	snprintf(reason, sizeof reason, "no heartbeat from it for %.1f s", h->options.silent_after_ms / 1e3);
	for (int r = 1; r < h->options.size; r++) {
		if (h->members[r].state == GN_HEARTBEAT_PEER_CONNECTED && now - h->members[r].stream.heard_ns > limit) {
			atomic_store(&h->has_silent, 1);
			member_lost(h, r, reason);
		}
		atomic_store_explicit(&h->heard_ns[r], h->members[r].state == GN_HEARTBEAT_PEER_CONNECTED ? h->members[r].stream.heard_ns : 0,
				      memory_order_relaxed);
	}
	if (now > atomic_load(&h->join_by_ns))
		lose_absent(h, now);
}

static void receive_from_members(struct gn_heartbeat *h)
{
	struct epoll_event events[EVENTS_MAX];
	int n = EVENTS_MAX;

	for (int turns = 0; n == EVENTS_MAX && turns < h->options.size; turns++) {
		n = epoll_wait(h->epoll_fd, events, EVENTS_MAX, 0);
		for (int i = 0; i < n; i++)
			/* 0: wake_fd, read elsewhere */
			if (events[i].data.u32)
				receive_from(h, (int)events[i].data.u32);
	}
}

/* Its cost depends on the number of members that have sent something, not on the number of members. */
void gn_heartbeat_coordinator_progress(struct gn_heartbeat *h, int timeout_ms)
{
	struct pollfd p[1 + GN_AUTH_LISTENER_POLL_MAX] = {{.fd = h->epoll_fd, .events = POLLIN}};
	int n = gn_auth_listener_poll(h->listener, p + 1), ready = poll(p, (nfds_t)n + 1, timeout_ms);

	if (ready > 0 && p[0].revents)
		receive_from_members(h);
	if (n > 1 || ready > (p[0].revents != 0))
		accept_members(h);
	else if (ready > 0 && h->options.size >= BATCH_SIZE_MIN)
		gn_clock_sleep_ns(BATCH_NS);
}
