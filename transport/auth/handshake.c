#include "transport/auth/handshake.h"

#include "src/base/clock.h"
#include "src/base/version.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The digit is that of these messages themselves. */
static const char challenge_magic[8] = "GNdoor3", claim_magic[8] = "GNrank3", reply_magic[8] = "GNopen3";
#define MAGIC_NAME 6

/* What an HMAC covers, after a label for the role. The labels and the magic bytes are part of the wire format. */
struct transcript {
	uint32_t purpose, rank, size, zero;
	uint8_t listener[32], client[32];
	struct gn_handshake_version listeners, clients;
};

/* Read where it stands in the program file, where a test changes the number behind the magic. */
static const volatile struct gn_handshake_version this_version = {"GNproto", GN_HANDSHAKE_PROTOCOL, 0, ""};

struct gn_handshake_version gn_handshake_version(void)
{
	struct gn_handshake_version v = {"GNproto", this_version.protocol, 0, ""};
	char host[64] = "?";

	gethostname(host, sizeof host - 1);
	snprintf(v.text, sizeof v.text, "gannet %s (protocol %u, commit %s) on %s", gn_version(), v.protocol, gn_version_commit(), host);
	return v;
}

enum gn_status gn_handshake_compare(const struct gn_handshake_version *theirs, struct gn_err *err)
{
	struct gn_handshake_version own = gn_handshake_version();

	if (theirs->protocol == own.protocol)
		return GN_OK;
	return gn_err_set(err, GN_ERR_MISMATCH, "%.*s cannot work with %s: start the same program on all nodes", (int)sizeof theirs->text - 1,
			  theirs->text, own.text);
}

const char *gn_handshake_text(enum gn_handshake_result result)
{
	switch (result) {
#define X(name, value, text)                                                                                           \
	case name:                                                                                                     \
		return text;
		GN_HANDSHAKE_LIST(X)
#undef X
	}
	return "unknown reason";
}

static int derive_proof(const struct gn_secret *secret, const char *role, const struct gn_handshake_challenge *challenge,
			const struct gn_handshake_claim *claim, struct gn_secret *out)
{
	struct transcript t = {.purpose = claim->purpose, .rank = claim->rank, .size = claim->size,
			       .listeners = challenge->version, .clients = claim->version};

	memcpy(t.listener, challenge->nonce, sizeof t.listener);
	memcpy(t.client, claim->nonce, sizeof t.client);
	return gn_secret_derive(secret, role, &t, sizeof t, out, NULL) == GN_OK;
}

static int derive_keys(const struct gn_secret *secret, const struct gn_handshake_challenge *challenge, const struct gn_handshake_claim *claim,
		       int is_listener, struct gn_stream_keys *out)
{
	struct gn_secret listener, client;

	if (!derive_proof(secret, "gannet listener sends", challenge, claim, &listener) ||
	    !derive_proof(secret, "gannet guest sends", challenge, claim, &client))
		return 0;
	*out = (struct gn_stream_keys){.sent = 0};
	memcpy(out->send.bytes, is_listener ? listener.bytes : client.bytes, sizeof out->send.bytes);
	memcpy(out->receive.bytes, is_listener ? client.bytes : listener.bytes, sizeof out->receive.bytes);
	gn_secret_wipe(&listener);
	gn_secret_wipe(&client);
	return 1;
}

enum gn_status gn_handshake_challenge(struct gn_handshake_challenge *out, struct gn_err *err)
{
	memcpy(out->magic, challenge_magic, sizeof out->magic);
	out->version = gn_handshake_version();
	if (getrandom(out->nonce, sizeof out->nonce, 0) != (ssize_t)sizeof out->nonce)
		return gn_err_errno(err, errno, "no random numbers for a challenge");
	return GN_OK;
}

int gn_handshake_is_prefix(const void *claim, size_t len_bytes)
{
	size_t known = len_bytes < sizeof claim_magic ? len_bytes : sizeof claim_magic;

	return len_bytes <= sizeof(struct gn_handshake_claim) && !memcmp(claim, claim_magic, known);
}

static enum gn_handshake_result check_claim(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
					    const struct gn_handshake_challenge *challenge, const void *bytes, size_t len_bytes,
					    struct gn_handshake_claim *claim)
{
	struct gn_secret expected;
	int same;

