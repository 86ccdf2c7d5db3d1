/* One request of a server, by libcurl. Private to data/stage/. */
#ifndef GN_DATA_STAGE_HTTP_INTERNAL_H
#define GN_DATA_STAGE_HTTP_INTERNAL_H

#include "data/stage/http.h"

#include <curl/curl.h>

struct gn_http {
	char *url, *name, *token;
	struct gn_log *log;
};

struct gn_http_request {
	const struct gn_http *h;
	CURL *curl;
	uint64_t at, end; /* what is still to come */
	uint64_t furthest; /* of all requests: who begins anew gets on only behind it */
	int ranged;
	gn_http_sink *sink; /* NULL: gn_http_look() */
	void *context;
	const atomic_int *stop;
	/* of the answer */
	long code;
	uint64_t from, total; /* of Content-Range; total 0: none */
	char etag[256], modified[256];
	int is_weak;
	enum gn_status failed;
	struct gn_err failure;
};

/* Asks once, for a range "BEGIN-END" or (NULL) all, if the file is of that version still ("": any). Passes the body of 200, or of 206 where a
 * range was asked for, to sink; sets code and what follows it, and failed for an answer that does not fit or what sink says. */
CURLcode gn_http_perform(struct gn_http_request *r, const char *range, const char *version);

#endif
