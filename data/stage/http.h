/* Reading a file from a web server by libcurl: its size, and ranges of its bytes, with retries. Private to data/stage/.
 *
 * A range that breaks off goes on from where it was. Connections that fail, silence for 30 s, and answers 408, 429 and 5xx are tried
 * again, after .5 s, 1 s, 2 s ... 30 s or what Retry-After says, until nothing has come for 8 times in a row. Certificates are
 * verified by the system's authorities, or those of SSL_CERT_FILE. The token goes over https only, and to no other host than the
 * first; it and the query of an address (which may be a signature) appear in no message.
 *
 * Thread safety: once opened, any thread. Blocks.
 */
#ifndef GN_DATA_STAGE_HTTP_H
#define GN_DATA_STAGE_HTTP_H

#include "src/base/log.h"
#include "src/base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct gn_http;

struct gn_http_options {
	const char *url;	/* http:// or https:// */
	const char *token_file; /* a bearer token; NULL: none. Only its owner may read it, as query_file. */
	const char *query_file; /* what to append to the address, such as Azure's SAS or a signature of S3; NULL: nothing */
	struct gn_log *log;	/* a line a retry; may be NULL */
};

struct gn_http_file {
	uint64_t size;
	int has_ranges;
	int64_t modified_s; /* since 1970; 0: not told */
	char version[256]; /* ETag or Last-Modified, "" without: changes with the file */
};

/* Whether a source is the address of a file, not a path. */
static inline int gn_http_is_address(const char *from)
{
	return !strncmp(from, "https://", 8) || !strncmp(from, "http://", 7);
}
/* GN_ERR_UNSUPPORTED in a build without libcurl. */
enum gn_status gn_http_open(const struct gn_http_options *o, struct gn_http **out, struct gn_err *err);
void gn_http_close(struct gn_http *h);
/* The address without its query, for messages. Borrowed. */
const char *gn_http_name(const struct gn_http *h);
/* Asks by a GET of one byte, for which an address that is signed for GET is good. GN_ERR_NOT_FOUND for 404 and 410; GN_ERR_DATA without a
 * size. */
enum gn_status gn_http_look(struct gn_http *h, struct gn_http_file *out, struct gn_err *err);

/* Writes bytes of the file at their offset. */
typedef enum gn_status gn_http_sink(void *context, const void *data, size_t len_bytes, uint64_t offset, struct gn_err *err);
/* Passes bytes begin .. end-1 to sink, in order; a file without ranges only as a whole. GN_ERR_DATA when the file is another one now.
 * *stop, set by any thread, ends it with GN_ERR_STOPPED. */
enum gn_status gn_http_read(struct gn_http *h, const struct gn_http_file *file, uint64_t begin, uint64_t end, gn_http_sink *sink, void *context,
			    const atomic_int *stop, struct gn_err *err);

#endif
