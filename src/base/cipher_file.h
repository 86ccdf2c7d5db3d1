/* A file encrypted in pieces (AES-256-GCM, src/base/data_key.h), written in one pass and read in any order.
 *
 *     offset  bytes
 *          0     16  "gannet cipher 1\n"
 *         16     32  salt, random, new for each file that is written
 *         48     32  HKDF(key, salt, "gannet file check 1"): identifies the key
 *         80      8  length of the text, at least 1, big-endian
 *         88         pieces of GN_CIPHER_PIECE bytes of text, the last one shorter: ciphertext, then the tag of 16 bytes
 *
 * Pieces are encrypted with HKDF(key, salt, "gannet file 1"). The nonce of 96 bits is the piece's number from 0, big-endian: a file is
 * written once from its beginning to its end under a salt of its own, so no nonce occurs twice under a key. Each tag also covers the 88 bytes
 * of the header, and the size of the file follows from the length: a bit that was changed, a piece that was moved, and an end that was
 * cut off are found. A whole file in the place of another one of the same key is not: digests in a signed list are for that.
 *
 * Thread safety: one thread writes; any number of threads read an open file.
 */
#ifndef GN_BASE_CIPHER_FILE_H
#define GN_BASE_CIPHER_FILE_H

#include "src/base/data_key.h"
#include "src/base/sha256.h"

#define GN_CIPHER_PIECE ((size_t)1 << 18)
#define GN_CIPHER_HEADER 88

struct gn_cipher_file;

/* The size of a file with so much text. */
uint64_t gn_cipher_size(uint64_t len_bytes);
/* Whether a file that begins with these 16 bytes is one of these. */
int gn_cipher_begins(const unsigned char prefix[16]);

/* Writes the header to fd, a new file. The text will have len_bytes. sha (borrowed, may be NULL) gets all bytes that are written. The caller
 * closes fd after gn_cipher_close(). path is for messages, borrowed. Blocks, as all below. */
enum gn_status gn_cipher_create(int fd, const char *path, const struct gn_data_key *key, uint64_t len_bytes, struct gn_sha256 *sha,
				struct gn_cipher_file **out, struct gn_err *err);
/* Appends text. GN_ERR_FAILED for more than was announced. */
enum gn_status gn_cipher_write(struct gn_cipher_file *f, const void *data, size_t len_bytes, struct gn_err *err);
/* Whether all of the text was written: GN_ERR_FAILED. */
enum gn_status gn_cipher_finish(struct gn_cipher_file *f, struct gn_err *err);

/* Opens for reading; fd stays the caller's. GN_ERR_USAGE, naming path: without a key (NULL), or with another one; GN_ERR_DATA: the file is
 * none of these, or was cut off. *len_bytes: of the text. */
enum gn_status gn_cipher_open(int fd, const char *path, const struct gn_data_key *key, struct gn_cipher_file **out, uint64_t *len_bytes,
			      struct gn_err *err);
/* Text from offset on, all of which must exist. GN_ERR_DATA names the file and the place of what fails its authentication. */
enum gn_status gn_cipher_read(const struct gn_cipher_file *f, void *data, size_t len_bytes, uint64_t offset, struct gn_err *err);
/* Wipes and frees; NULL is fine. */
void gn_cipher_close(struct gn_cipher_file *f);

#endif
