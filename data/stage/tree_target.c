#include "data/stage/tree_target_internal.h"

#include "data/stage/stage_owner.h"
#include "src/base/file.h"
#include "src/base/strbuf.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define HEAD "gannet-stage-tree 1 %s\n"
#define MARKER_MAX_BYTES ((size_t)1 << 30)
/* chunk, digest, line feed: a line that was cut by a death does not match */
#define JOURNAL_LINE "%010u %s\n"
#define JOURNAL_LINE_BYTES (10 + 1 + 64 + 1)

static enum gn_status name_paths(struct gn_tree_target *t, const char *to, char *lock, struct gn_err *err)
{
	size_t len = strlen(to);

	while (len > 1 && to[len - 1] == '/')
		len--;
	if (len + sizeof "/.gannet-stage.lock" + 8 > PATH_MAX || !len || (len == 1 && *to == '/'))
		return gn_err_set(err, GN_ERR_USAGE, "--to \"%s\" names no place for a copy", to);
	snprintf(t->to, sizeof t->to, "%.*s", (int)len, to);
	snprintf(t->part, sizeof t->part, "%.*s.gannet-part", (int)len, to);
	snprintf(t->root, sizeof t->root, "%.*s.gannet-part/tree", (int)len, to);
	snprintf(t->old, sizeof t->old, "%.*s.gannet-part/old", (int)len, to);
	snprintf(t->marker, sizeof t->marker, "%.*s.gannet-stage", (int)len, to);
	snprintf(lock, PATH_MAX, "%.*s.gannet-stage.lock", (int)len, to);
	return GN_OK;
}

static enum gn_status take_lock(struct gn_tree_target *t, const char *path, int wait, struct gn_err *err)
{
	struct stat info;
	int result;

	t->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (t->lock < 0)
		return gn_err_errno(err, errno, "cannot open the lock %s", path);
	if (fstat(t->lock, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() || fchmod(t->lock, 0600))
		return gn_err_set(err, GN_ERR_IO, "the lock %s does not belong to this user: remove it", path);
	result = flock(t->lock, LOCK_EX | LOCK_NB);
	if (result && errno == EWOULDBLOCK && !wait)
		return gn_err_set(err, GN_ERR_EXISTS, "another gannet stage copies to %s: on a file system that nodes share stage once, "
				  "without a launcher, else wait for the other", t->to);
	if (result && errno == EWOULDBLOCK)
		gn_log_info(t->log, "waiting for another gannet stage that copies to %s", t->to);
	while (result && (errno == EINTR || errno == EWOULDBLOCK))
		result = flock(t->lock, LOCK_EX);
	return result ? gn_err_errno(err, errno, "cannot lock %s", path) : GN_OK;
}

/* Before anything is made: the parent, and that from is not above to. */
static enum gn_status prepare_parent(struct gn_tree_target *t, const char *from, struct gn_err *err)
{
	const char *slash = strrchr(t->to, '/');
	char parent[PATH_MAX] = ".", source[PATH_MAX], real[PATH_MAX];
	size_t len;
	enum gn_status status = gn_trust_check_path(t->to, err);

