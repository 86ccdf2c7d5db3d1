/* SHA-256 digests of files and buffers, by OpenSSL's libcrypto.
 *
 * Thread safety: a state belongs to one thread.
 */
#ifndef GN_BASE_SHA256_H
#define GN_BASE_SHA256_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_SHA256_HEX 65 /* 64 hexadecimal digits and the terminator */

struct gn_sha256;

enum gn_status gn_sha256_create(struct gn_sha256 **out, struct gn_err *err);
void gn_sha256_destroy(struct gn_sha256 *s);
void gn_sha256_update(struct gn_sha256 *s, const void *data, size_t len_bytes);
/* Writes the digest in lower-case hexadecimal and resets the state for another message. */
void gn_sha256_finish(struct gn_sha256 *s, char hex[GN_SHA256_HEX]);

/* The digest of one buffer. */
enum gn_status gn_sha256_buffer(const void *data, size_t len_bytes, char hex[GN_SHA256_HEX], struct gn_err *err);
/* Digest and size of the file at path; size_bytes may be NULL. Blocks on the file system. */
enum gn_status gn_sha256_file(const char *path, char hex[GN_SHA256_HEX], uint64_t *size_bytes, struct gn_err *err);

#endif
