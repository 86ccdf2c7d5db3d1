/* The job's secret: 32 bytes that only the job's own processes know, and keys derived from it.
 *
 * Under PMIx rank 0 draws it and the starter's own channel carries it. For ranks that meet over MASTER_ADDR it comes from a
 * file that nobody but its owner may read: the one that GANNET_SECRET_FILE names, or .gannet-secret in the home directory,
 * made when it is not there. It never appears in arguments, in the environment or in a log.
 *
 * Thread safety: values; any thread.
 */
#ifndef GN_TRANSPORT_AUTH_SECRET_H
#define GN_TRANSPORT_AUTH_SECRET_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_SECRET_BYTES 32

struct gn_secret {
	uint8_t bytes[GN_SECRET_BYTES];
};

enum gn_status gn_secret_random(struct gn_secret *out, struct gn_err *err);
/* What a file of at least 32 bytes (text or not, at most 4096) holds. GN_ERR_USAGE when it is not ours, or others may read or
 * write it, or it is too short; each says what to do. */
enum gn_status gn_secret_read(const char *path, struct gn_secret *out, struct gn_err *err);
/* Makes a file of 32 random bytes and mode 0600 unless one is there; several processes may try at once. */
enum gn_status gn_secret_make(const char *path, struct gn_err *err);
/* A key of its own for one use: HMAC-SHA256 under the secret of label and data. */
enum gn_status gn_secret_derive(const struct gn_secret *secret, const char *label, const void *data, size_t len_bytes,
				struct gn_secret *out, struct gn_err *err);
/* Overwrites it. */
void gn_secret_wipe(struct gn_secret *secret);

#endif
