/* What follows a handshake on its connection: records, encrypted and authenticated by AES-256-GCM.
 *
 * Each direction has a key of its own, HMAC-SHA256 of the job's secret over its label and the handshake's purpose, rank, size and both nonces, so
 * that no two connections have the same. The nonce is the record's number in its direction: one that was changed, left out, moved, sent
 * again, or taken from another connection is not authentic. A record is a text of a length that both ends know, and its tag.
 *
 * Thread safety: one thread per connection. Nothing blocks.
 */
#ifndef GN_TRANSPORT_AUTH_SEALED_STREAM_H
#define GN_TRANSPORT_AUTH_SEALED_STREAM_H

#include "src/base/data_key.h"

enum { GN_RECORD_TAG_BYTES = GN_AEAD_TAG_BYTES };

struct gn_stream_keys {
	struct gn_data_key send, receive;
	uint64_t sent, received; /* records */
};

/* A connection and its keys. */
struct gn_channel {
	int fd; /* -1: none */
	struct gn_stream_keys keys;
};

/* Encrypts len_bytes of data, behind which there is space for the tag. 0, or -1: OpenSSL fails. */
int gn_stream_seal(struct gn_stream_keys *k, void *data, size_t len_bytes);
/* Decrypts a record of len_bytes and its tag. 0, or -1: it is not authentic; data is then zeros. */
int gn_stream_open(struct gn_stream_keys *k, void *data, size_t len_bytes);
/* Seals a copy of a text of any length, and sends it; opens what it receives. As gn_net_send_all() and gn_net_receive_all(); EBADMSG: it is not
 * authentic. Records of len_bytes each. */
int gn_channel_send(struct gn_channel *c, const void *data, size_t len_bytes, int timeout_ms);
int gn_channel_receive(struct gn_channel *c, void *data, size_t len_bytes, int timeout_ms);
/* Closes it, if there is one, and overwrites the keys. */
void gn_channel_close(struct gn_channel *c);

#endif