	if (len_bytes != sizeof *claim || !gn_handshake_is_prefix(bytes, len_bytes))
		return len_bytes > MAGIC_NAME && !memcmp(bytes, claim_magic, MAGIC_NAME) && ((const char *)bytes)[MAGIC_NAME] != claim_magic[MAGIC_NAME]
			       ? GN_HANDSHAKE_OTHER_MESSAGES
			       : GN_HANDSHAKE_MALFORMED;
	memcpy(claim, bytes, sizeof *claim);
	if (claim->zero)
		return GN_HANDSHAKE_MALFORMED;
	if (claim->purpose != (uint32_t)purpose)
		return GN_HANDSHAKE_WRONG_PURPOSE;
	if (!derive_proof(secret, "gannet guest", challenge, claim, &expected))
		return GN_HANDSHAKE_HMAC_FAILED;
	same = !CRYPTO_memcmp(expected.bytes, claim->proof, sizeof claim->proof);
	gn_secret_wipe(&expected);
	if (!same)
		return GN_HANDSHAKE_WRONG_PROOF;
	return claim->version.protocol == this_version.protocol ? GN_HANDSHAKE_ACCEPTED : GN_HANDSHAKE_OTHER_VERSION;
}

enum gn_handshake_result gn_handshake_verify(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
					     const struct gn_handshake_challenge *challenge, const void *bytes,
					     size_t len_bytes, uint32_t *rank, uint32_t *size,
					     struct gn_stream_keys *keys, struct gn_handshake_reply *reply)
{
	struct gn_handshake_claim claim;
	struct gn_secret proof;
	enum gn_handshake_result result = check_claim(secret, purpose, challenge, bytes, len_bytes, &claim);

	int is_proved = !result || result == GN_HANDSHAKE_OTHER_VERSION;

	if (is_proved && (!derive_proof(secret, "gannet listener", challenge, &claim, &proof) || !derive_keys(secret, challenge, &claim, 1, keys)))
		result = GN_HANDSHAKE_HMAC_FAILED;
	*reply = (struct gn_handshake_reply){.result = result};
	memcpy(reply->magic, reply_magic, sizeof reply->magic);
	if (is_proved && result != GN_HANDSHAKE_HMAC_FAILED)
		memcpy(reply->proof, proof.bytes, sizeof reply->proof);
	if (result)
		return result;
	*rank = claim.rank;
	*size = claim.size;
	return GN_HANDSHAKE_ACCEPTED;
}

static enum gn_status receive(int fd, void *data, size_t len_bytes, int timeout_ms, struct gn_err *err)
{
	if (!gn_net_receive_all(fd, data, len_bytes, timeout_ms))
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "the listener %s", errno == ETIMEDOUT ? "does not answer" : "closed the connection");
}

static enum gn_status check_reply(const struct gn_secret *secret, const struct gn_handshake_challenge *challenge,
				  const struct gn_handshake_claim *claim, const struct gn_handshake_reply *reply,
				  struct gn_err *err)
{
	struct gn_secret expected;
	int same;

	if (memcmp(reply->magic, reply_magic, sizeof reply_magic))
		return gn_err_set(err, GN_ERR_FAILED, "the listener is not a rank of a Gannet job");
	if (reply->result == GN_HANDSHAKE_WRONG_PROOF)
		return gn_err_set(err, GN_ERR_USAGE, "it belongs to another job or has another secret: GANNET_SECRET_FILE (or "
				  ".gannet-secret in the home directory) must be the same file on all nodes");
	if (reply->result && reply->result != GN_HANDSHAKE_OTHER_VERSION)
		return gn_err_set(err, GN_ERR_FAILED, "the listener refuses this rank: %s",
				  gn_handshake_text((enum gn_handshake_result)reply->result));
	if (!derive_proof(secret, "gannet listener", challenge, claim, &expected))
		return gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	same = !CRYPTO_memcmp(expected.bytes, reply->proof, sizeof reply->proof);
	gn_secret_wipe(&expected);
	if (!same)
		return gn_err_set(err, GN_ERR_FAILED, "the listener does not know this job's secret: it is not rank 0");
	return gn_handshake_compare(&challenge->version, err);
}

