#include "src/config.h"

#ifdef HAVE_LIBCURL
#include "data/stage/http_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SILENCE_S 30L

static int fail(struct gn_http_request *r, enum gn_status status)
{
	r->failed = status;
	return 0;
}

static void keep(char *out, size_t size, const char *value, size_t len)
{
	while (len && (value[len - 1] == '\r' || value[len - 1] == '\n' || value[len - 1] == ' '))
		len--;
	while (len && *value == ' ')
		value++, len--;
	if (len < size) {
		memcpy(out, value, len);
		out[len] = 0;
	}
}

static size_t take_header(char *line, size_t one, size_t len, void *context)
{
	struct gn_http_request *r = context;
	char value[128];
	unsigned long long from, to, total;

	(void)one;
	if (len > 5 && !strncmp(line, "HTTP/", 5)) { /* the next answer, of another host perhaps */
		r->total = 0;
		r->etag[0] = r->modified[0] = 0;
		r->is_weak = 0;
	} else if (len > 5 && !strncasecmp(line, "etag:", 5)) {
		keep(r->etag, sizeof r->etag, line + 5, len - 5);
		r->is_weak = !strncmp(r->etag, "W/", 2);
	} else if (len > 14 && !strncasecmp(line, "last-modified:", 14)) {
		keep(r->modified, sizeof r->modified, line + 14, len - 14);
	} else if (len > 14 && !strncasecmp(line, "content-range:", 14)) {
		value[0] = 0;
		keep(value, sizeof value, line + 14, len - 14);
		if (sscanf(value, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 && from <= to && to < total) {
			r->from = from;
			r->total = total;
		}
	}
	return len;
}

static size_t take_body(char *data, size_t one, size_t len, void *context)
{
	struct gn_http_request *r = context;

	(void)one;
	curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &r->code);
	if (r->code != 200 && r->code != 206)
		return len; /* a page that explains an error */
	if (!r->sink || (r->ranged && r->code != 206))
		return 0;
	if (r->ranged && r->from != r->at) {
		gn_err_set(&r->failure, GN_ERR_DATA, "%s: the server sent bytes from %llu on instead of %llu", r->h->name, (unsigned long long)r->from,
			   (unsigned long long)r->at);
		return (size_t)fail(r, GN_ERR_DATA);
	}
	if (len > r->end - r->at) {
		gn_err_set(&r->failure, GN_ERR_DATA, "%s: the server sent more than was asked for", r->h->name);
		return (size_t)fail(r, GN_ERR_DATA);
	}
	r->failed = r->sink(r->context, data, len, r->at, &r->failure);
	if (r->failed)
		return 0;
	r->at += len;
	r->from += len;
	return len;
}

static int watch(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct gn_http_request *r = context;

	(void)a, (void)b, (void)c, (void)d;
	return r->stop && atomic_load(r->stop);
}

CURLcode gn_http_perform(struct gn_http_request *r, const char *range, const char *version)
{
	struct curl_slist *headers = NULL;
	char line[300];
	CURLcode rc;

	curl_easy_reset(r->curl);
	curl_easy_setopt(r->curl, CURLOPT_URL, r->h->url);
	curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(r->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(r->curl, CURLOPT_REDIR_PROTOCOLS_STR, strncmp(r->h->url, "https:", 6) ? "http,https" : "https");
	curl_easy_setopt(r->curl, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(r->curl, CURLOPT_MAXREDIRS, 5L);
	curl_easy_setopt(r->curl, CURLOPT_CONNECTTIMEOUT, 15L);
	curl_easy_setopt(r->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(r->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_S);
	curl_easy_setopt(r->curl, CURLOPT_USERAGENT, "gannet");
	curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(r->curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(r->curl, CURLOPT_HEADERDATA, r);
	curl_easy_setopt(r->curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(r->curl, CURLOPT_XFERINFOFUNCTION, watch);
	curl_easy_setopt(r->curl, CURLOPT_XFERINFODATA, r);
	if (r->h->token) {
		curl_easy_setopt(r->curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		curl_easy_setopt(r->curl, CURLOPT_XOAUTH2_BEARER, r->h->token);
	}
	if (getenv("SSL_CERT_FILE"))
		curl_easy_setopt(r->curl, CURLOPT_CAINFO, getenv("SSL_CERT_FILE"));
	if (range)
		curl_easy_setopt(r->curl, CURLOPT_RANGE, range);
	if (range && *version) {
		snprintf(line, sizeof line, "If-Range: %s", version);
		headers = curl_slist_append(NULL, line);
		curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, headers);
	}
	r->code = 0;
	rc = curl_easy_perform(r->curl);
	curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &r->code);
	curl_slist_free_all(headers);
	return rc;
}
#endif
