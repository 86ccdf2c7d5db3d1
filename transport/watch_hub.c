#include "src/base/clock.h"
#include "transport/watch_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

static void drop_stranger(struct gn_watch *w, int i, int and_close)
{
	if (and_close)
		close(w->strangers[i].fd);
	w->stranger_count--;
	memmove(&w->strangers[i], &w->strangers[i + 1], sizeof *w->strangers * (size_t)(w->stranger_count - i));
}

/* The comparison takes the same time wherever the tokens differ. */
static int token_matches(const struct gn_watch *w, const char *given)
{
	unsigned difference = 0;

	for (int i = 0; i < GN_WATCH_TOKEN_BYTES; i++)
		difference |= w->token[i] ^ (uint8_t)given[i];
	return !difference;
}

static void hear_stranger(struct gn_watch *w, int i)
{
	struct gn_watch_stream *s = &w->strangers[i];
	enum gn_watch_read got = gn_watch_read(s);
	uint32_t rank = s->in.rank;

	if (got == GN_WATCH_NOTHING)
		return;
	if (got != GN_WATCH_MESSAGE || s->in.type != GN_WATCH_JOIN || !token_matches(w, s->in.text) || rank == 0 ||
	    (int)rank >= w->options.size || w->members[rank].state != GN_WATCH_ABSENT) {
		drop_stranger(w, i, 1);
		return;
	}
	w->members[rank].stream = *s;
	w->members[rank].state = GN_WATCH_HERE;
	drop_stranger(w, i, 0);
	gn_watch_write(&w->members[rank].stream, GN_WATCH_BEAT, 0, NULL);
	if (atomic_load(&w->lost))
		gn_watch_write(&w->members[rank].stream, GN_WATCH_LOST, atomic_load(&w->lost) - 1, w->how);
}

static void let_in(struct gn_watch *w)
{
	int fd = gn_net_accept(w->listener);

	if (fd < 0)
		return;
	if (w->stranger_count == GN_WATCH_STRANGERS_MAX)
		drop_stranger(w, 0, 1);
	w->strangers[w->stranger_count++] = (struct gn_watch_stream){.fd = fd, .heard_ns = gn_clock_ns()};
}

void gn_watch_hub_judge(struct gn_watch *w, uint64_t now)
{
	uint64_t limit = (uint64_t)w->options.silent_after_ms * 1000000;
	char how[64];

	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	for (int r = 1; r < w->options.size; r++) {
		if (w->members[r].state == GN_WATCH_HERE && now - w->members[r].stream.heard_ns > limit)
			member_lost(w, r, how);
		else if (w->members[r].state == GN_WATCH_ABSENT && now > w->join_by_ns)
			member_lost(w, r, "it did not come");
	}
	for (int i = w->stranger_count; i-- > 0;)
		if (now - w->strangers[i].heard_ns > limit)
			drop_stranger(w, i, 1);
}

/* One look at all connections of rank 0. */
void gn_watch_hub_turn(struct gn_watch *w, struct pollfd *p, int timeout_ms)
{
	int n = 2, strangers = w->stranger_count;

	p[0] = (struct pollfd){.fd = w->wake, .events = POLLIN};
	p[1] = (struct pollfd){.fd = w->listener, .events = POLLIN};
	for (int i = 0; i < strangers; i++)
		p[n++] = (struct pollfd){.fd = w->strangers[i].fd, .events = POLLIN};
	for (int r = 1; r < w->options.size; r++)
		p[n++] = (struct pollfd){.fd = w->members[r].stream.fd, .events = POLLIN};
	if (poll(p, (nfds_t)n, timeout_ms) <= 0)
		return;
	for (int r = 1; r < w->options.size; r++)
		if (p[1 + strangers + r].revents)
			hear_member(w, r);
	for (int i = strangers; i-- > 0;)
		if (p[2 + i].revents)
			hear_stranger(w, i);
	if (p[1].revents)
		let_in(w);
}

