/* Encryption of messages between nodes. Key of a direction: HKDF(job's secret, random salt of the sender, "... SENDER RECEIVER " and the
 * receiver's salt); salts are new for each fabric, so a counter from 1 is a nonce that occurs once. On the wire a message is the counter (8
 * bytes), the ciphertext and its tag, which covers the UCX tag; of an active message see below. */
#include "transport/ucx/ucx_internal.h"

#include "src/base/data_key.h"
#include "transport/ucx/ucx_am.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counters so far behind the highest one are taken for replayed; others are taken once. */
enum { WINDOW = 1 << 16, WORD = 64, COUNTER_BYTES = 8 };
/* the first 32 bits of a nonce */
enum kind { TAGGED, AM_HEADER, AM_DATA };

struct peer {
	int has_keys;
	struct gn_data_key sends, receives;
	uint64_t sent, highest;
	uint64_t *seen; /* a bit for each of the last WINDOW counters */
};

/* A buffer for what is on the wire. */
struct gn_ucx_sealed {
	struct gn_ucx_sealed *next, *next_free;
	struct gn_ucx *ucx;
	size_t room_bytes, len_bytes; /* len_bytes: of the text */
	int rank, receives;
	enum kind kind;
	uint64_t tag, counter; /* counter: of an active message's data */
	void *into;
	_Alignas(64) unsigned char bytes[];
};

/* A rendezvous that has been announced. */
struct announced {
	struct announced *next;
	const void *descriptor;
	int rank;
	uint64_t counter;
};

struct gn_ucx_cipher {
	struct gn_data_key secret;
	struct peer *peers;
	struct gn_ucx_sealed *all, *free;
	struct announced *announced;
	int forged; /* 1 + the rank whose message was not authentic */
};

enum gn_status gn_ucx_cipher_create(struct gn_ucx *f, uint8_t salt[GN_UCX_SALT_BYTES], struct gn_err *err)
{
	struct gn_ucx_cipher *c;
	enum gn_status status;

	memset(salt, 0, GN_UCX_SALT_BYTES);
	if (!gn_world_encrypts(f->world) || gn_world_nodes(f->world) < 2)
		return GN_OK;
	c = f->cipher = calloc(1, sizeof *c);
	if (c)
		c->peers = calloc((size_t)gn_world_size(f->world), sizeof *c->peers);
	if (!c || !c->peers)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of %d ranks", gn_world_size(f->world));
	status = gn_world_key(f->world, "gannet network", c->secret.bytes, sizeof c->secret.bytes, err);
	return status ? status : gn_data_salt(salt, err);
}

void gn_ucx_cipher_destroy(struct gn_ucx *f)
{
	struct gn_ucx_cipher *c = f->cipher;

	for (int r = 0; c && c->peers && r < gn_world_size(f->world); r++) {
		free(c->peers[r].seen);
		gn_data_key_wipe(&c->peers[r].sends);
		gn_data_key_wipe(&c->peers[r].receives);
	}
	for (struct gn_ucx_sealed *s = c ? c->all : NULL, *next; s; s = next) {
		next = s->next;
		free(s);
	}
	for (struct announced *a = c ? c->announced : NULL, *next; a; a = next) {
		next = a->next;
		free(a);
	}
	if (c) {
		gn_data_key_wipe(&c->secret);
		free(c->peers);
	}
	free(c);
	f->cipher = NULL;
}

static enum gn_status derive(const struct gn_ucx *f, int from, int to, struct gn_data_key *key, struct gn_err *err)
{
	char use[128], salt[GN_SHA256_HEX];

	gn_data_salt_to_hex((const uint8_t *)gn_ucx_salt_of(f, to), salt);
	snprintf(use, sizeof use, "gannet network 1 %d %d %s", from, to, salt);
	return gn_data_key_derive(&f->cipher->secret, (const uint8_t *)gn_ucx_salt_of(f, from), use, key, err);
}

static enum gn_status get_peer(struct gn_ucx *f, int rank, struct peer **out, struct gn_err *err)
{
	struct peer *p = *out = &f->cipher->peers[rank];
	int me = gn_world_rank(f->world);
	enum gn_status status = GN_OK;

