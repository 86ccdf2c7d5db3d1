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

static void member_lost(struct gn_watch *w, int rank, const char *how)
{
	struct gn_watch_member *m = &w->members[rank];

	m->state = GN_WATCH_DEAD;
	w->here_or_absent--;
	if (m->stream.fd >= 0)
		close(m->stream.fd);
	m->stream.fd = -1;
	gn_watch_note_lost(w, rank, how);
	gn_watch_hub_announce(w, GN_WATCH_LOST, rank, how);
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

void gn_watch_hub_judge(struct gn_watch *w, uint64_t now)
{
	uint64_t limit = (uint64_t)w->options.silent_after_ms * 1000000;
	char how[64];

	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	for (int r = 1; r < w->options.size; r++) {
		if (w->members[r].state == GN_WATCH_HERE && now - w->members[r].stream.heard_ns > limit)
			member_lost(w, r, how);
		else if (w->members[r].state == GN_WATCH_ABSENT && now > atomic_load(&w->join_by_ns))
			member_lost(w, r, "it did not come");
	}
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
