#include "transport/auth/handshake.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/random.h>

static const char challenge_magic[8] = "GNdoor2", claim_magic[8] = "GNrank2", verdict_magic[8] = "GNopen2";

/* What an HMAC covers, after the label that tells the role. */
struct transcript {
	uint32_t purpose, rank, size, zero;
	uint8_t listener[32], guest[32];
};

const char *gn_handshake_text(enum gn_handshake_result result)
{
	switch (result) {
#define X(name, value, text)                                                                                           \
	case name:                                                                                                     \
		return text;
		GN_HANDSHAKE_LIST(X)
#undef X
	}
	return "it was refused for an unknown reason";
}

static int prove(const struct gn_secret *secret, const char *role, const struct gn_handshake_challenge *challenge,
		 const struct gn_handshake_claim *claim, struct gn_secret *out)
{
	struct transcript t = {.purpose = claim->purpose, .rank = claim->rank, .size = claim->size};

	memcpy(t.listener, challenge->nonce, sizeof t.listener);
	memcpy(t.guest, claim->nonce, sizeof t.guest);
	return gn_secret_derive(secret, role, &t, sizeof t, out, NULL) == GN_OK;
}

enum gn_status gn_handshake_challenge(struct gn_handshake_challenge *out, struct gn_err *err)
{
	memcpy(out->magic, challenge_magic, sizeof out->magic);
	if (getrandom(out->nonce, sizeof out->nonce, 0) != (ssize_t)sizeof out->nonce)
		return gn_err_errno(err, errno, "no random numbers for a challenge");
	return GN_OK;
}

int gn_handshake_plausible(const void *claim, size_t len_bytes)
{
	size_t known = len_bytes < sizeof claim_magic ? len_bytes : sizeof claim_magic;

	return len_bytes <= sizeof(struct gn_handshake_claim) && !memcmp(claim, claim_magic, known);
}

static enum gn_handshake_result judge(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
				      const struct gn_handshake_challenge *challenge, const void *bytes, size_t len_bytes,
				      struct gn_handshake_claim *claim)
{
	struct gn_secret wanted;
	int same;

	if (len_bytes != sizeof *claim || !gn_handshake_plausible(bytes, len_bytes))
		return GN_HANDSHAKE_GARBAGE;
	memcpy(claim, bytes, sizeof *claim);
	if (claim->zero)
		return GN_HANDSHAKE_GARBAGE;
	if (claim->purpose != (uint32_t)purpose)
		return GN_HANDSHAKE_OTHER_DOOR;
	if (!prove(secret, "gannet guest", challenge, claim, &wanted))
		return GN_HANDSHAKE_UNABLE;
	same = !CRYPTO_memcmp(wanted.bytes, claim->proof, sizeof claim->proof);
	gn_secret_wipe(&wanted);
	return same ? GN_HANDSHAKE_WELCOME : GN_HANDSHAKE_WRONG_PROOF;
}

enum gn_handshake_result gn_handshake_judge(const struct gn_secret *secret, enum gn_handshake_purpose purpose,
					    const struct gn_handshake_challenge *challenge, const void *bytes,
					    size_t len_bytes, uint32_t *rank, uint32_t *size,
					    struct gn_handshake_verdict *answer)
{
	struct gn_handshake_claim claim;
	struct gn_secret proof;
	enum gn_handshake_result result = judge(secret, purpose, challenge, bytes, len_bytes, &claim);

	if (!result && !prove(secret, "gannet listener", challenge, &claim, &proof))
		result = GN_HANDSHAKE_UNABLE;
	*answer = (struct gn_handshake_verdict){.result = result};
	memcpy(answer->magic, verdict_magic, sizeof answer->magic);
	if (result)
		return result;
	memcpy(answer->proof, proof.bytes, sizeof answer->proof);
	*rank = claim.rank;
	*size = claim.size;
	return GN_HANDSHAKE_WELCOME;
}

static enum gn_status await(int fd, void *data, size_t len_bytes, int timeout_ms, struct gn_err *err)
{
	if (!gn_net_receive_all(fd, data, len_bytes, timeout_ms))
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "whoever listens there %s", errno == ETIMEDOUT ? "says nothing" : "hung up on us");
}

static enum gn_status conclude(const struct gn_secret *secret, const struct gn_handshake_challenge *challenge,
			       const struct gn_handshake_claim *claim, const struct gn_handshake_verdict *verdict,
			       struct gn_err *err)
{
	struct gn_secret wanted;
	int same;

	if (memcmp(verdict->magic, verdict_magic, sizeof verdict_magic))
		return gn_err_set(err, GN_ERR_FAILED, "whoever listens there is no rank of a Gannet job");
	if (verdict->result == GN_HANDSHAKE_WRONG_PROOF)
		return gn_err_set(err, GN_ERR_USAGE, "it is of another job, or has another secret: GANNET_SECRET_FILE (or "
				  ".gannet-secret in the home directory) must be the same file on all nodes");
	if (verdict->result)
		return gn_err_set(err, GN_ERR_FAILED, "whoever listens there does not let this rank in: %s",
				  gn_handshake_text((enum gn_handshake_result)verdict->result));
	if (!prove(secret, "gannet listener", challenge, claim, &wanted))
		return gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	same = !CRYPTO_memcmp(wanted.bytes, verdict->proof, sizeof verdict->proof);
	gn_secret_wipe(&wanted);
	return same ? GN_OK
		    : gn_err_set(err, GN_ERR_FAILED, "whoever listens there does not know this job's secret: it is not rank 0");
}

enum gn_status gn_handshake_join(int fd, const struct gn_secret *secret, enum gn_handshake_purpose purpose, uint32_t rank,
				 uint32_t size, int timeout_ms, struct gn_err *err)
{
	struct gn_handshake_claim claim = {.purpose = (uint32_t)purpose, .rank = rank, .size = size};
	struct gn_handshake_challenge challenge, mine;
	struct gn_handshake_verdict verdict;
	struct gn_secret proof;
	uint64_t deadline = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;
	enum gn_status status = await(fd, &challenge, sizeof challenge, timeout_ms, err);

	if (status)
		return status;
	if (memcmp(challenge.magic, challenge_magic, sizeof challenge_magic))
		return gn_err_set(err, GN_ERR_FAILED, "what listens there is no rank of a Gannet job");
	status = gn_handshake_challenge(&mine, err);
	if (status)
		return status;
	memcpy(claim.magic, claim_magic, sizeof claim.magic);
	memcpy(claim.nonce, mine.nonce, sizeof claim.nonce);
	if (!prove(secret, "gannet guest", &challenge, &claim, &proof))
		return gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	memcpy(claim.proof, proof.bytes, sizeof claim.proof);
	if (gn_net_send_all(fd, &claim, sizeof claim, gn_net_left_ms(deadline, timeout_ms)))
		return gn_err_set(err, GN_ERR_FAILED, "whoever listens there hung up on us");
	status = await(fd, &verdict, sizeof verdict, gn_net_left_ms(deadline, timeout_ms), err);
	return status ? status : conclude(secret, &challenge, &claim, &verdict, err);
}
