#include "transport/auth/sealed_stream.h"

#include "transport/auth/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
