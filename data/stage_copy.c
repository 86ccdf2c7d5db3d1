#include "data/stage_parts.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES (4u << 20)

/* One shard on its way. */
struct transfer {
	const struct gn_stage_options *options;
	const struct gn_manifest_shard *shard;
	const atomic_int *stop;
	char from[PATH_MAX], to[PATH_MAX], part[PATH_MAX];
	int in, out;
};

/* As many bytes as the manifest says, from t->in to t->out and into sha. */
static enum gn_status copy_bytes(const struct transfer *t, struct gn_sha256 *sha, struct gn_err *err)
{
	uint64_t size_bytes = t->shard->size_bytes;
	unsigned char *block = malloc(BLOCK_BYTES);
	enum gn_status status = GN_OK;

	if (!block)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to copy %s", t->from);
	for (uint64_t done = 0; done < size_bytes && !status;) {
		size_t len = size_bytes - done < BLOCK_BYTES ? (size_t)(size_bytes - done) : BLOCK_BYTES;

		status = gn_pread_full(t->in, block, len, done, t->from, err);
		if (!status) {
			gn_sha256_update(sha, block, len);
			status = gn_pwrite_full(t->out, block, len, done, t->part, err);
		}
		if (!status && atomic_load(t->stop))
			status = gn_err_set(err, GN_ERR_STOPPED, "stopped after another shard failed");
		gn_progress_add(t->options->progress, len);
		done += len;
	}
	free(block);
	return status;
}

static enum gn_status copy_open_files(const struct transfer *t, struct gn_err *err)
{
	struct gn_sha256 *sha = NULL;
	char hex[GN_SHA256_HEX];
	struct stat info;
	enum gn_status status = gn_sha256_create(&sha, err);

	if (!status && fstat(t->in, &info))
		status = gn_err_errno(err, errno, "cannot stat %s", t->from);
	if (!status && (uint64_t)info.st_size != t->shard->size_bytes)
		status = gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %llu: the source is damaged",
				    t->from, (long long)info.st_size, (unsigned long long)t->shard->size_bytes);
	if (!status)
		status = copy_bytes(t, sha, err);
	if (!status) {
		gn_sha256_finish(sha, hex);
		if (strcmp(hex, t->shard->sha256))
			status = gn_err_set(err, GN_ERR_DATA, "%s fails its SHA-256 digest: the source is damaged, see "
					    "gannet verify", t->from);
	}
	if (!status && fsync(t->out))
		status = gn_err_errno(err, errno, "cannot sync %s", t->part);
	gn_sha256_destroy(sha);
	return status;
}

static enum gn_status set_paths(struct transfer *t, struct gn_err *err)
{
	enum gn_status status = gn_path_join(t->from, sizeof t->from, t->options->from, t->shard->file, err);

	if (!status)
		status = gn_path_join(t->to, sizeof t->to, t->options->to, t->shard->file, err);
	if (!status && (size_t)snprintf(t->part, sizeof t->part, "%s" GN_STAGE_PART_ENDING, t->to) >= sizeof t->part)
		status = gn_err_set(err, GN_ERR_USAGE, "path too long: %s", t->to);
	return status;
}

enum gn_status gn_stage_copy_shard(const struct gn_stage_options *options, const struct gn_manifest_shard *m,
				   const atomic_int *stop, struct gn_err *err)
{
	struct transfer t = {.options = options, .shard = m, .stop = stop};
	enum gn_status status = set_paths(&t, err);

	if (status)
		return status;
	t.in = open(t.from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (t.in < 0)
		return gn_err_errno(err, errno, "cannot open %s", t.from);
	t.out = open(t.part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (t.out < 0)
		status = gn_err_errno(err, errno, "cannot create %s", t.part);
	else
		status = copy_open_files(&t, err);
	close(t.in);
	if (t.out >= 0 && close(t.out) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", t.part);
	if (!status && rename(t.part, t.to))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", t.part, t.to);
	if (status && t.out >= 0)
		unlink(t.part);
	return status;
}
