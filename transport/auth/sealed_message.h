/* One message, encrypted in fragments while it is sent and decrypted while it arrives, so that encryption, the network and decryption
 * work at the same time, and none needs memory of the message's length.
 *
 * On the wire: the message's counter (8 bytes, big-endian), then each fragment of GN_SEALED_FRAGMENT_BYTES of text (the last one may be
 * shorter; an empty message has one) as ciphertext and its tag of 16 bytes. The nonce is the fragment's number times four (32 bits) and the
 * counter (64 bits), so a counter may occur once under a key, in nonces whose first word is a multiple of four. Each tag also covers what
 * gn_sealed_message_bind() is given and the length of the text: a fragment that was changed, moved, left out, or taken from another message
 * is not authentic, nor is a message that was cut. Whether the counter occurred before is for the caller to check, by a window.
 *
 * Pieces of the wire may have any length, and come in any order; in order, each fragment is decrypted when its last byte is there. A piece
 * that comes again is not authentic.
 * Thread safety: one thread at a time for all messages of one struct gn_aead.
 */
#ifndef GN_TRANSPORT_AUTH_SEALED_MESSAGE_H
#define GN_TRANSPORT_AUTH_SEALED_MESSAGE_H

#include "src/base/data_key.h"

enum { GN_SEALED_FRAGMENT_BYTES = 65536, GN_SEALED_COUNTER_BYTES = 8, GN_SEALED_BOUND_BYTES = 32 };

/* Counters so far behind the highest one are taken for replayed; others are taken once. */
enum { GN_REPLAY_WINDOW = 1 << 16 };

/* Zeroed before its first use. */
struct gn_replay_window {
	uint64_t highest;
	uint64_t seen[GN_REPLAY_WINDOW / 64]; /* a bit for each of the last counters */
};

/* Whether a counter, of an authentic message, comes for the first time. */
int gn_replay_window_take(struct gn_replay_window *w, uint64_t counter);

struct gn_sealed_message {
	struct gn_aead *aead;
	uint64_t counter; /* when received: valid with decrypted > 0 */
	size_t len_bytes; /* of the text */
	const unsigned char *from; /* to be sent; the caller's. NULL, from some time on: the rest is sent as zeros, which are not authentic */
	unsigned char *into;	   /* to be received into; the caller's. NULL, from some time on: the rest is dropped */
	unsigned char *space;	   /* gn_sealed_message_space() bytes, the caller's */
	unsigned char bound[GN_SEALED_BOUND_BYTES];
	size_t encrypted; /* sending: 1 + the fragment that is in space; 0: none */
	size_t arrived;	  /* receiving: bytes of the wire that came in order */
	size_t decrypted; /* receiving: fragments that are authentic, from the first */
	int is_scattered; /* some bytes came out of order */
	int has_failed;	  /* a fragment is not authentic, or could not be encrypted */
};

/* Of a message on the wire; of the memory that sending, or receiving, takes. */
size_t gn_sealed_message_bytes(size_t len_bytes);
size_t gn_sealed_message_space(size_t len_bytes, int sends);
/* What both ends know of the message: its tag and, of one that is part of a longer text, where it begins in that and that one's length. */
void gn_sealed_message_bind(struct gn_sealed_message *m, uint64_t tag, uint64_t begin, uint64_t whole);
/* Writes at most max_bytes of the wire from offset on; returns how many. Encrypts the fragment they are in unless the call before did. */
size_t gn_sealed_message_pack(struct gn_sealed_message *m, size_t offset, void *to, size_t max_bytes);
/* Takes a piece of the wire; returns 0 if it is not within the message. */
int gn_sealed_message_unpack(struct gn_sealed_message *m, size_t offset, const void *from, size_t len_bytes);
/* After all pieces: whether the text is authentic. If not, no more than its first `decrypted` fragments are. */
int gn_sealed_message_finish(struct gn_sealed_message *m);

#endif