	if (slash)
		snprintf(parent, sizeof parent, "%.*s", slash == t->to ? 1 : (int)(slash - t->to), t->to);
	if (!status)
		status = gn_make_dirs(parent, err);
	if (!status)
		status = gn_trust_check_path(t->to, err);
	if (status)
		return status;
	/* a node without the source gets all from the others */
	if (!realpath(from, source))
		return GN_OK;
	if (!realpath(parent, real))
		return gn_err_errno(err, errno, "cannot resolve %s", parent);
	len = strlen(source);
	if (!strncmp(real, source, len) && (!real[len] || real[len] == '/'))
		return gn_err_set(err, GN_ERR_USAGE, "--to %s is inside of --from %s", t->to, from);
	if (realpath(t->to, real) && !strcmp(real, source))
		return gn_err_set(err, GN_ERR_USAGE, "--from and --to are the same, %s", t->to);
	return GN_OK;
}

/* The digests of marker or journal, if it is of this listing and only this user can have written it. Lines may be of any chunk. */
static int load_digests(struct gn_tree_target *t, const char *path)
{
	char head[128], digest[GN_SHA256_HEX], *text, *line;
	unsigned chunk;
	size_t len;
	int same;

	if (!gn_stage_is_own_path(path) || gn_file_load(path, MARKER_MAX_BYTES, &text, &len, NULL))
		return 0;
	snprintf(head, sizeof head, HEAD, t->tree->layout);
	same = !strncmp(text, head, strlen(head));
	for (line = text + strlen(head); same && line + JOURNAL_LINE_BYTES <= text + len; line += JOURNAL_LINE_BYTES)
		if (line[JOURNAL_LINE_BYTES - 1] == '\n' && sscanf(line, "%10u %64[0-9a-f]", &chunk, digest) == 2 &&
		    chunk < t->tree->chunks && strlen(digest) == 64)
			memcpy(t->digests[chunk], digest, sizeof digest);
	free(text);
	return same;
}

/* Verifies chunks that are said to be there; returns how many are not. */
static uint32_t verify(struct gn_tree_target *t)
{
	uint32_t wrong = 0;
	void *data = malloc(GN_TREE_CHUNK_BYTES);

	for (uint32_t c = 0; c < t->tree->chunks; c++) {
		if (data && t->digests[c][0] && !gn_tree_target_get(t, c, data, NULL))
			continue;
		t->digests[c][0] = '\0';
		wrong++;
	}
	free(data);
	return wrong;
}

/* Whether TO is the tree, unchanged since it was staged. */
static int is_complete(struct gn_tree_target *t, int check)
{
	char root[PATH_MAX];
	struct gn_tree there;
	int same = load_digests(t, t->marker) && !gn_tree_scan(t->to, 0, NULL, &there, NULL);

	if (same) {
		same = !strcmp(there.identity, t->tree->identity);
		gn_tree_release(&there);
	}
	for (uint32_t c = 0; same && c < t->tree->chunks; c++)
		same = t->digests[c][0] != '\0';
	if (same) {
		memcpy(root, t->root, sizeof root);
		memcpy(t->root, t->to, sizeof t->root);
		same = !check || !verify(t);
		if (!same)
			memcpy(t->root, root, sizeof root);
	}
	if (!same)
		memset(t->digests, 0, (size_t)t->tree->chunks * sizeof *t->digests);
	return same;
}

/* TO may be missing, an empty folder, or an earlier copy. */
static enum gn_status check_replaceable(struct gn_tree_target *t, struct gn_err *err)
{
	struct stat info;

	if (lstat(t->to, &info))
		return errno == ENOENT ? GN_OK : gn_err_errno(err, errno, "cannot stat %s", t->to);
	if (info.st_uid != geteuid())
		return gn_err_set(err, GN_ERR_EXISTS, "%s belongs to user %u: choose another place", t->to, (unsigned)info.st_uid);
	if (gn_stage_is_own_path(t->marker) || (S_ISDIR(info.st_mode) && !rmdir(t->to))) {
		t->replaces = !lstat(t->to, &info);
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_EXISTS, "%s exists, and was not staged from --from: remove it, or choose another place", t->to);
}

static enum gn_status make_part(struct gn_tree_target *t, struct gn_err *err)
{
	struct stat info;

	if (mkdir(t->part, 0700) && errno != EEXIST)
		return gn_err_errno(err, errno, "cannot create the folder %s", t->part);
	if (lstat(t->part, &info) || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
		return gn_err_set(err, GN_ERR_IO, "%s is not a folder that only this user can open: remove it", t->part);
	return GN_OK;
}

static enum gn_status check_space(struct gn_tree_target *t, struct gn_err *err)
{
	uint64_t needed = 0, free_bytes;
	enum gn_status status = gn_free_bytes(t->part, &free_bytes, err);

