/* How two processes prove to each other, over one TCP connection, that both know the job's secret.
 *
 * Whoever listens speaks first: a nonce. Whoever came answers with its place, a nonce of its own and an HMAC-SHA256 of both;
 * only then does the listener show an HMAC of its own. An HMAC covers role, purpose, rank, size and both nonces, so a record
 * of one meeting opens no other, nor does it open the other side or the other listener.
 *
 * What it does not do: whatever follows on the connection is neither encrypted nor signed, so someone who can rewrite packets
 * between the job's nodes is not kept out. The secret itself never travels.
 *
 * Messages are of fixed sizes, with numbers in the machine's own order: peers are one build of one program. Thread safety: any
 * thread, each with its own state.
 */
#ifndef GN_TRANSPORT_AUTH_HANDSHAKE_H
#define GN_TRANSPORT_AUTH_HANDSHAKE_H

#include "transport/auth/secret.h"

#include <stddef.h>
#include <stdint.h>

/* Of the listener: what is proved to one is no proof to another. */
enum gn_handshake_purpose { GN_HANDSHAKE_MEETING = 1, GN_HANDSHAKE_WATCH, GN_HANDSHAKE_TREE };

/* X(name, value, text): what became of a claim. */
#define GN_HANDSHAKE_LIST(X)                                                                                           \
	X(GN_HANDSHAKE_WELCOME, 0, "welcome")                                                                          \
	X(GN_HANDSHAKE_GARBAGE, 1, "it does not speak as a rank does")                                                 \
	X(GN_HANDSHAKE_OTHER_DOOR, 2, "it came for another purpose")                                                   \
	X(GN_HANDSHAKE_WRONG_PROOF, 3, "it does not know this job's secret")                                           \
	X(GN_HANDSHAKE_SILENT, 4, "it did not prove itself in time")                                                   \
	X(GN_HANDSHAKE_GONE, 5, "it went away before it had proved itself")                                            \
	X(GN_HANDSHAKE_CROWDED_OUT, 6, "it was slow and others wanted its place")                                      \
	X(GN_HANDSHAKE_BAD_RANK, 7, "it says a rank that this job does not have, or that is here already")             \
	X(GN_HANDSHAKE_UNABLE, 8, "this side could not compute")

enum gn_handshake_result {
#define X(name, value, text) name = value,
	GN_HANDSHAKE_LIST(X)
#undef X
};

const char *gn_handshake_text(enum gn_handshake_result result);

struct gn_handshake_challenge {
	char magic[8];
	uint8_t nonce[32];
};

struct gn_handshake_claim {
	char magic[8];
	uint32_t purpose, rank, size, zero;
	uint8_t nonce[32], proof[GN_SECRET_BYTES];
};

struct gn_handshake_verdict {
	char magic[8];
	uint32_t result, zero;
	uint8_t proof[GN_SECRET_BYTES];
};

/* The listener's side. A challenge serves one claim only. */
enum gn_status gn_handshake_challenge(struct gn_handshake_challenge *out, struct gn_err *err);
/* Judges any len_bytes as a claim on this challenge; the answer is written in any case, rank and size (unchecked, but surely
 * from someone who knows the secret) only on GN_HANDSHAKE_WELCOME. */
enum gn_handshake_result gn_handshake_judge(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
					    const struct gn_handshake_challenge *challenge, const void *claim,
					    size_t len_bytes, uint32_t *rank, uint32_t *size,
					    struct gn_handshake_verdict *answer);
/* Whether the first len_bytes can still become a claim. */
int gn_handshake_plausible(const void *claim, size_t len_bytes);

/* The other side, blocking, at most timeout_ms. GN_ERR_USAGE when the listener says that our secret is not its own
 * (which anybody can say: it proves nothing, and whoever waits for rank 0 tries again); GN_ERR_FAILED when what listens there does not know the secret or does not speak as we do: trying again may help. */
enum gn_status gn_handshake_join(int fd, const struct gn_secret *secret, enum gn_handshake_purpose purpose, uint32_t rank,
				 uint32_t size, int timeout_ms, struct gn_err *err);

#endif
