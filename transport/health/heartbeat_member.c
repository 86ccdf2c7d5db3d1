#include "src/base/clock.h"
#include "transport/health/heartbeat_internal.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define CONNECT_MS 2000

static void receive_left_set(struct gn_heartbeat *h, const struct gn_heartbeat_message *in)
{
	for (int i = 0; i < GN_HEARTBEAT_SET_RANKS; i++)
		if ((unsigned char)in->text[i / 8] >> i % 8 & 1)
			gn_heartbeat_set_left(h, (int)in->rank + i);
}

static void lose(struct gn_heartbeat *h, const struct gn_heartbeat_message *in)
{
	if (in->rank < (uint32_t)h->options.size)
		atomic_store(&h->causes[in->rank], in->cause);
	gn_heartbeat_set_lost(h, (int)in->rank, in->text);
}

static void receive_from_coordinator(struct gn_heartbeat *h)
{
	enum gn_heartbeat_read got;

	while (h->coordinator.fd >= 0 && (got = gn_heartbeat_read(&h->coordinator)) != GN_HEARTBEAT_NOTHING) {
		if (got == GN_HEARTBEAT_MESSAGE && h->coordinator.in.type == GN_HEARTBEAT_QUERY) {
			gn_state_query_reply(h, &h->coordinator.in);
			continue;
		}
		if (got == GN_HEARTBEAT_MESSAGE && h->coordinator.in.type == GN_HEARTBEAT_LEFT_SET) {
			receive_left_set(h, &h->coordinator.in);
			continue;
		}
		h->coordinator.in.text[GN_HEARTBEAT_TEXT_MAX - 1] = 0;
		if (got != GN_HEARTBEAT_MESSAGE) {
			close(h->coordinator.fd);
			h->coordinator.fd = -1;
			if (!h->all_left)
				gn_heartbeat_set_lost(h, 0, "its connection closed unexpectedly");
		} else if (h->coordinator.in.type == GN_HEARTBEAT_LOST) {
			lose(h, &h->coordinator.in);
		} else if (h->coordinator.in.type == GN_HEARTBEAT_FAILURE) {
			gn_heartbeat_set_failure(h, h->coordinator.in.rank == -GN_ERR_MISMATCH ? GN_ERR_MISMATCH : GN_ERR_STALL,
						 h->coordinator.in.text);
		} else if (h->coordinator.in.type == GN_HEARTBEAT_LEFT) {
			gn_heartbeat_set_left(h, (int)h->coordinator.in.rank);
		} else if (h->coordinator.in.type == GN_HEARTBEAT_ALL_LEFT) {
			gn_heartbeat_set_all_left(h);
		}
	}
}

void gn_heartbeat_member_progress(struct gn_heartbeat *h, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = h->wake_fd, .events = POLLIN}, {.fd = h->coordinator.fd, .events = POLLIN}};

	if (poll(p, 2, timeout_ms) > 0 && p[1].revents)
		receive_from_coordinator(h);
}

void gn_heartbeat_member_check(struct gn_heartbeat *h, uint64_t now)
{
	char reason[64];

	if (h->coordinator.fd < 0 || now - h->coordinator.heard_ns <= (uint64_t)h->options.silent_after_ms * 1000000)
		return;
	snprintf(reason, sizeof reason, "no heartbeat from it for %.1f s", h->options.silent_after_ms / 1e3);
	close(h->coordinator.fd);
	h->coordinator.fd = -1;
	atomic_store(&h->has_silent, 1);
	gn_heartbeat_set_lost(h, 0, reason);
}

/* The handshake authenticates the listener; its first heartbeat confirms that it has accepted this rank. */
int gn_heartbeat_member_connect(struct gn_heartbeat *h, const char *address, const struct gn_heartbeat_contact *contact,
				uint64_t connect_by_ns, uint64_t answer_by_ns, struct gn_err *err)
{
	const struct gn_heartbeat_options *o = &h->options;
	struct gn_heartbeat_stream *s = &h->coordinator;
	struct gn_channel c = {.fd = -1};
	enum gn_status status = gn_net_connect(address, contact->port, gn_net_left_ms(connect_by_ns, CONNECT_MS), &c.fd, err);

	if (status) {
		s->fd = -1;
		return status == GN_ERR_PEER_LOST ? -1 : 0;
	}
	*s = (struct gn_heartbeat_stream){.fd = c.fd};
	if (gn_handshake_join(&c, &o->secret, GN_HANDSHAKE_HEARTBEAT, (uint32_t)o->rank, (uint32_t)o->size,
			      gn_net_left_ms(answer_by_ns, INT_MAX), err)) {
		gn_err_prefix(err, "%s port %d", address, contact->port);
	} else if (!gn_channel_receive(&c, &s->in, sizeof s->in, gn_net_left_ms(answer_by_ns, INT_MAX)) &&
		   s->in.magic == GN_HEARTBEAT_MAGIC && s->in.type == GN_HEARTBEAT_BEAT) {
		s->keys = c.keys;
		s->heard_ns = gn_clock_ns();
		return 1;
	} else {
		gn_err_set(err, GN_ERR_FAILED, "rank 0 at %s port %d does not accept rank %d, or that rank is connected already",
			   address, contact->port, o->rank);
	}
	close(s->fd);
	s->fd = -1;
	return 0;
}
