#include "src/base/clock.h"
#include "transport/health/heartbeat_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 2000

static void hear_up(struct gn_heartbeat *w)
{
	enum gn_heartbeat_read got;

	while (w->up.fd >= 0 && (got = gn_heartbeat_read(&w->up)) != GN_HEARTBEAT_NOTHING) {
		if (got == GN_HEARTBEAT_MESSAGE && w->up.in.type == GN_HEARTBEAT_ASK) {
			gn_state_query_answer(w, &w->up.in);
			continue;
		}
		w->up.in.text[GN_HEARTBEAT_TEXT_MAX - 1] = 0;
		if (got != GN_HEARTBEAT_MESSAGE) {
			close(w->up.fd);
			w->up.fd = -1;
			if (!w->all_gone)
				gn_heartbeat_note_lost(w, 0, "its connection closed without a goodbye");
		} else if (w->up.in.type == GN_HEARTBEAT_LOST) {
			gn_heartbeat_note_lost(w, (int)w->up.in.rank, w->up.in.text);
		} else if (w->up.in.type == GN_HEARTBEAT_VERDICT) {
			gn_heartbeat_note_verdict(w, w->up.in.rank == -GN_ERR_MISMATCH ? GN_ERR_MISMATCH : GN_ERR_STALL,
						  w->up.in.text);
		} else if (w->up.in.type == GN_HEARTBEAT_LEFT) {
			gn_heartbeat_note_left(w, (int)w->up.in.rank);
		} else if (w->up.in.type == GN_HEARTBEAT_ALL_GONE) {
			gn_heartbeat_note_all_gone(w);
		}
	}
}

void gn_heartbeat_member_turn(struct gn_heartbeat *w, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = w->wake, .events = POLLIN}, {.fd = w->up.fd, .events = POLLIN}};

	if (poll(p, 2, timeout_ms) > 0 && p[1].revents)
		hear_up(w);
}

void gn_heartbeat_member_judge(struct gn_heartbeat *w, uint64_t now)
{
	char how[64];

	if (w->up.fd < 0 || now - w->up.heard_ns <= (uint64_t)w->options.silent_after_ms * 1000000)
		return;
	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	close(w->up.fd);
	w->up.fd = -1;
	gn_heartbeat_note_lost(w, 0, how);
}

/* The handshake shows that the other end is ours, and a first word that it took us in. */
int gn_heartbeat_member_knock(struct gn_heartbeat *w, const char *address, const struct gn_heartbeat_contact *inv,
			 uint64_t connect_by_ns, uint64_t answer_by_ns, struct gn_err *err)
{
	const struct gn_heartbeat_options *o = &w->options;

	enum gn_status status = gn_net_connect(address, inv->port, gn_net_left_ms(connect_by_ns, CONNECT_MS), &w->up.fd, err);

	if (status) {
		w->up.fd = -1;
		return status == GN_ERR_PEER_LOST ? -1 : 0;
	}
	w->up.got = 0;
	if (gn_handshake_join(w->up.fd, &o->secret, GN_HANDSHAKE_HEARTBEAT, (uint32_t)o->rank, (uint32_t)o->size,
			      gn_net_left_ms(answer_by_ns, INT_MAX), err)) {
		gn_err_prefix(err, "%s port %d", address, inv->port);
	} else if (!gn_net_receive_all(w->up.fd, &w->up.in, sizeof w->up.in, gn_net_left_ms(answer_by_ns, INT_MAX)) &&
		   w->up.in.magic == GN_HEARTBEAT_MAGIC && w->up.in.type == GN_HEARTBEAT_BEAT) {
		w->up.got = sizeof w->up.in;
		w->up.heard_ns = gn_clock_ns();
		return 1;
	} else {
		gn_err_set(err, GN_ERR_FAILED, "rank 0 at %s port %d does not want rank %d, or has one already", address,
			   inv->port, o->rank);
	}
	close(w->up.fd);
	w->up.fd = -1;
	return 0;
}
