#include "data/stage/relay_internal.h"

#include "src/base/strbuf.h"
#include "src/base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define NS_PER_S 1000000000u

struct gn_relay_source {
	const char *from;
	const struct gn_http_options *http;
	pthread_mutex_t mutex; /* of what follows */
	struct gn_http *server; /* once it was asked */
	struct gn_http_file file;
	struct gn_err unreached; /* why it did not answer: the next chunk is not to wait for that, too */
	/* without ranges: a thread that writes the file into the target */
	struct gn_tree_target *target;
	pthread_t thread;
	pthread_cond_t more;
	uint64_t written; /* bytes from the begin on */
	int started, ended;
	struct gn_err failure;
	atomic_int stop;
};

enum gn_status gn_relay_source_create(const char *from, const struct gn_http_options *http, struct gn_relay_source **out, struct gn_err *err)
{
	struct gn_relay_source *s = calloc(1, sizeof *s);

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", from);
	s->from = from;
	s->http = http;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->more, NULL);
	*out = s;
	return GN_OK;
}

void gn_relay_source_stop(struct gn_relay_source *s)
{
	atomic_store(&s->stop, 1);
}

void gn_relay_source_destroy(struct gn_relay_source *s)
{
	if (!s)
		return;
	atomic_store(&s->stop, 1);
	if (s->started)
		pthread_join(s->thread, NULL);
	gn_http_close(s->server);
	pthread_cond_destroy(&s->more);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

/* --- what the server has --- */

/* The same number for the same version, other than those of most others; a server that tells no version has a new one each time. */
static int64_t version_ns(const struct gn_http_file *file)
{
	char hex[GN_SHA256_HEX] = "0";
	struct timespec now;

	if (!file->version[0]) {
		clock_gettime(CLOCK_REALTIME, &now);
		return now.tv_nsec;
	}
	gn_sha256_buffer(file->version, strlen(file->version), hex, NULL);
	hex[8] = '\0';
	return (int64_t)(strtoul(hex, NULL, 16) % NS_PER_S);
}

/* Asks the server once. The mutex is held. */
static enum gn_status look(struct gn_relay_source *s, struct gn_err *err)
{
	struct gn_http *server;
	enum gn_status status;

	if (s->server)
		return GN_OK;
	if (s->unreached.status) {
		*err = s->unreached;
		return err->status;
	}
	status = gn_http_open(s->http, &server, err);
	if (!status) {
		status = gn_http_look(server, &s->file, err);
		if (status)
			gn_http_close(server);
		else
			s->server = server;
	}
	if (status)
		s->unreached = *err;
	return status;
}

static enum gn_status list_file(struct gn_relay_source *s, struct gn_tree *out, struct gn_err *err)
{
	mode_t mask = umask(0);
	const struct gn_tree_extent all = {0, s->file.size};
	const struct gn_tree_record r = {.size_bytes = s->file.size, .mtime_s = s->file.modified_s, .mtime_ns = version_ns(&s->file),
					 .mode = S_IFREG | (0666 & ~mask), .links_to = GN_TREE_NO_LINK, .path_bytes = 1, .target_bytes = 1,
					 .extent_count = s->file.size > 0};
	struct gn_strbuf block = {0};

	umask(mask);
	gn_strbuf_append(&block, (const char *)&r, sizeof r);
	gn_strbuf_append(&block, "\0", 2); /* path and target */
	if (s->file.size)
		gn_strbuf_append(&block, (const char *)&all, sizeof all);
	if (gn_strbuf_failed(&block)) {
		gn_strbuf_release(&block);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the listing of %s", gn_http_name(s->server));
	}
	return gn_tree_take(block.text, block.len, out, err);
}

enum gn_status gn_relay_source_list(struct gn_relay_source *s, struct gn_log *log, struct gn_tree *out, int *everywhere, struct gn_err *err)
{
	enum gn_status status;

	*everywhere = 1;
	if (!s->http)
		return gn_tree_scan(s->from, 1, log, out, err);
	pthread_mutex_lock(&s->mutex);
	status = look(s, err);
	if (!status)
		status = list_file(s, out, err);
	*everywhere = s->file.has_ranges;
	pthread_mutex_unlock(&s->mutex);
	return status;
}

/* --- without ranges --- */

/* Bytes that come again after a connection broke off must be those that came before, which other nodes may have. */
static enum gn_status take_stream(void *context, const void *data, size_t len_bytes, uint64_t offset, struct gn_err *err)
{
	struct gn_relay_source *s = context;
	size_t again = offset < s->written ? (size_t)(s->written - offset) : 0;
	unsigned char *before;
	enum gn_status status = GN_OK;

	again = again < len_bytes ? again : len_bytes;
	if (again) {
		before = malloc(again);
		status = before ? gn_tree_target_read_at(s->target, offset, before, again, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read again");
		if (!status && memcmp(before, data, again))
			status = gn_err_set(err, GN_ERR_DATA, "%s has changed on the server since the copy was begun: start it again", gn_http_name(s->server));
		free(before);
	}
	if (!status && again < len_bytes)
		status = gn_tree_target_write_at(s->target, offset + again, (const char *)data + again, len_bytes - again, err);
	pthread_mutex_lock(&s->mutex);
	if (!status && offset + len_bytes > s->written)
		s->written = offset + len_bytes;
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->mutex);
	return status;
}

static void *stream(void *argument)
{
	struct gn_relay_source *s = argument;
	struct gn_err err = {0};

	gn_http_read(s->server, &s->file, 0, s->file.size, take_stream, s, &s->stop, &err);
	pthread_mutex_lock(&s->mutex);
	s->ended = 1;
	s->failure = err;
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

/* Waits until the bytes before `end` are in the target. The mutex is held. */
static enum gn_status wait_for_stream(struct gn_relay_source *s, struct gn_tree_target *target, uint64_t end, struct gn_err *err)
{
	if (!s->started) {
		s->target = target;
		if (gn_thread_start(&s->thread, stream, s))
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread");
		s->started = 1;
	}
	while (s->written < end && !s->ended)
		pthread_cond_wait(&s->more, &s->mutex);
	if (s->written >= end)
		return GN_OK;
	*err = s->failure;
	return err->status;
}

/* --- chunks --- */

struct range {
	unsigned char *data;
	uint64_t begin;
};

static enum gn_status take_range(void *context, const void *data, size_t len_bytes, uint64_t offset, struct gn_err *err)
{
	const struct range *r = context;

	(void)err;
	memcpy(r->data + (offset - r->begin), data, len_bytes);
	return GN_OK;
}

static enum gn_status check_version(const struct gn_relay_source *s, const struct gn_tree *tree, struct gn_err *err)
{
	const struct gn_tree_entry *e = &tree->entries[0];

	if (s->file.size == e->size_bytes && (!s->file.version[0] || version_ns(&s->file) == e->mtime_ns))
		return GN_OK;
	return gn_err_set(err, GN_ERR_DATA, "%s: the server sends this node another version of the file than rank 0", gn_http_name(s->server));
}

enum gn_status gn_relay_source_read(struct gn_relay_source *s, const struct gn_tree *tree, struct gn_tree_target *target, uint32_t chunk,
				    void *data, struct gn_err *err)
{
	uint64_t begin = (uint64_t)chunk * tree->chunk_bytes, end = begin + gn_tree_chunk_len(tree, chunk);
	struct range to = {data, begin};
	enum gn_status status;

	if (!s->http)
		return gn_tree_chunk_read(tree, s->from, chunk, data, err);
	pthread_mutex_lock(&s->mutex);
	status = look(s, err);
	if (!status)
		status = check_version(s, tree, err);
	if (!status && !s->file.has_ranges)
		status = wait_for_stream(s, target, end, err);
	pthread_mutex_unlock(&s->mutex);
	if (status)
		return status;
	if (!s->file.has_ranges)
		return gn_tree_target_read_at(target, begin, data, (size_t)(end - begin), err);
	return gn_http_read(s->server, &s->file, begin, end, take_range, &to, &s->stop, err);
}
