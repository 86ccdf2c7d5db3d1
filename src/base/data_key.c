#include "src/base/data_key.h"

#include "src/base/file.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static enum gn_status check_file(const char *path, int fd, struct gn_err *err)
{
	enum gn_status status = gn_trust_check_secret(fd, path, "the key file", err);
	struct stat s;

	if (status)
		return status;
	if (fstat(fd, &s))
		return gn_err_errno(err, errno, "the key file %s", path);
	if (s.st_size != GN_DATA_KEY_BYTES)
		return gn_err_set(err, GN_ERR_USAGE, "the key file %s has %lld bytes, not %d: create one with "
				  "(umask 077; head -c 32 /dev/urandom >FILE)", path, (long long)s.st_size, GN_DATA_KEY_BYTES);
	return GN_OK;
}

enum gn_status gn_data_key_read(const char *path, struct gn_data_key *out, struct gn_err *err)
{
	/* opening a FIFO must not block */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct gn_data_key key;
	enum gn_status status;

	if (fd < 0)
		return gn_err_errno(err, errno, "the key file %s", path);
	status = check_file(path, fd, err);
	if (!status)
		status = gn_pread_full(fd, key.bytes, sizeof key.bytes, 0, path, err);
	close(fd);
	if (!status)
		*out = key;
	gn_data_key_wipe(&key);
	return status;
}

enum gn_status gn_data_key_check(const char *path, struct gn_err *err)
{
	struct gn_data_key key;
	enum gn_status status = path ? gn_data_key_read(path, &key, err) : GN_OK;

	gn_data_key_wipe(&key);
	return status;
}

void gn_data_key_wipe(struct gn_data_key *key)
{
	OPENSSL_cleanse(key, sizeof *key);
}

enum gn_status gn_data_key_derive(const struct gn_data_key *key, const uint8_t *salt, const char *use, struct gn_data_key *out,
				  struct gn_err *err)
{
	unsigned char extracted[32], text[256];
	size_t len = strlen(use);
	unsigned n = 0;
	int done = 0;

	/* HKDF with one block of output: expand is HMAC(extracted, use || 1) */
	if (len < sizeof text && HMAC(EVP_sha256(), salt, GN_DATA_SALT_BYTES, key->bytes, sizeof key->bytes, extracted, &n)) {
		memcpy(text, use, len);
		text[len] = 1;
		done = HMAC(EVP_sha256(), extracted, sizeof extracted, text, len + 1, out->bytes, &n) && n == sizeof out->bytes;
	}
	OPENSSL_cleanse(extracted, sizeof extracted);
	return done ? GN_OK : gn_err_set(err, GN_ERR_FAILED, "libcrypto made no HMAC-SHA256");
}

enum gn_status gn_data_key_derive_hex(const struct gn_data_key *key, const uint8_t *salt, const char *use, char hex[GN_SHA256_HEX],
				      struct gn_err *err)
{
	struct gn_data_key made;
	enum gn_status status = gn_data_key_derive(key, salt, use, &made, err);

	if (!status)
		gn_data_salt_to_hex(made.bytes, hex);
	gn_data_key_wipe(&made);
	return status;
}

enum gn_status gn_data_salt(uint8_t salt[GN_DATA_SALT_BYTES], struct gn_err *err)
{
	if (getrandom(salt, GN_DATA_SALT_BYTES, 0) != GN_DATA_SALT_BYTES)
		return gn_err_errno(err, errno, "no random numbers for a salt");
	return GN_OK;
}

void gn_data_salt_to_hex(const uint8_t salt[GN_DATA_SALT_BYTES], char hex[GN_SHA256_HEX])
{
	for (size_t i = 0; i < GN_DATA_SALT_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", salt[i]);
}

int gn_data_salt_from_hex(const char *hex, uint8_t salt[GN_DATA_SALT_BYTES])
{
	if (!hex || strlen(hex) != GN_SHA256_HEX - 1 || strspn(hex, "0123456789abcdef") != GN_SHA256_HEX - 1)
		return -1;
	for (size_t i = 0; i < GN_DATA_SALT_BYTES; i++)
		sscanf(hex + 2 * i, "%2hhx", &salt[i]);
	return 0;
}

unsigned char *gn_data_put(unsigned char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> 8 * (bytes - 1 - i));
	return at + bytes;
}

