/* Any bytes as a claim to know the secret: judged without harm, and let in only when the proof is right. */
#include "tests/fuzz/scratch.h"
#include "transport/auth/handshake.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	/* what tests/fuzz/seeds makes a good claim for */
	static const struct gn_secret secret = {"0123456789abcdef0123456789abcdef"};
	const struct gn_handshake_challenge challenge = {.magic = "GNdoor3"};
	struct gn_handshake_reply answer;
	struct gn_stream_keys keys;
	uint32_t rank = 1234567, size = 1234567;
	struct gn_err err;
	enum gn_handshake_result result;

	for (size_t len = 0; len <= len_bytes; len++)
		gn_handshake_is_prefix(data, len);
	result = gn_handshake_verify(&secret, GN_HANDSHAKE_HEARTBEAT, &challenge, data, len_bytes, &rank, &size, &keys, &answer);
	if (result && (rank != 1234567 || size != 1234567))
		abort();
	must_be_good(result ? gn_err_set(&err, GN_ERR_DATA, "%s", gn_handshake_text(result)) : GN_OK, &err);
	return 0;
}
