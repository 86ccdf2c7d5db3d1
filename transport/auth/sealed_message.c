#include "transport/auth/sealed_message.h"

#include <string.h>

enum { PIECE_BYTES = GN_SEALED_FRAGMENT_BYTES + GN_AEAD_TAG_BYTES };

int gn_replay_window_take(struct gn_replay_window *w, uint64_t counter)
{
	uint64_t bit = counter % GN_REPLAY_WINDOW;

	if (counter + GN_REPLAY_WINDOW <= w->highest)
		return 0;
	for (; w->highest < counter; w->highest++) {
		uint64_t old = (w->highest + 1) % GN_REPLAY_WINDOW;

		w->seen[old / 64] &= ~((uint64_t)1 << old % 64);
	}
	if (w->seen[bit / 64] >> bit % 64 & 1)
		return 0;
	w->seen[bit / 64] |= (uint64_t)1 << bit % 64;
	return 1;
}

static size_t fragments(size_t len_bytes)
{
	return len_bytes ? (len_bytes - 1) / GN_SEALED_FRAGMENT_BYTES + 1 : 1;
}

static size_t fragment_bytes(const struct gn_sealed_message *m, size_t fragment)
{
	size_t rest = m->len_bytes - fragment * GN_SEALED_FRAGMENT_BYTES;

	return rest < GN_SEALED_FRAGMENT_BYTES ? rest : GN_SEALED_FRAGMENT_BYTES;
}

size_t gn_sealed_message_bytes(size_t len_bytes)
{
	return GN_SEALED_COUNTER_BYTES + len_bytes + fragments(len_bytes) * GN_AEAD_TAG_BYTES;
}

/* Sending: a fragment and its tag. Receiving: the counter and all tags. */
size_t gn_sealed_message_space(size_t len_bytes, int sends)
{
	if (!sends)
		return GN_SEALED_COUNTER_BYTES + fragments(len_bytes) * GN_AEAD_TAG_BYTES;
	return len_bytes < GN_SEALED_FRAGMENT_BYTES ? len_bytes + GN_AEAD_TAG_BYTES : PIECE_BYTES;
}

void gn_sealed_message_bind(struct gn_sealed_message *m, uint64_t tag, uint64_t begin, uint64_t whole)
{
	gn_data_put(gn_data_put(gn_data_put(gn_data_put(m->bound, tag, 8), begin, 8), whole, 8), m->len_bytes, 8);
}

static void put_nonce(const struct gn_sealed_message *m, size_t fragment, uint8_t nonce[GN_AEAD_NONCE_BYTES])
{
	gn_data_put(gn_data_put(nonce, fragment << 2, 4), m->counter, 8);
}

/* --- sending --- */

static void encrypt(struct gn_sealed_message *m, size_t fragment)
{
	size_t len = fragment_bytes(m, fragment);
	uint8_t nonce[GN_AEAD_NONCE_BYTES];

	put_nonce(m, fragment, nonce);
	m->encrypted = fragment + 1;
	if (m->from && !gn_aead_seal(m->aead, nonce, m->bound, sizeof m->bound, m->from + fragment * GN_SEALED_FRAGMENT_BYTES, len, m->space,
				     m->space + len, NULL))
		return;
	m->has_failed = 1;
	memset(m->space, 0, len + GN_AEAD_TAG_BYTES);
}

/* Bytes of one fragment, or of the counter. */
static size_t pack_some(struct gn_sealed_message *m, size_t offset, unsigned char *to, size_t max)
{
	unsigned char counter[GN_SEALED_COUNTER_BYTES];
	const unsigned char *from = counter;
	size_t fragment, within = offset, len = sizeof counter;

	if (offset < sizeof counter) {
		gn_data_put(counter, m->counter, sizeof counter);
	} else {
		fragment = (offset - sizeof counter) / PIECE_BYTES;
		within = (offset - sizeof counter) % PIECE_BYTES;
		len = fragment_bytes(m, fragment) + GN_AEAD_TAG_BYTES;
		if (m->encrypted != fragment + 1)
			encrypt(m, fragment);
		from = m->space;
	}
	len = len - within < max ? len - within : max;
	memcpy(to, from + within, len);
	return len;
}

