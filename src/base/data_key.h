/* Encryption of data at rest: the user's key, keys derived from it, and AES-256-GCM, by OpenSSL's libcrypto.
 *
 * A key file holds 32 random bytes, which only its owner can read. Nothing is encrypted with that key itself: each use has a key of its
 * own, HKDF-SHA256 (RFC 5869) of the file's key, a random salt of 32 bytes and a text that names the use. A nonce may occur once under
 * a derived key: gn_aead_encrypt() with the same key and nonce for two texts reveals both.
 *
 * Thread safety: any thread, no shared state. Keys appear in no argument, environment or message; whoever holds one wipes it.
 */
#ifndef GN_BASE_DATA_KEY_H
#define GN_BASE_DATA_KEY_H

#include "src/base/sha256.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_DATA_KEY_BYTES 32
#define GN_DATA_SALT_BYTES 32
#define GN_AEAD_NONCE_BYTES 12
#define GN_AEAD_TAG_BYTES 16

struct gn_data_key {
	uint8_t bytes[GN_DATA_KEY_BYTES];
};

/* Reads a key file. GN_ERR_USAGE when the file belongs to another user, other users can access it, or it does not hold 32 bytes; the text
 * says what to do. Blocks on the file system. */
enum gn_status gn_data_key_read(const char *path, struct gn_data_key *out, struct gn_err *err);
/* Whether gn_data_key_read() succeeds; path NULL: GN_OK. */
enum gn_status gn_data_key_check(const char *path, struct gn_err *err);
/* Overwrites the key with zeros. */
void gn_data_key_wipe(struct gn_data_key *key);
/* The key for one use: salt is of GN_DATA_SALT_BYTES, use of at most 255 bytes. */
enum gn_status gn_data_key_derive(const struct gn_data_key *key, const uint8_t *salt, const char *use, struct gn_data_key *out,
				  struct gn_err *err);
/* The same in lower-case hexadecimal, for what is no secret: the check of a key, an authentication. */
enum gn_status gn_data_key_derive_hex(const struct gn_data_key *key, const uint8_t *salt, const char *use, char hex[GN_SHA256_HEX],
				      struct gn_err *err);
/* A new random salt. */
enum gn_status gn_data_salt(uint8_t salt[GN_DATA_SALT_BYTES], struct gn_err *err);
void gn_data_salt_to_hex(const uint8_t salt[GN_DATA_SALT_BYTES], char hex[GN_SHA256_HEX]);
/* Returns 0, or -1 unless hex, which may be NULL, is 64 lower-case hexadecimal digits. */
int gn_data_salt_from_hex(const char *hex, uint8_t salt[GN_DATA_SALT_BYTES]);
/* Writes the last bytes of value, big-endian, and returns what follows them: for nonces and what a tag covers. */
unsigned char *gn_data_put(unsigned char *at, uint64_t value, size_t bytes);
uint64_t gn_data_get(const unsigned char *at, size_t bytes);

/* Encrypts len_bytes (below 2^31) in place and appends the tag of GN_AEAD_TAG_BYTES, for which data has space. The tag covers bound, which
 * is not encrypted and has to be the same for decryption. */
enum gn_status gn_aead_encrypt(const struct gn_data_key *key, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound,
			       size_t bound_bytes, void *data, size_t len_bytes, struct gn_err *err);
/* The reverse; len_bytes without the tag. GN_ERR_DATA for another key, nonce, bound, text or tag; data is then zeros. */
enum gn_status gn_aead_decrypt(const struct gn_data_key *key, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound,
			       size_t bound_bytes, void *data, size_t len_bytes, struct gn_err *err);

/* The same for many texts under one key, which is prepared once: encrypts or decrypts. One thread at a time. from and to may be the same,
 * else they may not overlap. */
struct gn_aead;
enum gn_status gn_aead_create(const struct gn_data_key *key, int encrypts, struct gn_aead **out, struct gn_err *err);
/* NULL is fine. */
void gn_aead_destroy(struct gn_aead *a);
enum gn_status gn_aead_seal(struct gn_aead *a, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound, size_t bound_bytes,
			    const void *from, size_t len_bytes, void *to, uint8_t tag[GN_AEAD_TAG_BYTES], struct gn_err *err);
enum gn_status gn_aead_open(struct gn_aead *a, const uint8_t nonce[GN_AEAD_NONCE_BYTES], const void *bound, size_t bound_bytes,
			    const void *from, size_t len_bytes, const uint8_t tag[GN_AEAD_TAG_BYTES], void *to, struct gn_err *err);

#endif
