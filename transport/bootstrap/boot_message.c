#include "transport/bootstrap/boot_message.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define EXCHANGING "the exchange between ranks"
/* Of a record's text. */
#define RECORD_BYTES ((size_t)16384)

static const char magic[8] = "GNtree1";

void gn_contact_info_write(const struct gn_contact_info *c, struct gn_strbuf *out)
{
	gn_strbuf_append(out, magic, sizeof magic);
	gn_strbuf_append(out, (const char *)c->drawn.bytes, sizeof c->drawn.bytes);
	gn_strbuf_printf(out, "%d", c->port);
	for (uint32_t i = 0; i < c->addresses.count; i++)
		gn_strbuf_printf(out, " %s", c->addresses.text[i]);
}

/* Parses "PORT ADDRESS ADDRESS ..."; 0 when it is invalid. */
static int read_text(char *text, struct gn_contact_info *c)
{
	char *end, *rest = NULL, *word;
	long port = strtol(text, &end, 10);

	if (end == text || port <= 0 || port > 65535 || (*end && *end != ' '))
		return 0;
	c->port = (int)port;
	for (word = strtok_r(end, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		if (c->addresses.count == GN_NET_ADDRESSES_MAX || strlen(word) >= GN_NET_ADDRESS_MAX)
			return 0;
		memcpy(c->addresses.text[c->addresses.count++], word, strlen(word) + 1);
	}
	return c->addresses.count > 0;
}

enum gn_status gn_contact_info_read(const void *data, size_t len_bytes, struct gn_contact_info *out, struct gn_err *err)
{
	const size_t fixed = sizeof magic + sizeof out->drawn.bytes;
	struct gn_contact_info c = {.port = 0};
	char text[GN_CONTACT_INFO_MAX + 1] = "";

	if (len_bytes > fixed && len_bytes <= GN_CONTACT_INFO_MAX && !memcmp(data, magic, sizeof magic)) {
		memcpy(c.drawn.bytes, (const char *)data + sizeof magic, sizeof c.drawn.bytes);
		memcpy(text, (const char *)data + fixed, len_bytes - fixed);
	}
	if (!read_text(text, &c))
		return gn_err_set(err, GN_ERR_MISMATCH, "invalid contact info of %zu bytes: do all ranks run the same build of "
				  "gannet?",
				  len_bytes);
	*out = c;
	return GN_OK;
}

void gn_contact_info_prefer(struct gn_contact_info *c, const char *address)
{
	struct gn_net_addresses *a = &c->addresses;

	if (a->count < GN_NET_ADDRESSES_MAX)
		a->count++;
	memmove(a->text[1], a->text[0], (a->count - 1) * sizeof a->text[0]);
	snprintf(a->text[0], sizeof a->text[0], "%s", address);
}

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
