#include "data/shard/shard.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES (1u << 20)

static enum gn_status add_range(int fd, const char *path, uint64_t from, uint64_t to, unsigned char *block,
				struct gn_sha256 *sha, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	while (from < to && !status) {
		size_t len = to - from < BLOCK_BYTES ? (size_t)(to - from) : BLOCK_BYTES;

		status = gn_pread_full(fd, block, len, from, path, err);
		if (!status)
			gn_sha256_update(sha, block, len);
		from += len;
	}
	return status;
}

static enum gn_status digest_fd(int fd, const char *path, uint64_t data_offset, uint64_t data_bytes,
				unsigned char *block, struct gn_sha256 *sha, struct gn_err *err)
{
	enum gn_status status;
	struct stat info;

	if (fstat(fd, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	if (data_offset > (uint64_t)info.st_size || data_bytes > (uint64_t)info.st_size - data_offset)
		return gn_err_set(err, GN_ERR_DATA, "%s is truncated: it has only %lld bytes", path,
				  (long long)info.st_size);
	status = add_range(fd, path, 0, data_offset, block, sha, err);
	if (!status)
		status = add_range(fd, path, data_offset + data_bytes, (uint64_t)info.st_size, block, sha, err);
	return status;
}

enum gn_status gn_shard_head_digest(const char *path, uint64_t data_offset, uint64_t data_bytes,
				    char hex[GN_SHA256_HEX], struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct gn_sha256 *sha = NULL;
	unsigned char *block = NULL;
	enum gn_status status;

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open shard %s", path);
	status = gn_sha256_create(&sha, err);
	if (!status && !(block = malloc(BLOCK_BYTES)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);
	if (!status)
		status = digest_fd(fd, path, data_offset, data_bytes, block, sha, err);
	if (!status)
		gn_sha256_finish(sha, hex);
	free(block);
	gn_sha256_destroy(sha);
	close(fd);
	return status;
}
