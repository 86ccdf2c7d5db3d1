#include "transport/bootstrap/boot_message.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define EXCHANGING "the exchange between ranks"
/* Of a record's text. */
#define RECORD_BYTES ((size_t)16384)

static enum gn_status receive_bytes(const struct gn_bootstrap *b, int rank, int fd, void *data, size_t len_bytes, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = recv(fd, (char *)data + done, len_bytes - done, MSG_DONTWAIT);

		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			status = b->heartbeat ? gn_bootstrap_check_wait(b, started, "", err) : GN_OK;
			return status ? status
				      : gn_err_set(err, GN_ERR_PEER_LOST, "rank %d closed its connection to rank %d", rank,
						   b->rank);
		}
		if (!gn_net_readable(fd, gn_bootstrap_poll_ms(b))) {
			status = gn_bootstrap_check_wait(b, started, EXCHANGING, err);
			/* a message that came meanwhile may be the reason */
			if (status && !gn_net_readable(fd, 0))
				return status;
		}
	}
	return GN_OK;
}

static enum gn_status send_bytes(const struct gn_bootstrap *b, int rank, int fd, const void *data, size_t len_bytes, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = gn_net_send_some(fd, (const char *)data + done, len_bytes - done);

		if (n < 0)
			return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d cannot send to rank %d: %s", b->rank, rank,
					  strerror(errno));
		done += (size_t)n;
		if (!n && !gn_net_writable(fd, gn_bootstrap_poll_ms(b))) {
			status = gn_bootstrap_check_wait(b, started, EXCHANGING, err);
			if (status)
				return status;
		}
	}
	return GN_OK;
}

enum gn_status gn_boot_receive(const struct gn_bootstrap *b, int rank, struct gn_channel *c, void *data, size_t len_bytes, struct gn_err *err)
{
	unsigned char record[RECORD_BYTES + GN_RECORD_TAG_BYTES];
	enum gn_status status = GN_OK;

	for (size_t done = 0; done < len_bytes && !status; done += RECORD_BYTES) {
		size_t len = len_bytes - done < RECORD_BYTES ? len_bytes - done : RECORD_BYTES;

		status = receive_bytes(b, rank, c->fd, record, len + GN_RECORD_TAG_BYTES, err);
		if (!status && gn_stream_open(&c->keys, record, len))
			status = gn_err_set(err, GN_ERR_FAILED, "what rank %d got from rank %d is not authentic: somebody has changed it on its way", b->rank,
					    rank);
		if (!status)
			memcpy((char *)data + done, record, len);
	}
	return status;
}

/* Records of a text of this length. */
static size_t sealed_bytes(size_t len_bytes)
{
	return len_bytes + (len_bytes + RECORD_BYTES - 1) / RECORD_BYTES * GN_RECORD_TAG_BYTES;
}

/* Returns what follows them; NULL: it is not possible. */
static unsigned char *seal(struct gn_channel *c, const void *data, size_t len_bytes, unsigned char *to)
{
	for (size_t done = 0; done < len_bytes; done += RECORD_BYTES) {
		size_t len = len_bytes - done < RECORD_BYTES ? len_bytes - done : RECORD_BYTES;

		memcpy(to, (const char *)data + done, len);
		if (gn_stream_seal(&c->keys, to, len))
			return NULL;
		to += len + GN_RECORD_TAG_BYTES;
	}
	return to;
}

enum gn_status gn_boot_send(const struct gn_bootstrap *b, int rank, struct gn_channel *c, const void *head, size_t head_bytes, const void *data,
				size_t len_bytes, struct gn_err *err)
{
	size_t wire_bytes = sealed_bytes(head_bytes) + sealed_bytes(len_bytes);
	unsigned char *wire = malloc(wire_bytes + 1), *end = wire ? seal(c, head, head_bytes, wire) : NULL;
	enum gn_status status;

	if (end)
		end = seal(c, data, len_bytes, end);
	status = end ? send_bytes(b, rank, c->fd, wire, wire_bytes, err)
		     : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to encrypt %zu bytes of an exchange", head_bytes + len_bytes);
	free(wire);
	return status;
}