enum gn_status gn_handshake_join(struct gn_channel *c, const struct gn_secret *secret, enum gn_handshake_purpose purpose, uint32_t rank,
				 uint32_t size, int timeout_ms, struct gn_err *err)
{
	struct gn_handshake_claim claim = {.purpose = (uint32_t)purpose, .rank = rank, .size = size};
	struct gn_handshake_challenge challenge, own;
	struct gn_handshake_reply reply;
	struct gn_secret proof;
	uint64_t deadline = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;
	enum gn_status status = receive(c->fd, &challenge, sizeof challenge, timeout_ms, err);

	if (status)
		return status;
	if (memcmp(challenge.magic, challenge_magic, sizeof challenge_magic))
		return gn_err_set(err, GN_ERR_FAILED, memcmp(challenge.magic, challenge_magic, MAGIC_NAME)
				  ? "the listener is not a rank of a Gannet job" : "the listener is of another version of gannet");
	status = gn_handshake_challenge(&own, err);
	if (status)
		return status;
	memcpy(claim.magic, claim_magic, sizeof claim.magic);
	claim.version = own.version;
	memcpy(claim.nonce, own.nonce, sizeof claim.nonce);
	if (!derive_proof(secret, "gannet guest", &challenge, &claim, &proof))
		return gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	memcpy(claim.proof, proof.bytes, sizeof claim.proof);
	if (gn_net_send_all(c->fd, &claim, sizeof claim, gn_net_left_ms(deadline, timeout_ms)))
		return gn_err_set(err, GN_ERR_FAILED, "the listener closed the connection");
	status = receive(c->fd, &reply, sizeof reply, gn_net_left_ms(deadline, timeout_ms), err);
	if (!status)
		status = check_reply(secret, &challenge, &claim, &reply, err);
	if (!status && !derive_keys(secret, &challenge, &claim, 0, &c->keys))
		status = gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	return status;
}

static void put_nonce(uint64_t record, uint8_t nonce[GN_AEAD_NONCE_BYTES])
{
	memset(nonce, 0, GN_AEAD_NONCE_BYTES);
	gn_data_put(nonce + GN_AEAD_NONCE_BYTES - sizeof record, record, sizeof record);
}

int gn_stream_seal(struct gn_stream_keys *k, void *data, size_t len_bytes)
{
	uint8_t nonce[GN_AEAD_NONCE_BYTES];

	put_nonce(k->sent++, nonce);
	return gn_aead_encrypt(&k->send, nonce, NULL, 0, data, len_bytes, NULL) ? -1 : 0;
}

int gn_stream_open(struct gn_stream_keys *k, void *data, size_t len_bytes)
{
	uint8_t nonce[GN_AEAD_NONCE_BYTES];

	put_nonce(k->received++, nonce);
	return gn_aead_decrypt(&k->receive, nonce, NULL, 0, data, len_bytes, NULL) ? -1 : 0;
}

int gn_channel_send(struct gn_channel *c, const void *data, size_t len_bytes, int timeout_ms)
{
	unsigned char *record = malloc(len_bytes + GN_RECORD_TAG_BYTES);
	int result = -1;

	errno = ENOMEM;
	if (record && len_bytes)
		memcpy(record, data, len_bytes);
	if (record && !gn_stream_seal(&c->keys, record, len_bytes))
		result = gn_net_send_all(c->fd, record, len_bytes + GN_RECORD_TAG_BYTES, timeout_ms);
	free(record);
	return result;
}

int gn_channel_receive(struct gn_channel *c, void *data, size_t len_bytes, int timeout_ms)
{
	unsigned char *record = malloc(len_bytes + GN_RECORD_TAG_BYTES);
	int result = -1;

	errno = ENOMEM;
	if (record)
		result = gn_net_receive_all(c->fd, record, len_bytes + GN_RECORD_TAG_BYTES, timeout_ms);
	if (!result && gn_stream_open(&c->keys, record, len_bytes)) {
		errno = EBADMSG;
		result = -1;
	}
	if (!result && len_bytes)
		memcpy(data, record, len_bytes);
	free(record);
	return result;
}

void gn_channel_close(struct gn_channel *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	OPENSSL_cleanse(&c->keys, sizeof c->keys);
}
