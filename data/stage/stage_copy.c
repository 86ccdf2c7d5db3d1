#include "data/stage/stage_copy.h"

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

/* Copies exactly size_bytes from in to out, and updates sha. */
static enum gn_status copy_bytes(const struct gn_stage_copy *c, int in, int out, const char *from, const char *to,
				 uint64_t size_bytes, struct gn_sha256 *sha, struct gn_err *err)
{
	unsigned char *block = malloc(BLOCK_BYTES);
	enum gn_status status = GN_OK;

	if (!block)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to copy %s", from);
	for (uint64_t done = 0; done < size_bytes && !status;) {
		size_t len = size_bytes - done < BLOCK_BYTES ? (size_t)(size_bytes - done) : BLOCK_BYTES;

		status = gn_pread_full(in, block, len, done, from, err);
		if (!status) {
			gn_sha256_update(sha, block, len);
			status = gn_pwrite_full(out, block, len, done, to, err);
		}
		if (!status && c->stopped(c->context))
			status = gn_err_set(err, GN_ERR_STOPPED, "stopped");
		gn_progress_bar_add(c->progress, len);
		done += len;
	}
	free(block);
	return status;
}

static enum gn_status copy_open_files(const struct gn_stage_copy *c, int in, int out, const char *from, const char *to,
				      const struct gn_manifest_shard *m, struct gn_err *err)
{
	struct gn_sha256 *sha = NULL;
	char hex[GN_SHA256_HEX];
	struct stat info;
	enum gn_status status = gn_sha256_create(&sha, err);

	if (!status && fstat(in, &info))
		status = gn_err_errno(err, errno, "cannot stat %s", from);
	if (!status && (uint64_t)info.st_size != m->size_bytes)
		status = gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %llu: the source is damaged",
				    from, (long long)info.st_size, (unsigned long long)m->size_bytes);
	if (!status)
		status = copy_bytes(c, in, out, from, to, m->size_bytes, sha, err);
	if (!status) {
		gn_sha256_finish(sha, hex);
		if (strcmp(hex, m->sha256))
			status = gn_err_set(err, GN_ERR_DATA, "%s fails its SHA-256 digest: the source is damaged, see "
					    "gannet verify", from);
	}
	if (!status && fsync(out))
		status = gn_err_errno(err, errno, "cannot sync %s", to);
	gn_sha256_destroy(sha);
	return status;
}

enum gn_status gn_stage_copy_shard(const struct gn_stage_copy *c, const struct gn_manifest_shard *m, struct gn_err *err)
{
	char from[PATH_MAX], to[PATH_MAX], part[PATH_MAX];
	int in = -1, out = -1;
	enum gn_status status = gn_path_join(from, sizeof from, c->from, m->file, err);

	if (!status)
		status = gn_path_join(to, sizeof to, c->to, m->file, err);
	if (!status && (size_t)snprintf(part, sizeof part, "%s" GN_STAGE_PART_ENDING, to) >= sizeof part)
		status = gn_err_set(err, GN_ERR_USAGE, "path too long: %s", to);
	if (status)
		return status;
	in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (in < 0)
		return gn_err_errno(err, errno, "cannot open %s", from);
	out = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (out < 0)
		status = gn_err_errno(err, errno, "cannot create %s", part);
	else
		status = copy_open_files(c, in, out, from, part, m, err);
	close(in);
	if (out >= 0 && close(out) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", part);
	if (!status && rename(part, to))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", part, to);
	if (status && out >= 0)
		unlink(part);
	return status;
}
