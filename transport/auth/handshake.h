/* Mutual authentication of two processes over one TCP connection, by the job's shared secret.
 *
 *     listener -> client   challenge: a nonce
 *     client -> listener   claim: rank, size, a nonce, an HMAC-SHA256
 *     listener -> client   reply: the result; on success an HMAC-SHA256 of its own
 *
 * Each HMAC covers the role, the purpose of the listener, rank, size and both nonces, so that a recorded handshake cannot be
 * replayed, reflected to its sender, or used at a listener of another purpose.
 *
 * What follows on the connection is encrypted and authenticated with keys that both ends have then (struct gn_channel). The secret is
 * never sent.
 *
 * Messages have fixed sizes and use the host's byte order. Each names its sender's version first; these here, and what rank 0 publishes in
 * front of its contact (world_join.c), never change, so that versions that cannot work together can say so. Thread safety: any thread,
 * each with its own arguments.
 */
#ifndef GN_TRANSPORT_AUTH_HANDSHAKE_H
#define GN_TRANSPORT_AUTH_HANDSHAKE_H

#include "src/base/data_key.h"
#include "transport/auth/secret.h"

#include <stddef.h>
#include <stdint.h>

/* What follows a handshake on its connection: records, encrypted and authenticated by AES-256-GCM.
 *
 * Each direction has a key of its own, HMAC-SHA256 of the job's secret over its label and the handshake's purpose, rank, size and both nonces, so
 * that no two connections have the same. The nonce is the record's number in its direction: one that was changed, left out, moved, sent
 * again, or taken from another connection is not authentic. A record is a text of a length that both ends know, and its tag.
 *
 * Thread safety: one thread per connection. Nothing blocks.
 */

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

/* What a listener is for: a proof for one purpose is not valid for another. */
enum gn_handshake_purpose { GN_HANDSHAKE_RENDEZVOUS = 1, GN_HANDSHAKE_HEARTBEAT, GN_HANDSHAKE_TREE, GN_HANDSHAKE_REGROUP };

/* X(name, value, text): the result of a claim; the text completes "refused a connection from ADDRESS: ". */
#define GN_HANDSHAKE_LIST(X)                                                                                           \
	X(GN_HANDSHAKE_ACCEPTED, 0, "accepted")                                                                        \
	X(GN_HANDSHAKE_MALFORMED, 1, "not a Gannet handshake")                                                         \
	X(GN_HANDSHAKE_WRONG_PURPOSE, 2, "the handshake is for another purpose")                                       \
	X(GN_HANDSHAKE_WRONG_PROOF, 3, "it does not know this job's secret")                                           \
	X(GN_HANDSHAKE_TIMEOUT, 4, "it did not authenticate in time")                                                  \
	X(GN_HANDSHAKE_CLOSED, 5, "it closed the connection before it had authenticated")                              \
	X(GN_HANDSHAKE_EVICTED, 6, "too many unauthenticated connections; the slowest was closed")                     \
	X(GN_HANDSHAKE_BAD_RANK, 7, "its rank is not part of this job or is connected already")                        \
	X(GN_HANDSHAKE_HMAC_FAILED, 8, "the listener could not compute an HMAC")                                       \
	X(GN_HANDSHAKE_OTHER_VERSION, 9, "it is of a version of gannet that cannot work with this one")                \
	X(GN_HANDSHAKE_OTHER_MESSAGES, 10, "it is of another version of gannet")

enum gn_handshake_result {
#define X(name, value, text) name = value,
	GN_HANDSHAKE_LIST(X)
#undef X
};

/* Static text. */
const char *gn_handshake_text(enum gn_handshake_result result);

/* Of all messages between ranks: to be raised by whoever changes the layout or the meaning of one. */
#define GN_HANDSHAKE_PROTOCOL 3

struct gn_handshake_version {
	char magic[8];
	uint32_t protocol, zero;
	char text[144]; /* "gannet 0.2.0 (protocol 3, commit 0123456789ab) on HOST", terminated */
};

/* This program's, on this host. Does not block. */
struct gn_handshake_version gn_handshake_version(void);
/* GN_ERR_MISMATCH with a sentence that names both when they cannot work together. theirs: of any origin. */
enum gn_status gn_handshake_compare(const struct gn_handshake_version *theirs, struct gn_err *err);

struct gn_handshake_challenge {
	char magic[8];
	struct gn_handshake_version version;
	uint8_t nonce[32];
};

struct gn_handshake_claim {
	char magic[8];
	struct gn_handshake_version version;
	uint32_t purpose, rank, size, zero;
	uint8_t nonce[32], proof[GN_SECRET_BYTES];
};

struct gn_handshake_reply {
	char magic[8];
	uint32_t result, zero;
	uint8_t proof[GN_SECRET_BYTES];
};

/* Listener: creates a challenge, which is valid for one claim. GN_ERR_* when the system has no random numbers. Does not block. */
enum gn_status gn_handshake_challenge(struct gn_handshake_challenge *out, struct gn_err *err);
/* Listener: checks len_bytes from any origin as a claim on this challenge. *reply is always written; *rank, *size and *keys only on
 * GN_HANDSHAKE_ACCEPTED: they come from a holder of the secret, but are not checked. GN_HANDSHAKE_OTHER_VERSION: so does the claim. */
enum gn_handshake_result gn_handshake_verify(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
					     const struct gn_handshake_challenge *challenge, const void *claim,
					     size_t len_bytes, uint32_t *rank, uint32_t *size,
					     struct gn_stream_keys *keys, struct gn_handshake_reply *reply);
/* Listener: whether the first len_bytes received can be the beginning of a claim. */
int gn_handshake_is_prefix(const void *claim, size_t len_bytes);

/* Client: runs the handshake on c's descriptor and sets its keys; blocks for at most timeout_ms. GN_ERR_USAGE: the listener reports another
 * secret. That reply is not authenticated, so callers that wait for rank 0 retry. GN_ERR_FAILED: the listener does not know the secret or is no Gannet
 * process; a retry may succeed. GN_ERR_MISMATCH: see gn_handshake_compare(); authenticated. */
enum gn_status gn_handshake_join(struct gn_channel *c, const struct gn_secret *secret, enum gn_handshake_purpose purpose, uint32_t rank,
				 uint32_t size, int timeout_ms, struct gn_err *err);

#endif