	if (p->has_keys)
		return GN_OK;
	if (!p->seen && !(p->seen = calloc(WINDOW / WORD, sizeof *p->seen)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of rank %d", rank);
	status = derive(f, me, rank, &p->sends, err);
	if (!status)
		status = derive(f, rank, me, &p->receives, err);
	p->has_keys = !status;
	return status;
}

static enum gn_status encrypt(struct peer *p, enum kind kind, uint64_t counter, uint64_t tag, void *data, size_t len, struct gn_err *err)
{
	unsigned char nonce[GN_AEAD_NONCE_BYTES], bound[8];

	gn_data_put(nonce, kind, 4);
	gn_data_put(nonce + 4, counter, 8);
	gn_data_put(bound, tag, 8);
	return gn_aead_encrypt(&p->sends, nonce, bound, sizeof bound, data, len, err);
}

static enum gn_status decrypt(struct peer *p, enum kind kind, uint64_t counter, uint64_t tag, void *data, size_t len)
{
	unsigned char nonce[GN_AEAD_NONCE_BYTES], bound[8];

	gn_data_put(nonce, kind, 4);
	gn_data_put(nonce + 4, counter, 8);
	gn_data_put(bound, tag, 8);
	return gn_aead_decrypt(&p->receives, nonce, bound, sizeof bound, data, len, NULL);
}

/* Whether an authentic counter comes for the first time. */
static int take_counter(struct peer *p, uint64_t counter)
{
	uint64_t bit = counter % WINDOW;

	if (counter + WINDOW <= p->highest)
		return 0;
	for (; p->highest < counter; p->highest++) {
		uint64_t old = (p->highest + 1) % WINDOW;

		p->seen[old / WORD] &= ~((uint64_t)1 << old % WORD);
	}
	if (p->seen[bit / WORD] >> bit % WORD & 1)
		return 0;
	p->seen[bit / WORD] |= (uint64_t)1 << bit % WORD;
	return 1;
}

static struct gn_ucx_sealed *get_buffer(struct gn_ucx *f, size_t len)
{
	struct gn_ucx_cipher *c = f->cipher;
	size_t room = 4096;
	struct gn_ucx_sealed *s;

	for (struct gn_ucx_sealed **at = &c->free; *at; at = &(*at)->next_free) {
		s = *at;
		if (s->room_bytes < len || s->room_bytes / 4 > len + 4096)
			continue;
		*at = s->next_free;
		return s;
	}
	while (room < len)
		room *= 2;
	s = aligned_alloc(64, sizeof *s + room);
	if (!s)
		return NULL;
	memset(s, 0, sizeof *s);
	s->room_bytes = room;
	s->ucx = f;
	s->next = c->all;
	c->all = s;
	return s;
}

enum gn_status gn_ucx_cipher_check(const struct gn_ucx *f, struct gn_err *err)
{
	int rank = f->cipher ? f->cipher->forged - 1 : -1;

	if (rank < 0)
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "a message from rank %d on %s fails its authentication: it was changed, or sent again, between the "
			  "nodes", rank, gn_world_host_of(f->world, rank));
}

/* The other ranks get the reason. */
static void note_forged(struct gn_ucx *f, int rank)
{
	struct gn_err why;

	if (f->cipher->forged)
		return;
	f->cipher->forged = 1 + rank;
	gn_ucx_cipher_check(f, &why);
	gn_world_abort(f->world, why.text);
}

void gn_ucx_unseal(struct gn_ucx_request *r)
{
	struct gn_ucx_sealed *s = r->sealed;
	struct gn_ucx *f = s->ucx;
	struct peer *p = &f->cipher->peers[s->rank];
	unsigned char *text = s->bytes + (s->kind == TAGGED ? COUNTER_BYTES : 0);
	uint64_t counter = s->kind == TAGGED ? gn_data_get(s->bytes, COUNTER_BYTES) : s->counter;

	r->sealed = NULL;
	r->len_bytes = s->len_bytes;
	if (s->receives && !r->status) {
		if (decrypt(p, s->kind, counter, s->tag, text, s->len_bytes) || (s->kind == TAGGED && !take_counter(p, counter))) {
			note_forged(f, s->rank);
			r->status = GN_ERR_DATA;
		} else if (s->into && s->len_bytes) {
			memcpy(s->into, text, s->len_bytes);
		}
	}
	s->next_free = f->cipher->free;
	f->cipher->free = s;
}

void gn_ucx_disown_sealed(struct gn_ucx_request *r)
{
	r->sealed->into = NULL;
}

static enum gn_status begin(struct gn_ucx *f, int rank, enum kind kind, uint64_t tag, size_t len, size_t more, struct gn_ucx_request *r,
			    struct gn_err *err)
{
	struct peer *p;
	enum gn_status status = get_peer(f, rank, &p, err);
	struct gn_ucx_sealed *s = status ? NULL : get_buffer(f, len + more);

	if (!s)
		return status ? status : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to encrypt a message of %zu bytes", len);
	s->rank = rank;
	s->kind = kind;
	s->tag = tag;
	s->len_bytes = len;
	s->receives = 0;
	s->into = NULL;
	r->sealed = s;
	return GN_OK;
}

enum gn_status gn_ucx_seal(struct gn_ucx *f, int rank, uint64_t tag, const void **data, size_t *len, struct gn_ucx_request *r, struct gn_err *err)
{
	struct peer *p = &f->cipher->peers[rank];
	enum gn_status status = begin(f, rank, TAGGED, tag, *len, GN_UCX_SEAL_BYTES, r, err);

	if (status)
		return status;
	gn_data_put(r->sealed->bytes, ++p->sent, COUNTER_BYTES);
	if (*len)
		memcpy(r->sealed->bytes + COUNTER_BYTES, *data, *len);
	status = encrypt(p, TAGGED, p->sent, tag, r->sealed->bytes + COUNTER_BYTES, *len, err);
	*data = r->sealed->bytes;
	*len += GN_UCX_SEAL_BYTES;
	return status;
}

enum gn_status gn_ucx_expect(struct gn_ucx *f, int rank, uint64_t tag, void **data, size_t *len, struct gn_ucx_request *r, struct gn_err *err)
{
	enum gn_status status = begin(f, rank, TAGGED, tag, *len, GN_UCX_SEAL_BYTES, r, err);