size_t gn_sealed_message_pack(struct gn_sealed_message *m, size_t offset, void *to, size_t max_bytes)
{
	size_t total = gn_sealed_message_bytes(m->len_bytes), done = 0;

	if (offset > total)
		return 0;
	if (max_bytes > total - offset)
		max_bytes = total - offset;
	while (done < max_bytes)
		done += pack_some(m, offset + done, (unsigned char *)to + done, max_bytes - done);
	return done;
}

/* --- receiving --- */

/* Text has its place, as ciphertext until its fragment is decrypted; the counter and tags are in space. */
static size_t unpack_some(struct gn_sealed_message *m, size_t offset, const unsigned char *from, size_t max)
{
	size_t fragment, within = offset, text, len = GN_SEALED_COUNTER_BYTES;
	unsigned char *to = m->space;

	if (offset >= GN_SEALED_COUNTER_BYTES) {
		fragment = (offset - GN_SEALED_COUNTER_BYTES) / PIECE_BYTES;
		within = (offset - GN_SEALED_COUNTER_BYTES) % PIECE_BYTES;
		text = len = fragment_bytes(m, fragment);
		to = m->into + fragment * GN_SEALED_FRAGMENT_BYTES;
		if (within >= text) {
			to = m->space + GN_SEALED_COUNTER_BYTES + fragment * GN_AEAD_TAG_BYTES;
			within -= text;
			len = GN_AEAD_TAG_BYTES;
		}
	}
	len = len - within < max ? len - within : max;
	memcpy(to + within, from, len);
	return len;
}

static void decrypt_next(struct gn_sealed_message *m)
{
	unsigned char *text = m->into + m->decrypted * GN_SEALED_FRAGMENT_BYTES;
	const unsigned char *tag = m->space + GN_SEALED_COUNTER_BYTES + m->decrypted * GN_AEAD_TAG_BYTES;
	uint8_t nonce[GN_AEAD_NONCE_BYTES];

	m->counter = gn_data_get(m->space, GN_SEALED_COUNTER_BYTES);
	put_nonce(m, m->decrypted, nonce);
	if (gn_aead_open(m->aead, nonce, m->bound, sizeof m->bound, text, fragment_bytes(m, m->decrypted), tag, text, NULL))
		m->has_failed = 1;
	else
		m->decrypted++;
}

int gn_sealed_message_unpack(struct gn_sealed_message *m, size_t offset, const void *from, size_t len_bytes)
{
	size_t total = gn_sealed_message_bytes(m->len_bytes), count = fragments(m->len_bytes), done = 0;

	if (offset > total || len_bytes > total - offset)
		return 0;
	/* offsets come by the network, unauthenticated: what was decrypted is not written again */
	m->has_failed |= offset < m->arrived;
	if (!m->into || m->has_failed)
		return 1;
	while (done < len_bytes)
		done += unpack_some(m, offset + done, (const unsigned char *)from + done, len_bytes - done);
	m->is_scattered |= offset != m->arrived;
	if (m->is_scattered)
		return 1;
	m->arrived += len_bytes;
	while (!m->has_failed && m->decrypted < count &&
	       m->arrived >= gn_sealed_message_bytes(m->decrypted * GN_SEALED_FRAGMENT_BYTES + fragment_bytes(m, m->decrypted)))
		decrypt_next(m);
	return 1;
}

int gn_sealed_message_finish(struct gn_sealed_message *m)
{
	while (m->into && !m->has_failed && m->is_scattered && m->decrypted < fragments(m->len_bytes))
		decrypt_next(m);
	return m->into && !m->has_failed && m->decrypted == fragments(m->len_bytes);
}
