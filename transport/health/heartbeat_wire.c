#include "transport/health/heartbeat_wire.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
