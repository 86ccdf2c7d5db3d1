#include "src/base/clock.h"
#include "transport/watch_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Rank 0: to everyone who is still connected, but not to the rank that it is about. */
void gn_watch_hub_announce(struct gn_watch *w, enum gn_watch_type type, int rank, const char *text)
{
	for (int r = 1; r < w->options.size; r++)
		if (r != rank && w->members[r].stream.fd >= 0)
			gn_watch_write(&w->members[r].stream, type, rank, text);
}

/* Where it is, for as long as hosts have no names yet. */
static void add_address(struct gn_watch *w, int fd, char how[GN_WATCH_TEXT_MAX])
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
		snprintf(how + len, GN_WATCH_TEXT_MAX - len, " (it came from %s)", address);
}

static void member_lost(struct gn_watch *w, int rank, const char *why)
{
	struct gn_watch_member *m = &w->members[rank];
	char how[GN_WATCH_TEXT_MAX];

	snprintf(how, sizeof how, "%s", why);
	add_address(w, m->stream.fd, how);
	m->state = GN_WATCH_DEAD;
	w->here_or_absent--;
	if (m->stream.fd >= 0)
		close(m->stream.fd);
	m->stream.fd = -1;
	gn_watch_inquiry_lose(w, rank, how);
}

static void member_says(struct gn_watch *w, int rank)
{
	struct gn_watch_member *m = &w->members[rank];
	const struct gn_watch_message *in = &m->stream.in;

	if (in->type == GN_WATCH_BYE && m->state == GN_WATCH_HERE) {
		m->state = GN_WATCH_AWAY;
		w->here_or_absent--;
		gn_watch_note_left(w, rank);
		gn_watch_hub_announce(w, GN_WATCH_LEFT, rank, NULL);
	} else if (in->type == GN_WATCH_GIVE_UP && m->state == GN_WATCH_HERE) {
		m->stream.in.text[GN_WATCH_TEXT_MAX - 1] = 0;
		member_lost(w, rank, in->text);
	} else if (m->state == GN_WATCH_HERE) {
		gn_watch_inquiry_hear(w, rank, in);
	}
}

static void hear_member(struct gn_watch *w, int rank)
{
	struct gn_watch_member *m = &w->members[rank];
	enum gn_watch_read got;

	while (m->stream.fd >= 0 && (got = gn_watch_read(&m->stream)) != GN_WATCH_NOTHING) {
		if (got == GN_WATCH_MESSAGE) {
			member_says(w, rank);
		} else if (m->state == GN_WATCH_HERE) {
			member_lost(w, rank, "its connection closed without a goodbye");
		} else {
			close(m->stream.fd);
			m->stream.fd = -1;
		}
	}
}

static void let_in(struct gn_watch *w)
{
	struct gn_door_guest guest;

	while (gn_door_turn(w->door, &guest)) {
		struct gn_watch_member *m = &w->members[guest.rank < (uint32_t)w->options.size ? guest.rank : 0];

		if (m == w->members || (int)guest.size != w->options.size || m->state != GN_WATCH_ABSENT) {
			gn_door_refuse(w->door, &guest, GN_HANDSHAKE_BAD_RANK);
			continue;
		}
		m->stream = (struct gn_watch_stream){.fd = guest.fd, .heard_ns = gn_clock_ns()};
		m->state = GN_WATCH_HERE;
		gn_watch_write(&m->stream, GN_WATCH_BEAT, 0, NULL);
		if (atomic_load(&w->lost) > 0)
			gn_watch_write(&m->stream, GN_WATCH_LOST, atomic_load(&w->lost) - 1, w->how);
	}
}

static int next_absent(const struct gn_watch *w, int after)
{
	for (int r = after + 1; r < w->options.size; r++)
		if (w->members[r].state == GN_WATCH_ABSENT)
			return r;
	return 0;
}

/* Time is up. The first of those that are missing is the one that is lost, and its line names the others. */
static void miss(struct gn_watch *w, uint64_t now)
{
	int first = next_absent(w, 0), r = first;
	char how[GN_WATCH_TEXT_MAX];
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

void gn_watch_hub_judge(struct gn_watch *w, uint64_t now)
{
	uint64_t limit = (uint64_t)w->options.silent_after_ms * 1000000;
	char how[64];

	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	for (int r = 1; r < w->options.size; r++)
		if (w->members[r].state == GN_WATCH_HERE && now - w->members[r].stream.heard_ns > limit)
			member_lost(w, r, how);
	if (now > atomic_load(&w->join_by_ns))
		miss(w, now);
}

/* One look at all connections of rank 0. */
void gn_watch_hub_turn(struct gn_watch *w, struct pollfd *p, int timeout_ms)
{
	int n = w->options.size;

	p[0] = (struct pollfd){.fd = w->wake, .events = POLLIN};
	for (int r = 1; r < n; r++)
		p[r] = (struct pollfd){.fd = w->members[r].stream.fd, .events = POLLIN};
	n += gn_door_poll(w->door, p + n);
	if (poll(p, (nfds_t)n, timeout_ms) > 0)
		for (int r = 1; r < w->options.size; r++)
			if (p[r].revents)
				hear_member(w, r);
	let_in(w);
}
