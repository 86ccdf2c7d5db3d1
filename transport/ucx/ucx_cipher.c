/* Encryption of messages between nodes. Key of a direction: HKDF(job's secret, random salt of the sender, "... SENDER RECEIVER " and the
 * receiver's salt); salts are new for each fabric, so a counter from 1 is a nonce that occurs once. A tagged message is encrypted by
 * transport/auth/sealed_message.h, in callbacks of UCX for data of its user's own type: a fragment when the network takes it, and decrypted
 * when it has arrived. Its tags cover the UCX tag. Of an active message see below. */
#include "transport/ucx/ucx_internal.h"

#include "transport/auth/sealed_message.h"
#include "transport/ucx/ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first 32 bits of a nonce; of a tagged message's fragments, a multiple of four. */
enum kind { TAGGED, AM_HEADER, AM_DATA };

struct peer {
	struct gn_aead *sends, *receives; /* NULL: not derived yet */
	uint64_t sent; /* the last message's counter */
	struct gn_replay_window *window;
};

struct gn_ucx_sealed {
	struct gn_ucx_sealed *next, *next_free;
	struct gn_ucx *ucx;
	size_t room_bytes;
	int rank, has_counter;
	enum kind kind;
	struct gn_sealed_message message; /* into: received. Of an active message's data: counter, len_bytes and into */
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
	ucp_datatype_t type; /* of a struct gn_ucx_sealed */
	struct peer *peers;
	struct gn_ucx_sealed *all, *free;
	struct announced *announced;
	int forged; /* 1 + the rank whose message was not authentic */
};

int gn_ucx_encrypts(const struct gn_ucx *f)
{
	return gn_world_encrypts(f->world) && gn_world_nodes(f->world) > 1;
}

/* The counter of a message is checked with its first fragment. */
static void take_first(struct gn_ucx_sealed *s)
{
	struct gn_sealed_message *m = &s->message;

	if (s->has_counter || !m->decrypted)
		return;
	s->has_counter = 1;
	m->has_failed |= !gn_replay_window_take(s->ucx->cipher->peers[s->rank].window, m->counter);
}

/* --- what UCX calls: the state is the struct gn_ucx_sealed --- */

static void *start_pack(void *context, const void *buffer, size_t count)
{
	(void)context, (void)count;
	return (void *)(uintptr_t)buffer;
}

static void *start_unpack(void *context, void *buffer, size_t count)
{
	return start_pack(context, buffer, count);
}

static size_t packed_size(void *state)
{
	return gn_sealed_message_bytes(((struct gn_ucx_sealed *)state)->message.len_bytes);
}

static size_t pack(void *state, size_t offset, void *to, size_t max_bytes)
{
	return gn_sealed_message_pack(&((struct gn_ucx_sealed *)state)->message, offset, to, max_bytes);
}

static ucs_status_t unpack(void *state, size_t offset, const void *from, size_t len)
{
	struct gn_ucx_sealed *s = state;

	if (!gn_sealed_message_unpack(&s->message, offset, from, len))
		return UCS_ERR_MESSAGE_TRUNCATED;
	take_first(s);
	return UCS_OK;
}

static void finish(void *state)
{
	(void)state;
}

/* --- keys --- */

enum gn_status gn_ucx_cipher_create(struct gn_ucx *f, uint8_t salt[GN_UCX_SALT_BYTES], struct gn_err *err)
{
	static const ucp_generic_dt_ops_t ops = {start_pack, start_unpack, packed_size, pack, unpack, finish};
	struct gn_ucx_cipher *c;
	enum gn_status status;

	memset(salt, 0, GN_UCX_SALT_BYTES);
	if (!gn_ucx_encrypts(f))
		return GN_OK;
	c = f->cipher = calloc(1, sizeof *c);
	if (c)
		c->peers = calloc((size_t)gn_world_size(f->world), sizeof *c->peers);
	if (!c || !c->peers || ucp_dt_create_generic(&ops, NULL, &c->type) != UCS_OK)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of %d ranks", gn_world_size(f->world));
	status = gn_world_key(f->world, "gannet network", c->secret.bytes, sizeof c->secret.bytes, err);
	return status ? status : gn_data_salt(salt, err);
}

