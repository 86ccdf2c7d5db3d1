#include "data/stage/tree_target_internal.h"

#include "data/stage/stage_marker.h"
#include "data/stage/staged.h"
#include "src/base/file.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARKER_MAX_BYTES ((size_t)1 << 30)

static enum gn_status name_paths(struct gn_tree_target *t, const char *to, char *lock, struct gn_err *err)
{
	size_t len = strlen(to);

	while (len > 1 && to[len - 1] == '/')
		len--;
	if (len + sizeof "/" GN_STAGE_LOCK_NAME + 8 > PATH_MAX || !len || (len == 1 && *to == '/'))
		return gn_err_set(err, GN_ERR_USAGE, "--to \"%s\" names no place for a copy", to);
	snprintf(t->to, sizeof t->to, "%.*s", (int)len, to);
	snprintf(t->part, sizeof t->part, "%.*s" GN_STAGE_PART_ENDING, (int)len, to);
	snprintf(t->root, sizeof t->root, "%.*s" GN_STAGE_PART_ENDING "/tree", (int)len, to);
	snprintf(t->old, sizeof t->old, "%.*s" GN_STAGE_PART_ENDING "/old", (int)len, to);
	snprintf(t->marker, sizeof t->marker, "%.*s" GN_STAGE_MARKER_NAME, (int)len, to);
	snprintf(lock, PATH_MAX, "%.*s" GN_STAGE_LOCK_NAME, (int)len, to);
	return GN_OK;
}

/* Before anything is made: the parent, and that from is not above to. */
static enum gn_status prepare_parent(struct gn_tree_target *t, const char *from, struct gn_err *err)
{
	char parent[PATH_MAX], source[PATH_MAX], real[PATH_MAX];
	size_t len;
	enum gn_status status = gn_trust_check_path(t->to, err);

	gn_path_parent(t->to, parent);
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
	snprintf(head, sizeof head, GN_TREE_HEAD, t->tree->layout);
	same = !strncmp(text, head, strlen(head));
	for (line = text + strlen(head); same && line + GN_TREE_LINE_BYTES <= text + len; line += GN_TREE_LINE_BYTES)
		if (line[GN_TREE_LINE_BYTES - 1] == '\n' && sscanf(line, "%10u %64[0-9a-f]", &chunk, digest) == 2 &&
		    chunk < t->tree->chunks && strlen(digest) == 64)
			memcpy(t->digests[chunk], digest, sizeof digest);
	free(text);
	return same;
}

/* Verifies chunks that are said to be there; returns how many are not. */
static uint32_t verify(struct gn_tree_target *t)
{
	uint32_t wrong = 0;
	void *data = malloc(t->tree->chunk_bytes);

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

enum gn_status gn_tree_claim_old(const struct gn_tree_target *t, int *out, struct gn_err *err)
{
	return gn_stage_claim(t->to, "is a copy that a program reads: it is not replaced; give another place, or wait until gannet stage --list does "
			      "not say \"in use\"", out, err);
}

/* Before anything is copied; it is claimed for good once the new copy is whole. */
static enum gn_status check_use(const struct gn_tree_target *t, struct gn_err *err)
{
	int held = -1;
	enum gn_status status = t->replaces ? gn_tree_claim_old(t, &held, err) : GN_OK;

	if (held >= 0)
		close(held);
	if (!status && t->replaces && gn_stage_marker_is_changed(t->marker, t->to))
		gn_log_warn(t->log, "files of %s were changed or added since it was staged: it becomes what --from is, without them", t->to);
	return status;
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
	enum gn_status status = gn_stage_make_private(t->part, err);
	int known;

	if (status)
		return status;
	snprintf(path, sizeof path, "%s/journal", t->part);
	known = load_digests(t, path);
	t->is_new = !known;
	if (!known) {
		status = gn_tree_remove(t->part, err);
		if (!status)
			status = gn_stage_make_private(t->part, err);
	}
	if (!status && known) {
		verify(t);
		status = gn_tree_remove(t->old, err);
	}
	if (!status)
		status = gn_staged_make_room(t->to, t->tree->data_bytes, t->quota_bytes, t->log, err);
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
	snprintf(head, sizeof head, GN_TREE_HEAD, t->tree->layout);
	status = gn_write_full(t->journal, head, strlen(head), path, err);
	for (uint32_t c = 0; c < t->tree->chunks && !status; c++) {
		snprintf(head, sizeof head, GN_TREE_LINE, c, t->digests[c]);
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
	t->quota_bytes = options->quota_bytes;
	t->lock = t->journal = -1;
	pthread_mutex_init(&t->mutex, NULL);
	pthread_mutex_init(&t->syncing, NULL);
	status = name_paths(t, options->to, lock, err);
	if (!status)
		status = prepare_parent(t, options->from, err);
	if (!status)
		status = check_replaceable(t, err);
	if (!status)
		status = gn_stage_lock(lock, t->to, options->wait, t->log, &t->lock, NULL, err);
	/* again: another process may have made it meanwhile */
	if (!status)
		status = check_replaceable(t, err);
	if (!status && is_complete(t, options->check)) {
		t->was_complete = 1;
		/* what a run left that was killed after the rename */
		if (gn_stage_is_private(t->part) && gn_tree_remove(t->part, NULL))
			gn_log_warn(t->log, "%s cannot be removed completely", t->part);
		status = gn_staged_make_room(t->to, tree->data_bytes, t->quota_bytes, t->log, err);
		if (!status)
			status = gn_tree_save_marker(t, 1, err); /* its time says when the copy was last used */
	} else if (!status) {
		status = check_use(t, err);
		if (!status)
			status = open_part(t, err);
	}
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
	pthread_mutex_destroy(&t->syncing);
	free(t->digests);
	free(t);
}

void gn_tree_target_digest(struct gn_tree_target *t, uint32_t chunk, char out[GN_SHA256_HEX])
{
	pthread_mutex_lock(&t->mutex);
	memcpy(out, t->digests[chunk], GN_SHA256_HEX);
	pthread_mutex_unlock(&t->mutex);
}

int gn_tree_target_has(struct gn_tree_target *t, uint32_t chunk)
{
	char digest[GN_SHA256_HEX];

	gn_tree_target_digest(t, chunk, digest);
	return *digest != '\0';
}
