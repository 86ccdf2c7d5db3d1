#include "src/base/clock.h"
#include "transport/health/heartbeat_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64
/* From so many ranks on their heartbeats are taken several at a time. */
#define MANY 64
#define GATHER_NS 10000000

enum gn_status gn_heartbeat_coordinator_open(struct gn_heartbeat *w, struct gn_err *err)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.u32 = 0};

	w->ready = epoll_create1(EPOLL_CLOEXEC);
	if (w->ready < 0 || epoll_ctl(w->ready, EPOLL_CTL_ADD, w->wake, &wake))
		return gn_err_errno(err, errno, "cannot start the watch");
	return GN_OK;
}

void gn_heartbeat_coordinator_announce(struct gn_heartbeat *w, enum gn_heartbeat_type type, int rank, const char *text)
{
	struct gn_heartbeat_message m = gn_heartbeat_say(type, rank, text);
	uint64_t until = gn_heartbeat_send_until();

	for (int r = 1; r < w->options.size; r++)
		if (r != rank && w->members[r].stream.fd >= 0)
			gn_heartbeat_send(&w->members[r].stream, &m, until);
}

void gn_heartbeat_coordinator_leave(struct gn_heartbeat *w, int rank)
{
	if (w->told_left)
		return;
	w->told_left = 1;
	gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_LEFT, rank, NULL);
}

static void hang_up(struct gn_heartbeat *w, struct gn_heartbeat_peer *m)
{
	if (m->stream.fd < 0)
		return;
	/* closing is not enough where a child of this process has the descriptor, too */
	epoll_ctl(w->ready, EPOLL_CTL_DEL, m->stream.fd, NULL);
	close(m->stream.fd);
	m->stream.fd = -1;
}

/* Where it is, for as long as hosts have no names yet. */
static void add_address(struct gn_heartbeat *w, int fd, char how[GN_HEARTBEAT_TEXT_MAX])
{
	char address[GN_NET_ADDRESS_MAX];
	size_t len = strlen(how);
	int named;

	pthread_mutex_lock(&w->lock);
	named = w->hosts != NULL;
	pthread_mutex_unlock(&w->lock);
	if (named || fd < 0)
		return;
	gn_net_peer(fd, address);
	if (*address != '?')
		snprintf(how + len, GN_HEARTBEAT_TEXT_MAX - len, " (it came from %s)", address);
}

static void member_lost(struct gn_heartbeat *w, int rank, const char *why)
{
	struct gn_heartbeat_peer *m = &w->members[rank];
	char how[GN_HEARTBEAT_TEXT_MAX];

	snprintf(how, sizeof how, "%s", why);
	add_address(w, m->stream.fd, how);
	m->state = GN_HEARTBEAT_DEAD;
	w->here_or_absent--;
	hang_up(w, m);
	gn_state_query_lose(w, rank, how);
}

static void member_says(struct gn_heartbeat *w, int rank)
{
	struct gn_heartbeat_peer *m = &w->members[rank];
	const struct gn_heartbeat_message *in = &m->stream.in;

	if (in->type == GN_HEARTBEAT_BYE && m->state == GN_HEARTBEAT_HERE) {
		m->state = GN_HEARTBEAT_AWAY;
		w->here_or_absent--;
		gn_heartbeat_note_left(w, rank);
		gn_heartbeat_coordinator_leave(w, rank);
	} else if (in->type == GN_HEARTBEAT_GIVE_UP && m->state == GN_HEARTBEAT_HERE) {
		m->stream.in.text[GN_HEARTBEAT_TEXT_MAX - 1] = 0;
		member_lost(w, rank, in->text);
	} else if (m->state == GN_HEARTBEAT_HERE) {
		gn_state_query_hear(w, rank, in);
	}
}

/* One read: of what is left the next turn tells. */
static void hear_member(struct gn_heartbeat *w, int rank)
{
	struct gn_heartbeat_peer *m = &w->members[rank];
	enum gn_heartbeat_read got = m->stream.fd >= 0 ? gn_heartbeat_read(&m->stream) : GN_HEARTBEAT_NOTHING;

	if (got == GN_HEARTBEAT_MESSAGE)
		member_says(w, rank);
	else if (got != GN_HEARTBEAT_NOTHING && m->state == GN_HEARTBEAT_HERE)
		member_lost(w, rank, "its connection closed without a goodbye");
	else if (got != GN_HEARTBEAT_NOTHING)
		hang_up(w, m);
}

