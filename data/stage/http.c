#include "src/config.h"

#include "data/stage/http.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifdef HAVE_LIBCURL
#include <curl/curl.h>

#define SILENCE_S 30L
#define SECRET_MAX_BYTES 65536
#define TRIES 8
#define FIRST_TRIES 4 /* to find the file at all: an address may be wrong */
#define LONGEST_PAUSE_MS 30000

struct gn_http {
	char *url, *name, *token;
	struct gn_log *log;
};

struct request {
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

/* --- one request --- */

static int fail(struct request *r, enum gn_status status)
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
	struct request *r = context;
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
	struct request *r = context;

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
	const struct request *r = context;

	(void)a, (void)b, (void)c, (void)d;
	return r->stop && atomic_load(r->stop);
}

/* Asks once, for a range "BEGIN-END" or (NULL) all, if the file is of that version still ("": any). Passes the body of 200, or of 206 where a
 * range was asked for, to sink; sets code and what follows it, and failed for an answer that does not fit or what sink says. */
static CURLcode perform(struct request *r, const char *range, const char *version)
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

/* --- files with secrets --- */

static enum gn_status read_secret(const char *path, char **out, struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[SECRET_MAX_BYTES + 1];
	enum gn_status status;
	ssize_t n = -1;

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot read %s", path);
	status = gn_trust_check_secret(fd, path, "the file with a secret", err);
	if (!status)
		n = gn_read_some(fd, text, sizeof text);
	close(fd);
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (!status && (n <= 0 || n > SECRET_MAX_BYTES || memchr(text, '\n', (size_t)n) || memchr(text, '\r', (size_t)n) || memchr(text, 0, (size_t)n)))
		status = gn_err_set(err, GN_ERR_USAGE, "%s must have one line", path);
	if (!status && !(*out = strndup(text, (size_t)n)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a token");
	explicit_bzero(text, sizeof text);
	return status;
}

static void free_secret(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

/* --- open --- */

static enum gn_status check_url(const struct gn_http_options *o, struct gn_err *err)
{
	const char *host = strstr(o->url, "://"), *end;

	host = host ? host + 3 : o->url;
	end = host + strcspn(host, "/?#");
	if (!gn_http_is_address(o->url) || end == host)
		return gn_err_set(err, GN_ERR_USAGE, "an address begins with https:// or http:// and a host");
	if (memchr(host, '@', (size_t)(end - host)))
		return gn_err_set(err, GN_ERR_USAGE, "no user or password in an address, where other users of this machine see it: give --token-file");
	if (strchr(o->url, '#') || strpbrk(o->url, " \t\r\n"))
		return gn_err_set(err, GN_ERR_USAGE, "an address has no '#' and no spaces: write %%23 and %%20");
	if (o->token_file && strncmp(o->url, "https://", 8))
		return gn_err_set(err, GN_ERR_USAGE, "--token-file is for https:// only: others could read the token on the network");
	if (o->query_file && strchr(o->url, '?'))
		return gn_err_set(err, GN_ERR_USAGE, "the address has a query already: give all of it by --query-file");
	return GN_OK;
}

static enum gn_status set_url(struct gn_http *h, const struct gn_http_options *o, struct gn_err *err)
{
	char *query = NULL;
	enum gn_status status = o->query_file ? read_secret(o->query_file, &query, err) : GN_OK;

	if (status)
		return status;
	h->name = strndup(o->url, strcspn(o->url, "?"));
	if (!query)
		h->url = strdup(o->url);
	else if (asprintf(&h->url, "%s?%s", o->url, query + (*query == '?')) < 0)
		h->url = NULL;
	free_secret(query);
	if (!o->query_file && strchr(o->url, '?'))
		gn_log_warn(o->log, "other users of this machine see the query of an address on the command line: if it holds a signature, "
			    "give it by --query-file");
	return h->name && h->url ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an address");
}

enum gn_status gn_http_open(const struct gn_http_options *o, struct gn_http **out, struct gn_err *err)
{
	struct gn_http *h;
	enum gn_status status = check_url(o, err);

	if (status)
		return status;
	h = calloc(1, sizeof *h);
	if (!h || curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(h);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for libcurl");
	}
	h->log = o->log;
	status = set_url(h, o, err);
	if (!status && o->token_file)
		status = read_secret(o->token_file, &h->token, err);
	if (status)
		gn_http_close(h);
	else
		*out = h;
	return status;
}

void gn_http_close(struct gn_http *h)
{
	if (!h)
		return;
	free_secret(h->url);
	free_secret(h->token);
	free(h->name);
	free(h);
	curl_global_cleanup();
}

const char *gn_http_name(const struct gn_http *h)
{
	return h->name;
}

/* --- retries --- */

static int is_passing(CURLcode rc, long code)
{
	if (code == 408 || code == 429 || (code >= 500 && code != 501 && code != 505))
		return 1;
	return rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST || rc == CURLE_OPERATION_TIMEDOUT || rc == CURLE_PARTIAL_FILE ||
	       rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR || rc == CURLE_GOT_NOTHING || rc == CURLE_SSL_CONNECT_ERROR ||
	       rc == CURLE_HTTP2 || rc == CURLE_HTTP2_STREAM;
}

static enum gn_status explain(const struct request *r, CURLcode rc, struct gn_err *err)
{
	const char *what = "";

	if (r->code == 401 || r->code == 403)
		what = r->h->token ? ": the token of --token-file is not accepted" : ": it wants --token-file or --query-file, or these have expired";
	if (r->code >= 400)
		return gn_err_set(err, r->code == 404 || r->code == 410 ? GN_ERR_NOT_FOUND : GN_ERR_IO, "%s: the server answered %ld%s", r->h->name, r->code,
				  what);
	if (rc == CURLE_PEER_FAILED_VERIFICATION)
		what = " (SSL_CERT_FILE names the certificates of other authorities)";
	return gn_err_set(err, GN_ERR_IO, "%s: %s%s", r->h->name, curl_easy_strerror(rc), what);
}

static enum gn_status pause_before(struct request *r, CURLcode rc, int attempt, struct gn_err *err)
{
	curl_off_t wanted_s = 0;
	int64_t ms = 500ll << attempt;

	curl_easy_getinfo(r->curl, CURLINFO_RETRY_AFTER, &wanted_s);
	ms = wanted_s * 1000 > ms ? wanted_s * 1000 : ms;
	ms = ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS : ms;
	/* connections that were refused together are not to come back together */
	ms += (int64_t)(gn_clock_ns() / 1000 % (uint64_t)ms);
	explain(r, rc, err);
	gn_log_info(r->h->log, "%s; again in %.1f s", err->text, (double)ms * 1e-3);
	for (; ms > 0; ms -= 50) {
		if (r->stop && atomic_load(r->stop))
			return gn_err_set(err, GN_ERR_STOPPED, "%s: stopped", r->h->name);
		gn_clock_sleep_ns(50000000);
	}
	return GN_OK;
}

static enum gn_status look(struct request *r, struct gn_http_file *out, struct gn_err *err)
{
	curl_off_t length = -1;

	if (r->code == 206 && r->total) {
		*out = (struct gn_http_file){.size = r->total, .has_ranges = 1};
	} else if (r->code == 200 && !curl_easy_getinfo(r->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) && length >= 0) {
		*out = (struct gn_http_file){.size = (uint64_t)length};
	} else {
		return gn_err_set(err, GN_ERR_DATA, "%s: the server does not say how long the file is", r->h->name);
	}
	out->modified_s = (int64_t)curl_getdate(r->modified, NULL);
	out->modified_s = out->modified_s < 0 ? 0 : out->modified_s;
	/* a weak tag promises equal meaning, not equal bytes */
	snprintf(out->version, sizeof out->version, "%s", r->etag[0] && !r->is_weak ? r->etag : r->modified);
	return GN_OK;
}

enum gn_status gn_http_look(struct gn_http *h, struct gn_http_file *out, struct gn_err *err)
{
	struct request r = {.h = h, .curl = curl_easy_init()};
	enum gn_status status = r.curl ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for libcurl");

	for (int attempt = 0; !status; attempt++) {
		CURLcode rc = perform(&r, "0-0", "");

		if (r.code == 200 || r.code == 206) {
			status = look(&r, out, err);
			break;
		}
		status = is_passing(rc, r.code) && attempt + 1 < FIRST_TRIES ? pause_before(&r, rc, attempt, err) : explain(&r, rc, err);
	}
	curl_easy_cleanup(r.curl);
	return status;
}

/* A request for what is still missing. *done: nothing is. */
static enum gn_status read_more(struct request *r, const struct gn_http_file *file, int *attempt, struct gn_err *err)
{
	uint64_t before = r->furthest;
	char range[64];
	CURLcode rc;

	snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->at, (unsigned long long)r->end - 1);
	rc = perform(r, r->ranged ? range : NULL, file->version);
	if (r->failed) {
		*err = r->failure;
		return r->failed;
	}
	if (r->stop && atomic_load(r->stop))
		return gn_err_set(err, GN_ERR_STOPPED, "%s: stopped", r->h->name);
	if ((r->ranged && r->code == 200) || r->code == 412 || r->code == 416 || (r->code == 206 && r->total && r->total != file->size))
		return gn_err_set(err, GN_ERR_DATA, "%s has changed on the server since the copy was begun: start it again", r->h->name);
	if (r->at == r->end)
		return GN_OK;
	*attempt = r->at > before ? 0 : *attempt + 1;
	r->furthest = r->at > before ? r->at : before;
	if (rc == CURLE_OK && (r->code == 200 || r->code == 206))
		rc = CURLE_PARTIAL_FILE;
	if (*attempt >= TRIES || !is_passing(rc, r->code))
		return explain(r, rc, err);
	if (!r->ranged)
		r->at = 0;
	return pause_before(r, rc, *attempt, err);
}

enum gn_status gn_http_read(struct gn_http *h, const struct gn_http_file *file, uint64_t begin, uint64_t end, gn_http_sink *sink, void *context,
			    const atomic_int *stop, struct gn_err *err)
{
	struct request r = {.h = h, .curl = curl_easy_init(), .at = begin, .end = end, .furthest = begin, .ranged = file->has_ranges, .sink = sink,
			    .context = context, .stop = stop};
	enum gn_status status = r.curl ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for libcurl");
	int attempt = 0;

	while (!status && r.at < r.end)
		status = read_more(&r, file, &attempt, err);
	curl_easy_cleanup(r.curl);
	return status;
}

#else

enum gn_status gn_http_open(const struct gn_http_options *o, struct gn_http **out, struct gn_err *err)
{
	(void)o, (void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build cannot read from web servers: it was configured without libcurl");
}

void gn_http_close(struct gn_http *h)
{
	(void)h;
}

const char *gn_http_name(const struct gn_http *h)
{
	(void)h;
	return "";
}

enum gn_status gn_http_look(struct gn_http *h, struct gn_http_file *out, struct gn_err *err)
{
	(void)h, (void)out;
	return err->status;
}

enum gn_status gn_http_read(struct gn_http *h, const struct gn_http_file *file, uint64_t begin, uint64_t end, gn_http_sink *sink, void *context,
			    const atomic_int *stop, struct gn_err *err)
{
	(void)h, (void)file, (void)begin, (void)end, (void)sink, (void)context, (void)stop;
	return err->status;
}

#endif
