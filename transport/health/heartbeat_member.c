#include "src/base/clock.h"

#include "transport/auth/net.h"
#include "transport/health/heartbeat_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

#define SEND_NS 200000000u

enum gn_heartbeat_read gn_heartbeat_read(struct gn_heartbeat_stream *s)
{
	ssize_t n;

	if (s->got == sizeof s->record)
		s->got = 0;
	do
		n = recv(s->fd, s->record + s->got, sizeof s->record - s->got, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return GN_HEARTBEAT_NOTHING;
	if (n <= 0)
		return GN_HEARTBEAT_CLOSED;
	s->got += (size_t)n;
	if (s->got < sizeof s->record)
		return GN_HEARTBEAT_NOTHING;
	if (gn_stream_open(&s->keys, s->record, sizeof s->in))
		return GN_HEARTBEAT_MALFORMED;
	memcpy(&s->in, s->record, sizeof s->in);
	if (s->in.magic != GN_HEARTBEAT_MAGIC)
		return GN_HEARTBEAT_MALFORMED;
	s->heard_ns = gn_clock_ns();
	return GN_HEARTBEAT_MESSAGE;
}

struct gn_heartbeat_message gn_heartbeat_text_message(enum gn_heartbeat_type type, int rank, const char *text)
{
	struct gn_heartbeat_message m = {.magic = GN_HEARTBEAT_MAGIC, .type = type, .rank = (uint32_t)rank};

	if (text)
		snprintf(m.text, sizeof m.text, "%s", text);
	return m;
}

struct gn_heartbeat_message gn_heartbeat_data_message(enum gn_heartbeat_type type, int rank, const void *data, size_t len_bytes)
{
	struct gn_heartbeat_message m = {.magic = GN_HEARTBEAT_MAGIC, .type = type, .rank = (uint32_t)rank};

	memcpy(m.text, data, len_bytes);
	return m;
}

uint64_t gn_heartbeat_send_deadline_ns(void)
{
	return gn_clock_ns() + SEND_NS;
}

void gn_heartbeat_send(struct gn_heartbeat_stream *s, const struct gn_heartbeat_message *m, uint64_t deadline_ns)
{
	unsigned char record[sizeof *m + GN_RECORD_TAG_BYTES];

	memcpy(record, m, sizeof *m);
	if (gn_stream_seal(&s->keys, record, sizeof *m) || gn_net_send_all(s->fd, record, sizeof record, gn_net_left_ms(deadline_ns, INT_MAX)))
		shutdown(s->fd, SHUT_RDWR);
}

void gn_heartbeat_stream_close(struct gn_heartbeat_stream *s, uint64_t deadline_ns)
{
	char discarded[1024];
	uint64_t now;

	if (s->fd < 0)
		return;
	/* close() with unread data resets the connection, and the peer may lose what was sent last */
	shutdown(s->fd, SHUT_WR);
	while ((now = gn_clock_ns()) < deadline_ns && gn_net_readable(s->fd, (int)((deadline_ns - now) / 1000000) + 1) == 1)
		if (recv(s->fd, discarded, sizeof discarded, MSG_DONTWAIT) <= 0)
			break;
	close(s->fd);
	s->fd = -1;
}
