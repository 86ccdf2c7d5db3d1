#include "data/stage/fetch.h"

#include "data/stage/stage_marker.h"
#include "data/stage/staged.h"
#include "data/stage/tree.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/base/strbuf.h"
#include "src/base/thread.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES ((uint64_t)8 << 20)
#define STATE_MAX_BYTES ((size_t)64 << 20)

struct fetch {
	const struct gn_fetch_options *o;
	struct gn_http *http;
	struct gn_http_file file;
	char part[PATH_MAX], state[PATH_MAX], marker[PATH_MAX];
	int fd;
	int waited; /* for a process that made TO, or gave up */
	uint64_t chunks, next; /* next: under lock, as what follows */
	unsigned char *done;   /* [chunks] */
	pthread_mutex_t lock;
	atomic_int stop;
	enum gn_status failed;
	struct gn_err failure;
};

/* --- the state of an earlier run --- */

/* The first line: what all later ones are of. The address itself stays out of files. */
static void head_of(const struct fetch *f, char *out, size_t size)
{
	char hex[GN_SHA256_HEX] = "";

	gn_sha256_buffer(gn_http_name(f->http), strlen(gn_http_name(f->http)), hex, NULL);
	snprintf(out, size, "gannet-fetch 1 %s %llu %llu %s\n", hex, (unsigned long long)f->file.size, (unsigned long long)CHUNK_BYTES,
		 f->file.version);
}

static enum gn_status save_state(struct fetch *f, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	char head[512];
	enum gn_status status;

	/* the state must not say more than the disk holds */
	if (fdatasync(f->fd))
		return gn_err_errno(err, errno, "cannot write %s", f->part);
	head_of(f, head, sizeof head);
	gn_strbuf_puts(&text, head);
	for (uint64_t i = 0; i < f->chunks; i++)
		gn_strbuf_append(&text, f->done[i] ? "1" : "0", 1);
	status = gn_file_replace_text(f->state, &text, GN_REPLACE_UNSYNCED, err);
	gn_strbuf_release(&text);
	return status;
}

static uint64_t chunk_bytes(const struct fetch *f, uint64_t chunk)
{
	uint64_t rest = f->file.size - chunk * CHUNK_BYTES;

	return rest < CHUNK_BYTES ? rest : CHUNK_BYTES;
}