uint64_t gn_data_get(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

struct gn_aead {
	EVP_CIPHER_CTX *context;
};

enum gn_status gn_aead_create(const struct gn_data_key *key, int encrypts, struct gn_aead **out, struct gn_err *err)
{
	struct gn_aead *a = malloc(sizeof *a);

	if (a)
		a->context = EVP_CIPHER_CTX_new();
	if (a && a->context && EVP_CipherInit_ex(a->context, EVP_aes_256_gcm(), NULL, key->bytes, NULL, encrypts) == 1) {
		*out = a;
		return GN_OK;
	}
	gn_aead_destroy(a);
	return gn_err_set(err, GN_ERR_FAILED, "libcrypto has no AES-256-GCM, or no memory for it");
}

void gn_aead_destroy(struct gn_aead *a)
{
	if (a)
		EVP_CIPHER_CTX_free(a->context);
	free(a);
}

static int begin(EVP_CIPHER_CTX *c, const uint8_t *nonce, const void *bound, size_t bound_bytes, size_t len_bytes)
{
	int n;

	return len_bytes <= INT_MAX && bound_bytes <= INT_MAX && EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, -1) == 1 &&
	       EVP_CipherUpdate(c, NULL, &n, bound, (int)bound_bytes) == 1;
}

enum gn_status gn_aead_seal(struct gn_aead *a, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound, size_t bound_bytes,
			    const void *from, size_t len_bytes, void *to, uint8_t tag[GN_AEAD_TAG_BYTES], struct gn_err *err)
{
	EVP_CIPHER_CTX *c = a->context;
	unsigned char end[GN_AEAD_TAG_BYTES];
	int n;

	if (begin(c, nonce, bound, bound_bytes, len_bytes) && EVP_CipherUpdate(c, to, &n, from, (int)len_bytes) == 1 &&
	    EVP_CipherFinal_ex(c, end, &n) == 1 && EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, GN_AEAD_TAG_BYTES, tag) == 1)
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "libcrypto could not encrypt %zu bytes", len_bytes);
}

enum gn_status gn_aead_open(struct gn_aead *a, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound, size_t bound_bytes,
			    const void *from, size_t len_bytes, const uint8_t tag[GN_AEAD_TAG_BYTES], void *to, struct gn_err *err)
{
	EVP_CIPHER_CTX *c = a->context;
	unsigned char expected[GN_AEAD_TAG_BYTES], end[GN_AEAD_TAG_BYTES];
	int n;

	memcpy(expected, tag, sizeof expected);
	if (begin(c, nonce, bound, bound_bytes, len_bytes) &&
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, GN_AEAD_TAG_BYTES, expected) == 1 &&
	    EVP_CipherUpdate(c, to, &n, from, (int)len_bytes) == 1 && EVP_CipherFinal_ex(c, end, &n) == 1)
		return GN_OK;
	memset(to, 0, len_bytes);
	return gn_err_set(err, GN_ERR_DATA, "fails its authentication: it was changed, moved or encrypted with another key");
}

enum gn_status gn_aead_encrypt(const struct gn_data_key *key, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound,
			       size_t bound_bytes, void *data, size_t len_bytes, struct gn_err *err)
{
	struct gn_aead *a = NULL;
	enum gn_status status = gn_aead_create(key, 1, &a, err);

	if (!status)
		status = gn_aead_seal(a, nonce, bound, bound_bytes, data, len_bytes, data, (uint8_t *)data + len_bytes, err);
	gn_aead_destroy(a);
	return status;
}

enum gn_status gn_aead_decrypt(const struct gn_data_key *key, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound,
			       size_t bound_bytes, void *data, size_t len_bytes, struct gn_err *err)
{
	struct gn_aead *a = NULL;
	enum gn_status status = gn_aead_create(key, 0, &a, err);

	if (!status)
		status = gn_aead_open(a, nonce, bound, bound_bytes, data, len_bytes, (const uint8_t *)data + len_bytes, data, err);
	gn_aead_destroy(a);
	return status;
}