	for (uint32_t c = 0; c < t->tree->chunks; c++)
		needed += t->digests[c][0] ? 0 : gn_tree_chunk_len(t->tree, c);
	if (!status && needed > free_bytes)
		status = gn_err_set(err, GN_ERR_NO_SPACE, "no space left for %s: %llu MB needed, %llu MB are free", t->to,
				    (unsigned long long)(needed >> 20), (unsigned long long)(free_bytes >> 20));
	return status;
}

/* Keeps what a run of the same listing left, removes anything else. */
static enum gn_status open_part(struct gn_tree_target *t, struct gn_err *err)
{
	char path[PATH_MAX + 16], head[128];
	enum gn_status status = make_part(t, err);
	int known;

	if (status)
		return status;
	snprintf(path, sizeof path, "%s/journal", t->part);
	known = load_digests(t, path);
	if (!known) {
		status = gn_remove_tree(t->part, err);
		if (!status)
			status = make_part(t, err);
	}
	if (!status && known) {
		verify(t);
		status = gn_remove_tree(t->old, err);
	}
	if (!status)
		status = check_space(t, err);
	if (!status)
		status = gn_tree_make(t, err);
	if (status)
		return status;
	/* rewritten, so that it has whole lines of chunks that are right */
	t->journal = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (t->journal < 0)
		return gn_err_errno(err, errno, "cannot create %s", path);
	snprintf(head, sizeof head, HEAD, t->tree->layout);
	status = gn_write_full(t->journal, head, strlen(head), path, err);
	for (uint32_t c = 0; c < t->tree->chunks && !status; c++) {
		snprintf(head, sizeof head, JOURNAL_LINE, c, t->digests[c]);
		if (t->digests[c][0])
			status = gn_write_full(t->journal, head, strlen(head), path, err);
	}
	return status;
}

enum gn_status gn_tree_target_create(const struct gn_tree_target_options *options, const struct gn_tree *tree, struct gn_tree_target **out,
				     struct gn_err *err)
{
	struct gn_tree_target *t = calloc(1, sizeof *t);
	char lock[PATH_MAX];
	enum gn_status status = GN_OK;

	if (!t || !(t->digests = calloc((size_t)tree->chunks + 1, sizeof *t->digests))) {
		free(t);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u chunks", tree->chunks);
	}
	t->tree = tree;
	t->log = options->log;
	t->lock = t->journal = -1;
	pthread_mutex_init(&t->mutex, NULL);
	status = name_paths(t, options->to, lock, err);
	if (!status)
		status = prepare_parent(t, options->from, err);
	if (!status)
		status = check_replaceable(t, err);
	if (!status)
		status = take_lock(t, lock, options->wait, err);
	/* again: another process may have made it meanwhile */
	if (!status)
		status = check_replaceable(t, err);
	if (!status && is_complete(t, options->check))
		t->was_complete = 1;
	else if (!status)
		status = open_part(t, err);
	if (status)
		gn_tree_target_destroy(t);
	else
		*out = t;
	return status;
}

void gn_tree_target_destroy(struct gn_tree_target *t)
{
	if (!t)
		return;
	if (t->journal >= 0)
		close(t->journal);
	if (t->lock >= 0)
		close(t->lock);
	pthread_mutex_destroy(&t->mutex);
	free(t->digests);
	free(t);
}

int gn_tree_target_has(struct gn_tree_target *t, uint32_t chunk)
{
	int has;

	pthread_mutex_lock(&t->mutex);
	has = t->digests[chunk][0] != '\0';
	pthread_mutex_unlock(&t->mutex);
	return has;
}

struct writer {
	const struct gn_tree_target *t;
	const unsigned char *data;
};

static enum gn_status write_piece(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len, struct gn_err *err)
{
	const struct writer *w = context;
	char path[PATH_MAX];
	enum gn_status status;
	int fd;