	if (status)
		return status;
	r->sealed->into = *data;
	r->sealed->receives = 1;
	*data = r->sealed->bytes;
	*len += GN_UCX_SEAL_BYTES;
	return GN_OK;
}

/* --- active messages: the sender's rank (4 bytes), the counter (8), the header as ciphertext and its tag; data as ciphertext and its tag --- */

enum gn_status gn_ucx_seal_am(struct gn_ucx *f, int rank, const void **header, size_t *header_bytes, const void **data, size_t *len,
			      struct gn_ucx_request *r, struct gn_err *err)
{
	struct peer *p = &f->cipher->peers[rank];
	size_t place = *len ? (*len + GN_AEAD_TAG_BYTES + 7) & ~(size_t)7 : 0;
	enum gn_status status = begin(f, rank, AM_DATA, 0, *len, place - *len + *header_bytes + GN_UCX_AM_SEAL_BYTES, r, err);
	unsigned char *at;

	if (status)
		return status;
	at = r->sealed->bytes + place;
	gn_data_put(at, (uint64_t)gn_world_rank(f->world), 4);
	gn_data_put(at + 4, ++p->sent, COUNTER_BYTES);
	memcpy(at + 12, *header, *header_bytes);
	status = encrypt(p, AM_HEADER, p->sent, 0, at + 12, *header_bytes, err);
	*header = at;
	*header_bytes += GN_UCX_AM_SEAL_BYTES;
	if (status || !*len)
		return status;
	memcpy(r->sealed->bytes, *data, *len);
	*data = r->sealed->bytes;
	status = encrypt(p, AM_DATA, p->sent, 0, r->sealed->bytes, *len, err);
	*len += GN_AEAD_TAG_BYTES;
	return status;
}

static int announce(struct gn_ucx *f, const struct gn_ucx_am *m, int rank, uint64_t counter)
{
	struct announced *a = malloc(sizeof *a);

	if (!a)
		return 0;
	*a = (struct announced){f->cipher->announced, m->data, rank, counter};
	f->cipher->announced = a;
	return 1;
}

int gn_ucx_unseal_am(struct gn_ucx *f, struct gn_ucx_am *m, unsigned char *text)
{
	const unsigned char *wire = m->header;
	size_t len = m->header_bytes - GN_UCX_AM_SEAL_BYTES;
	uint64_t counter, rank;
	struct peer *p;

	/* of nobody: dropped */
	if (m->header_bytes < GN_UCX_AM_SEAL_BYTES || len > GN_UCX_AM_HEADER_MAX || (rank = gn_data_get(wire, 4)) >= (uint64_t)gn_world_size(f->world) ||
	    (m->data_bytes && m->data_bytes <= GN_AEAD_TAG_BYTES) || get_peer(f, (int)rank, &p, NULL))
		return 0;
	counter = gn_data_get(wire + 4, COUNTER_BYTES);
	memcpy(text, wire + 12, len + GN_AEAD_TAG_BYTES);
	m->header = text;
	m->header_bytes = len;
	if (m->data_bytes)
		m->data_bytes -= GN_AEAD_TAG_BYTES;
	if (!decrypt(p, AM_HEADER, counter, 0, text, len) && take_counter(p, counter) &&
	    (!m->data_bytes || m->is_rendezvous || !decrypt(p, AM_DATA, counter, 0, m->data, m->data_bytes)))
		return !m->is_rendezvous || announce(f, m, (int)rank, counter);
	note_forged(f, (int)rank);
	return 0;
}

enum gn_status gn_ucx_expect_am(struct gn_ucx *f, const void *descriptor, void **into, size_t *len, struct gn_ucx_request *r, struct gn_err *err)
{
	struct announced **at = &f->cipher->announced, *a;
	enum gn_status status;

	while (*at && (*at)->descriptor != descriptor)
		at = &(*at)->next;
	a = *at;
	if (!a)
		return gn_err_set(err, GN_ERR_FAILED, "a message was received twice");
	*at = a->next;
	status = begin(f, a->rank, AM_DATA, 0, *len, GN_AEAD_TAG_BYTES, r, err);
	if (!status) {
		r->sealed->counter = a->counter;
		r->sealed->into = *into;
		r->sealed->receives = 1;
		*into = r->sealed->bytes;
		*len += GN_AEAD_TAG_BYTES;
	}
	free(a);
	return status;
}

void gn_ucx_forget_am(struct gn_ucx *f, const void *descriptor)
{
	for (struct announced **at = &f->cipher->announced; *at; at = &(*at)->next)
		if ((*at)->descriptor == descriptor) {
			struct announced *a = *at;

			*at = a->next;
			free(a);
			return;
		}
}