static void take(struct gn_heartbeat *w, const struct gn_pending_peer *guest)
{
	struct gn_heartbeat_peer *m = &w->members[guest->rank];
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = guest->rank};
	struct gn_heartbeat_message hello = gn_heartbeat_say(GN_HEARTBEAT_BEAT, 0, NULL);
	char how[64];

	m->stream = (struct gn_heartbeat_stream){.fd = guest->fd, .heard_ns = gn_clock_ns()};
	m->state = GN_HEARTBEAT_HERE;
	if (epoll_ctl(w->ready, EPOLL_CTL_ADD, guest->fd, &event)) {
		snprintf(how, sizeof how, "rank 0 cannot listen to it: %s", strerror(errno));
		member_lost(w, (int)guest->rank, how);
		return;
	}
	gn_heartbeat_send(&m->stream, &hello, gn_heartbeat_send_until());
	if (atomic_load(&w->lost) > 0) {
		hello = gn_heartbeat_say(GN_HEARTBEAT_LOST, atomic_load(&w->lost) - 1, w->how);
		gn_heartbeat_send(&m->stream, &hello, gn_heartbeat_send_until());
	}
}

static void let_in(struct gn_heartbeat *w)
{
	struct gn_pending_peer guest;

	while (gn_auth_listener_progress(w->door, &guest)) {
		struct gn_heartbeat_peer *m = &w->members[guest.rank < (uint32_t)w->options.size ? guest.rank : 0];

		if (m == w->members || (int)guest.size != w->options.size || m->state != GN_HEARTBEAT_ABSENT) {
			gn_auth_listener_refuse(w->door, &guest, GN_HANDSHAKE_BAD_RANK);
			continue;
		}
		take(w, &guest);
	}
}

static int next_absent(const struct gn_heartbeat *w, int after)
{
	for (int r = after + 1; r < w->options.size; r++)
		if (w->members[r].state == GN_HEARTBEAT_ABSENT)
			return r;
	return 0;
}

/* Time is up. The first of those that are missing is the one that is lost, and its line names the others. */
static void miss(struct gn_heartbeat *w, uint64_t now)
{
	int first = next_absent(w, 0), r = first;
	char how[GN_HEARTBEAT_TEXT_MAX];
	size_t len;

	if (!first)
		return;
	len = (size_t)snprintf(how, sizeof how, "it did not come within %.1f s", (double)(now - w->began_ns) / 1e9);
	for (const char *before = "; nor did "; (r = next_absent(w, r)) && len < sizeof how / 2; before = ", ")
		len += (size_t)snprintf(how + len, sizeof how - len, "%s%d", before, r);
	snprintf(how + len, sizeof how - len, "%s: are all %d ranks started?", r ? ", ..." : "", w->options.size);
	for (r = first; r; r = next_absent(w, r))
		member_lost(w, r, how);
}

void gn_heartbeat_coordinator_judge(struct gn_heartbeat *w, uint64_t now)
{
	uint64_t limit = (uint64_t)w->options.silent_after_ms * 1000000;
	char how[64];

	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	for (int r = 1; r < w->options.size; r++)
		if (w->members[r].state == GN_HEARTBEAT_HERE && now - w->members[r].stream.heard_ns > limit)
			member_lost(w, r, how);
	if (now > atomic_load(&w->join_by_ns))
		miss(w, now);
}

static void hear_members(struct gn_heartbeat *w)
{
	struct epoll_event events[EVENTS_MAX];
	int n = EVENTS_MAX;

	for (int turns = 0; n == EVENTS_MAX && turns < w->options.size; turns++) {
		n = epoll_wait(w->ready, events, EVENTS_MAX, 0);
		for (int i = 0; i < n; i++)
			/* 0: the program wakes us */
			if (events[i].data.u32)
				hear_member(w, (int)events[i].data.u32);
	}
}

/* Hears whoever has something to say, and nobody else: its cost does not grow with the ranks that are silent. */
void gn_heartbeat_coordinator_turn(struct gn_heartbeat *w, int timeout_ms)
{
	const struct timespec gather = {0, GATHER_NS};
	struct pollfd p[1 + GN_AUTH_LISTENER_POLL_MAX] = {{.fd = w->ready, .events = POLLIN}};
	int n = gn_auth_listener_poll(w->door, p + 1), ready = poll(p, (nfds_t)n + 1, timeout_ms);

	if (ready > 0 && p[0].revents)
		hear_members(w);
	if (n > 1 || ready > (p[0].revents != 0))
		let_in(w);
	else if (ready > 0 && w->options.size >= MANY)
		nanosleep(&gather, NULL);
}
