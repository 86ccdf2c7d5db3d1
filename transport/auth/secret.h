/* The job's secret: 32 bytes that only the processes of the job know, and keys derived from it.
 *
 * With PMIx rank 0 generates it and PMIx distributes it. With MASTER_ADDR it is read from a file that only its owner can read:
 * GANNET_SECRET_FILE, or .gannet-secret in the home directory, which is created when it does not exist. The secret never appears in
 * arguments, the environment or a log.
 *
 * Thread safety: any thread, no shared state.
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
/* SHA-256 of a file of 32 to 4096 bytes. GN_ERR_USAGE when the file belongs to another user, other users can access it, or its size
 * is wrong; the text says what to do. */
enum gn_status gn_secret_read(const char *path, struct gn_secret *out, struct gn_err *err);
/* Creates a file of 32 random bytes with mode 0600 unless it exists; processes may do so at the same time. Blocks up to 10 s until
 * the file is visible on this host. */
enum gn_status gn_secret_make(const char *path, struct gn_err *err);
/* Derives a key for one use: HMAC-SHA256 with the secret as key over label and data, 511 bytes together at most. */
enum gn_status gn_secret_derive(const struct gn_secret *secret, const char *label, const void *data, size_t len_bytes,
				struct gn_secret *out, struct gn_err *err);
/* Overwrites the secret with zeros. */
void gn_secret_wipe(struct gn_secret *secret);

#endif