void gn_ucx_cipher_destroy(struct gn_ucx *f)
{
	struct gn_ucx_cipher *c = f->cipher;

	for (int r = 0; c && c->peers && r < gn_world_size(f->world); r++) {
		free(c->peers[r].window);
		gn_aead_destroy(c->peers[r].sends);
		gn_aead_destroy(c->peers[r].receives);
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
	if (c && c->type)
		ucp_dt_destroy(c->type);
	free(c);
	f->cipher = NULL;
}

static enum gn_status derive(const struct gn_ucx *f, int from, int to, int encrypts, struct gn_aead **out, struct gn_err *err)
{
	char use[128], salt[GN_SHA256_HEX];
	struct gn_data_key key;
	enum gn_status status;

	gn_data_salt_to_hex((const uint8_t *)gn_ucx_salt_of(f, to), salt);
	snprintf(use, sizeof use, "gannet network 2 %d %d %s", from, to, salt);
	status = gn_data_key_derive(&f->cipher->secret, (const uint8_t *)gn_ucx_salt_of(f, from), use, &key, err);
	if (!status)
		status = gn_aead_create(&key, encrypts, out, err);
	gn_data_key_wipe(&key);
	return status;
}

static enum gn_status get_peer(struct gn_ucx *f, int rank, struct peer **out, struct gn_err *err)
{
	struct peer *p = *out = &f->cipher->peers[rank];
	int me = gn_world_rank(f->world);
	enum gn_status status = GN_OK;

	if (!p->window && !(p->window = calloc(1, sizeof *p->window)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of rank %d", rank);
	if (!p->sends)
		status = derive(f, me, rank, 1, &p->sends, err);
	if (!status && !p->receives)
		status = derive(f, rank, me, 0, &p->receives, err);
	return status;
}

/* --- messages --- */

static struct gn_ucx_sealed *get_buffer(struct gn_ucx *f, size_t len)
{
	struct gn_ucx_cipher *c = f->cipher;
	size_t room = (len + 4095) & ~(size_t)4095;
	struct gn_ucx_sealed *s;

	for (struct gn_ucx_sealed **at = &c->free; *at; at = &(*at)->next_free) {
		s = *at;
		if (s->room_bytes < len || s->room_bytes / 4 > len + 4096)
			continue;
		*at = s->next_free;
		return s;
	}
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
	gn_world_abort(f->world, why.status, why.text);
}

/* Encrypts, or decrypts, the header or the data of an active message; the tag is at `tag`. */
static enum gn_status crypt_am(struct peer *p, int sends, enum kind kind, uint64_t counter, const void *from, size_t len, void *to,
			       unsigned char *tag)
{
	unsigned char nonce[GN_AEAD_NONCE_BYTES], bound[8] = {0};

	gn_data_put(gn_data_put(nonce, kind, 4), counter, 8);
	return sends ? gn_aead_seal(p->sends, nonce, bound, sizeof bound, from, len, to, tag, NULL)
		     : gn_aead_open(p->receives, nonce, bound, sizeof bound, from, len, tag, to, NULL);
}

/* Whether what was received is authentic. */
static int open_message(struct gn_ucx_sealed *s)
{
	struct gn_sealed_message *m = &s->message;
	int is_whole;

	if (s->kind == AM_DATA)
		return !crypt_am(&s->ucx->cipher->peers[s->rank], 0, AM_DATA, m->counter, s->bytes, m->len_bytes, m->into, s->bytes + m->len_bytes);
	is_whole = gn_sealed_message_finish(m);
	take_first(s);
	return is_whole && !m->has_failed;
}

enum gn_status gn_ucx_unseal(struct gn_ucx_sealed **sealed, enum gn_status status)
{
	struct gn_ucx_sealed *s = *sealed;
	struct gn_ucx *f = s ? s->ucx : NULL;

	if (!s)
		return status;
	if (!status && s->message.into && !open_message(s)) {
		/* after a loss its sender may have given it up (gn_ucx_disown_sealed): the operation fails, and not the whole job */
		if (s->kind != TAGGED || !gn_world_losses(f->world))
			note_forged(f, s->rank);
		status = GN_ERR_DATA;
	}
	s->next_free = f->cipher->free;
	f->cipher->free = s;
	*sealed = NULL;
	return status;
}

void gn_ucx_disown_sealed(struct gn_ucx_sealed *s)
{
	s->message.into = NULL;
	s->message.from = NULL;
}

static enum gn_status begin(struct gn_ucx *f, int rank, enum kind kind, int receives, size_t len, size_t space, struct gn_ucx_sealed **out,
			    struct gn_err *err)
{
	struct peer *p;
	enum gn_status status = get_peer(f, rank, &p, err);
	struct gn_ucx_sealed *s = status ? NULL : get_buffer(f, space);

	if (!s)
		return status ? status : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to encrypt a message of %zu bytes", len);
	s->rank = rank;
	s->kind = kind;
	s->has_counter = 0;
	s->message = (struct gn_sealed_message){.aead = receives ? p->receives : p->sends, .len_bytes = len, .space = s->bytes};
	*out = s;
	return GN_OK;
}

enum gn_status gn_ucx_seal(struct gn_ucx *f, int rank, const struct gn_ucx_part *part, struct gn_ucx_sealed **out, struct gn_err *err)
{
	size_t space = gn_sealed_message_space(part->len_bytes, part->sends);
	enum gn_status status = begin(f, rank, TAGGED, !part->sends, part->len_bytes, space, out, err);
	struct gn_sealed_message *m;

	if (status)
		return status;
	m = &(*out)->message;
	m->into = part->sends ? NULL : part->data ? part->data : (*out)->bytes; /* an empty message may have no memory */
	m->from = part->sends ? part->data ? part->data : (*out)->bytes : NULL;
	if (part->sends)
		m->counter = ++f->cipher->peers[rank].sent;
	gn_sealed_message_bind(m, part->tag, part->begin, part->whole_bytes);
	return GN_OK;
}

void *gn_ucx_sealed_buffer(struct gn_ucx_sealed *s, size_t *count, ucp_request_param_t *param)
{
	param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
	param->datatype = s->ucx->cipher->type;
	param->memory_type = UCS_MEMORY_TYPE_HOST;
	*count = 1;
	return s;
}

size_t gn_ucx_wire_bytes(const struct gn_ucx_sealed *s, size_t len)
{
	return s ? gn_sealed_message_bytes(len) : len;
}

/* --- active messages: the sender's rank (4 bytes), the counter (8), the header as ciphertext and its tag; data as ciphertext and its tag --- */

enum gn_status gn_ucx_seal_am(struct gn_ucx *f, int rank, const void **header, size_t *header_bytes, const void **data, size_t *len,
			      struct gn_ucx_request *r, struct gn_err *err)
{
	struct peer *p = &f->cipher->peers[rank];
	size_t place = *len ? (*len + GN_AEAD_TAG_BYTES + 7) & ~(size_t)7 : 0;
	enum gn_status status = begin(f, rank, AM_DATA, 0, *len, place + *header_bytes + GN_UCX_AM_SEAL_BYTES, &r->sealed, err);
	unsigned char *text, *at;

	if (status)
		return status;
	text = r->sealed->bytes;
	at = text + place;
	gn_data_put(gn_data_put(at, (uint64_t)gn_world_rank(f->world), 4), ++p->sent, GN_SEALED_COUNTER_BYTES);
	status = crypt_am(p, 1, AM_HEADER, p->sent, *header, *header_bytes, at + 12, at + 12 + *header_bytes);
	if (!status && *len)
		status = crypt_am(p, 1, AM_DATA, p->sent, *data, *len, text, text + *len);
	if (status)
		return gn_err_set(err, status, "libcrypto could not encrypt a message of %zu bytes", *len);
	*header = at;
	*header_bytes += GN_UCX_AM_SEAL_BYTES;
	*data = *len ? text : *data;
	*len += *len ? GN_AEAD_TAG_BYTES : 0;
	return GN_OK;
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
	counter = gn_data_get(wire + 4, GN_SEALED_COUNTER_BYTES);
	memcpy(text, wire + 12, len + GN_AEAD_TAG_BYTES);
	m->header = text;
	m->header_bytes = len;
	if (m->data_bytes)
		m->data_bytes -= GN_AEAD_TAG_BYTES;
	if (!crypt_am(p, 0, AM_HEADER, counter, text, len, text, text + len) && gn_replay_window_take(p->window, counter) &&
	    (!m->data_bytes || m->is_rendezvous ||
	     !crypt_am(p, 0, AM_DATA, counter, m->data, m->data_bytes, m->data, (unsigned char *)m->data + m->data_bytes)))
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
	status = begin(f, a->rank, AM_DATA, 1, *len, *len + GN_AEAD_TAG_BYTES, &r->sealed, err);
	if (!status) {
		r->sealed->message.counter = a->counter;
		r->sealed->message.into = *into;
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