/* Takes over what an earlier run has of the same version; returns its bytes. */
static uint64_t load_state(struct fetch *f)
{
	char head[512], *text = NULL;
	size_t len, begin;
	uint64_t kept = 0;
	struct stat info, part;

	head_of(f, head, sizeof head);
	begin = strlen(head);
	/* a state whose part was removed says nothing of a new one, which is empty */
	if (fstat(f->fd, &part) || (uint64_t)part.st_size != f->file.size)
		return 0;
	/* without a version nobody knows whether the file is the same; without ranges nothing can be continued */
	if (!f->file.has_ranges || !f->file.version[0] || lstat(f->state, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
	    gn_file_load(f->state, STATE_MAX_BYTES, &text, &len, NULL))
		return 0;
	if (strncmp(text, head, begin) || len != begin + f->chunks) {
		gn_log_info(f->o->from.log, "%s has changed since the last run: its copy begins anew", gn_http_name(f->http));
	} else {
		for (uint64_t i = 0; i < f->chunks; i++) {
			f->done[i] = text[begin + i] == '1';
			kept += f->done[i] ? chunk_bytes(f, i) : 0;
		}
	}
	free(text);
	return kept;
}

/* --- the part file --- */

/* Opens it, and locks it. */
static enum gn_status open_part(struct fetch *f, struct gn_err *err)
{
	const char *slash = strrchr(f->o->to, '/');
	char parent[PATH_MAX];
	enum gn_status status;

	if (snprintf(f->part, sizeof f->part, "%s" GN_STAGE_FETCH_ENDING, f->o->to) >= PATH_MAX - 16 || !*f->o->to || (slash && !slash[1]))
		return gn_err_set(err, GN_ERR_USAGE, "--to \"%s\" names no file", f->o->to);
	snprintf(f->state, sizeof f->state, "%.*s.state", PATH_MAX - 8, f->part);
	snprintf(f->marker, sizeof f->marker, "%.*s" GN_STAGE_MARKER_NAME, PATH_MAX - 16, f->o->to);
	gn_path_parent(f->o->to, parent);
	status = gn_trust_check_path(f->o->to, err);
	if (!status)
		status = gn_make_dirs(parent, err);
	if (status)
		return status;
	return gn_stage_lock(f->part, f->o->to, 1, f->o->from.log, &f->fd, &f->waited, err);
}

static enum gn_status has_digest(const char *path, const char *sha256, int *same, struct gn_err *err)
{
	char hex[GN_SHA256_HEX];
	uint64_t size;
	enum gn_status status = gn_sha256_file(path, hex, &size, err);

	*same = !status && !strcasecmp(hex, sha256);
	return status;
}

/* Whether TO is there already, which --sha256 tells, or that this process waited for the one that made it. Anything else of that name is
 * not replaced. */
static enum gn_status check_target(struct fetch *f, int *is_there, struct gn_err *err)
{
	struct stat info;

	if (lstat(f->o->to, &info))
		return errno == ENOENT ? GN_OK : gn_err_errno(err, errno, "cannot look at %s", f->o->to);
	if (!S_ISREG(info.st_mode) || info.st_uid != geteuid())
		return gn_err_set(err, GN_ERR_EXISTS, "%s is there, and is no file of this user: choose another --to", f->o->to);
	if ((uint64_t)info.st_size == f->file.size && f->o->sha256) {
		enum gn_status status = has_digest(f->o->to, f->o->sha256, is_there, err);

		if (status || *is_there)
			return status;
	}
	if ((uint64_t)info.st_size == f->file.size && !f->o->sha256 && f->waited) {
		*is_there = 1;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_EXISTS, "%s is there%s: remove it, or choose another --to", f->o->to,
			  f->o->sha256 ? ", with another SHA-256" : "; --sha256 would tell whether it is the same");
}

/* --- reading --- */

static enum gn_status take(void *context, const void *data, size_t len_bytes, uint64_t offset, struct gn_err *err)
{
	struct fetch *f = context;

	gn_progress_bar_add(f->o->progress, len_bytes);
	return gn_pwrite_full(f->fd, data, len_bytes, offset, f->part, err);
}

static int next_chunk(struct fetch *f, uint64_t *out)
{
	int found = 0;

	pthread_mutex_lock(&f->lock);
	while (f->next < f->chunks && f->done[f->next])
		f->next++;
	if (f->next < f->chunks && !f->failed) {
		*out = f->next++;
		found = 1;
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

static void *read_chunks(void *argument)
{
	struct fetch *f = argument;
	struct gn_err err;
	uint64_t chunk;

	while (next_chunk(f, &chunk)) {
		uint64_t begin = chunk * CHUNK_BYTES;
		enum gn_status status = gn_http_read(f->http, &f->file, begin, begin + chunk_bytes(f, chunk), take, f, &f->stop, &err);

		pthread_mutex_lock(&f->lock);
		f->done[chunk] = !status;
		if (!status)
			status = save_state(f, &err);
		if (status && !f->failed) {
			f->failed = status;
			f->failure = err;
			atomic_store(&f->stop, 1);
		}
		pthread_mutex_unlock(&f->lock);
	}
	return NULL;
}

static enum gn_status read_all(struct fetch *f, struct gn_err *err)
{
	int threads = f->o->threads, started = 0;
	pthread_t *ids;

	if (!f->file.has_ranges)
		return f->file.size ? gn_http_read(f->http, &f->file, 0, f->file.size, take, f, &f->stop, err) : GN_OK;
	if ((uint64_t)threads > f->chunks)
		threads = (int)f->chunks;
	ids = calloc((size_t)threads + 1, sizeof *ids);
	while (ids && started < threads && !gn_thread_start(&ids[started], read_chunks, f))
		started++;
	for (int i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	free(ids);
	if (f->failed)
		*err = f->failure;
	else if (!started && f->chunks)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d threads", threads);
	return f->failed;
}

/* For gannet stage --list and --remove: the file was staged, and is used now. */
static enum gn_status save_marker(const struct fetch *f, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	struct gn_tree file;
	enum gn_status status = gn_tree_scan(f->o->to, 0, NULL, &file, err);

	if (status)
		return status;
	gn_strbuf_puts(&text, "gannet-stage-file 1\n");
	gn_stage_marker_root(f->o->to, file.identity, &text);
	status = gn_file_replace_text(f->marker, &text, GN_REPLACE_SYNCED, err);
	gn_strbuf_release(&text);
	gn_tree_release(&file);
	return status;
}

static enum gn_status finish(struct fetch *f, struct gn_err *err)
{
	mode_t mask = umask(0);
	enum gn_status status = GN_OK;
	int same = 1;

	umask(mask);
	if (f->o->sha256)
		status = has_digest(f->part, f->o->sha256, &same, err);
	if (!status && !same) {
		unlink(f->state);
		unlink(f->part);
		return gn_err_set(err, GN_ERR_DATA, "%s does not have the SHA-256 of --sha256: it was damaged, or is another file; nothing is kept",
				  gn_http_name(f->http));
	}
	/* before the part gets another name: a state is never without its part */
	if (!status && (fchmod(f->fd, 0666 & ~mask) || fsync(f->fd) || (unlink(f->state) && errno != ENOENT) || rename(f->part, f->o->to)))
		status = gn_err_errno(err, errno, "cannot finish %s", f->o->to);
	if (!status)
		status = gn_sync_parent(f->o->to, err);
	return status ? status : save_marker(f, err);
}

/* --- all of it --- */

static enum gn_status prepare(struct fetch *f, struct gn_fetch_result *out, struct gn_err *err)
{
	uint64_t room = 0;
	enum gn_status status;

	out->bytes = f->file.size;
	f->chunks = (f->file.size + CHUNK_BYTES - 1) / CHUNK_BYTES;
	f->done = calloc(f->chunks + 1, 1);
	if (!f->done)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the state of a copy");
	out->kept_bytes = load_state(f);
	status = gn_staged_make_room(f->o->to, f->file.size, f->o->quota_bytes, f->o->from.log, err);
	if (!status)
		status = gn_free_bytes(f->part, &room, err);
	if (!status && !out->kept_bytes && ftruncate(f->fd, 0))
		status = gn_err_errno(err, errno, "cannot write %s", f->part);
	if (!status && room < f->file.size - out->kept_bytes)
		status = gn_err_set(err, GN_ERR_NO_SPACE, "%s takes %.1f GB, and %.1f GB are free for %s", gn_http_name(f->http),
				    (double)(f->file.size - out->kept_bytes) * 1e-9, (double)room * 1e-9, f->o->to);
	if (!status && ftruncate(f->fd, (off_t)f->file.size))
		status = gn_err_errno(err, errno, "cannot write %s", f->part);
	return status;
}

static enum gn_status copy(struct fetch *f, struct gn_fetch_result *out, struct gn_err *err)
{
	enum gn_status status = check_target(f, &out->was_there, err);

	if (!status && out->was_there) {
		unlink(f->state);
		unlink(f->part);
		/* not where another program has put the same file */
		if (gn_stage_marker_is_of(f->marker, f->o->to))
			utimensat(AT_FDCWD, f->marker, NULL, AT_SYMLINK_NOFOLLOW);
	}
	if (!status && out->was_there)
		return gn_staged_make_room(f->o->to, f->file.size, f->o->quota_bytes, f->o->from.log, err);
	if (!status)
		status = prepare(f, out, err);
	if (status)
		return status;
	gn_progress_bar_begin(f->o->progress, "copying", "B", f->file.size - out->kept_bytes);
	status = read_all(f, err);
	gn_progress_bar_end(f->o->progress);
	return status ? status : finish(f, err);
}

enum gn_status gn_fetch(const struct gn_fetch_options *o, struct gn_fetch_result *out, struct gn_err *err)
{
	struct fetch f = {.o = o, .fd = -1};
	double began = gn_clock_s();
	enum gn_status status = gn_http_open(&o->from, &f.http, err);

	*out = (struct gn_fetch_result){0};
	if (status)
		return status;
	pthread_mutex_init(&f.lock, NULL);
	status = gn_http_look(f.http, &f.file, err);
	if (!status)
		status = open_part(&f, err);
	if (!status)
		status = copy(&f, out, err);
	out->seconds = gn_clock_s() - began;
	if (f.fd >= 0)
		close(f.fd);
	free(f.done);
	pthread_mutex_destroy(&f.lock);
	gn_http_close(f.http);
	return status;
}