	if ((size_t)snprintf(path, sizeof path, "%s%s", w->t->root, e->path) >= sizeof path)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s%s", w->t->root, e->path);
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	status = gn_pwrite_full(fd, w->data + at, len, offset, path, err);
	if (close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", path);
	return status;
}

enum gn_status gn_tree_target_put(struct gn_tree_target *t, uint32_t chunk, const void *data, const char *digest, struct gn_err *err)
{
	struct writer w = {t, data};
	char line[128];
	enum gn_status status = gn_tree_chunk_pieces(t->tree, chunk, write_piece, &w, err);

	if (status)
		return status;
	snprintf(line, sizeof line, JOURNAL_LINE, chunk, digest);
	pthread_mutex_lock(&t->mutex);
	status = gn_write_full(t->journal, line, strlen(line), t->part, err);
	if (!status)
		memcpy(t->digests[chunk], digest, GN_SHA256_HEX);
	pthread_mutex_unlock(&t->mutex);
	return status;
}

/* Times of files in the making are not the listing's. */
static enum gn_status read_piece(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len, struct gn_err *err)
{
	const struct writer *w = context;
	char path[PATH_MAX];
	enum gn_status status;
	int fd;

	if ((size_t)snprintf(path, sizeof path, "%s%s", w->t->root, e->path) >= sizeof path)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s%s", w->t->root, e->path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	status = gn_pread_full(fd, (unsigned char *)(uintptr_t)w->data + at, len, offset, path, err);
	close(fd);
	return status;
}

enum gn_status gn_tree_target_get(struct gn_tree_target *t, uint32_t chunk, void *data, struct gn_err *err)
{
	struct writer w = {t, data};
	char digest[GN_SHA256_HEX];
	enum gn_status status = gn_tree_chunk_pieces(t->tree, chunk, read_piece, &w, err);

	if (!status)
		status = gn_sha256_buffer(data, gn_tree_chunk_len(t->tree, chunk), digest, err);
	if (!status && strcmp(digest, t->digests[chunk]))
		status = gn_err_set(err, GN_ERR_DATA, "chunk %u of %s fails its digest: stage again with --check", chunk, t->root);
	return status;
}

static enum gn_status save_marker(struct gn_tree_target *t, struct gn_err *err)
{
	struct gn_strbuf text;
	enum gn_status status;

	gn_strbuf_init(&text);
	gn_strbuf_printf(&text, HEAD, t->tree->layout);
	for (uint32_t c = 0; c < t->tree->chunks; c++)
		gn_strbuf_printf(&text, JOURNAL_LINE, c, t->digests[c]);
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", t->marker);
	else
		status = gn_file_replace(t->marker, text.text, text.len, err);
	gn_strbuf_release(&text);
	return status;
}

/* The marker names no listing until the new tree is in place: whatever is at TO then is an earlier copy or a whole new one. */
static enum gn_status replace(struct gn_tree_target *t, struct gn_err *err)
{
	static const char none[] = "gannet-stage-tree 1 incomplete\n";
	enum gn_status status = gn_file_replace(t->marker, none, sizeof none - 1, err);

	if (!status && t->replaces && rename(t->to, t->old))
		status = gn_err_errno(err, errno, "cannot move %s out of the way", t->to);
	if (!status && rename(t->root, t->to))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", t->root, t->to);
	/* after the rename: a folder without write permission cannot be moved to another one */
	if (!status)
		status = gn_tree_make_metadata(&t->tree->entries[0], t->to, err);
	if (!status)
		status = gn_sync_parent(t->to, err);
	return status ? status : save_marker(t, err);
}

enum gn_status gn_tree_target_finish(struct gn_tree_target *t, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (t->was_complete)
		return GN_OK;
	status = gn_tree_make_rest(t, err);
	/* one for all files; the journal is on the same file system */
	if (!status && syncfs(t->journal))
		status = gn_err_errno(err, errno, "cannot sync %s", t->part);
	if (!status)
		status = replace(t, err);
	if (status)
		return status;
	memcpy(t->root, t->to, sizeof t->root);
	if (gn_remove_tree(t->part, NULL))
		gn_log_warn(t->log, "%s cannot be removed completely", t->part);
	return GN_OK;
}
