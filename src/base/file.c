#include "src/base/file.h"

#include "src/base/strbuf.h"
#include "src/base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

ssize_t gn_read_some(int fd, void *data, size_t len_bytes)
{
	ssize_t n;

	do
		n = read(fd, data, len_bytes);
	while (n < 0 && errno == EINTR);
	return n;
}

ssize_t gn_file_read_start(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = 0, n = fd < 0 ? -1 : 1;

	while (fd >= 0 && (n = gn_read_some(fd, text + len, size - 1 - (size_t)len)) > 0)
		len += n;
	if (fd >= 0)
		close(fd);
	text[len] = 0;
	return n < 0 && !len ? -1 : len;
}

enum gn_status gn_pread_full(int fd, void *data, size_t len_bytes, uint64_t offset, const char *path,
			     struct gn_err *err)
{
	size_t done = 0;

	while (done < len_bytes) {
		ssize_t n = pread(fd, (char *)data + done, len_bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gn_err_errno(err, errno, "cannot read %s", path);
		if (n == 0)
			return gn_err_set(err, GN_ERR_DATA, "%s is truncated: it ends at byte %llu, %zu bytes early",
					  path, (unsigned long long)(offset + done), len_bytes - done);
		done += (size_t)n;
	}
	return GN_OK;
}

/* At the place of the file when offset is NULL. */
static enum gn_status write_full(int fd, const char *data, size_t len_bytes, const uint64_t *offset, const char *path, struct gn_err *err)
{
	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = offset ? pwrite(fd, data + done, len_bytes - done, (off_t)(*offset + done))
				   : write(fd, data + done, len_bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gn_err_errno(err, errno, "cannot write %s", path);
		done += (size_t)n;
	}
	return GN_OK;
}

enum gn_status gn_write_full(int fd, const void *data, size_t len_bytes, const char *path, struct gn_err *err)
{
	return write_full(fd, data, len_bytes, NULL, path, err);
}

enum gn_status gn_pwrite_full(int fd, const void *data, size_t len_bytes, uint64_t offset, const char *path, struct gn_err *err)
{
	return write_full(fd, data, len_bytes, &offset, path, err);
}

enum gn_status gn_path_join(char *out, size_t out_size, const char *directory, const char *name, struct gn_err *err)
{
	size_t len = strlen(directory);
	const char *slash = len && directory[len - 1] == '/' ? "" : "/";

	if ((size_t)snprintf(out, out_size, "%s%s%s", directory, slash, name) >= out_size)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s/%s", directory, name);
	return GN_OK;
}

enum gn_status gn_path_from_program(const char *path, char *out, size_t out_size, struct gn_err *err)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

	if (len <= 0)
		return gn_err_errno(err, errno, "cannot find this program's own file");
	self[len] = 0;
	if (!path)
		return gn_path_join(out, out_size, "/", self + 1, err);
	*strrchr(self, '/') = 0;
	for (; !strncmp(path, "../", 3) && strrchr(self, '/'); path += 3)
		*strrchr(self, '/') = 0;
	return gn_path_join(out, out_size, self, path, err);
}

void gn_path_parent(const char *path, char out[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	snprintf(out, PATH_MAX, "%.*s", slash > path ? (int)(slash - path) : 1, slash ? path : ".");
}

int gn_file_is_same(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

enum gn_status gn_make_dirs(const char *path, struct gn_err *err)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	struct stat info;

	if (!len || len >= sizeof part)
		return gn_err_set(err, GN_ERR_USAGE, "bad folder name '%s'", path);
	if (gn_trust_check_links(path, err))
		return GN_ERR_IO;
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0777) == 0 || errno == EEXIST)
			continue;
		/* GN_ERR_NOT_FOUND would blame the input. */
		if (errno == ENOENT)
			return gn_err_set(err, GN_ERR_IO, "cannot make folder %s: %s", part, strerror(errno));
		return gn_err_errno(err, errno, "cannot make folder %s", part);
	}
	if (stat(path, &info) || !S_ISDIR(info.st_mode))
		return gn_err_set(err, GN_ERR_IO, "%s exists and is not a folder", path);
	/* again: another process may have made one of them meanwhile */
	return gn_trust_check_links(path, err);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
	(void)info;
	(void)kind;
	(void)where;
	return remove(path);
}

enum gn_status gn_remove_tree(const char *path, struct gn_err *err)
{
	if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
		return gn_err_errno(err, errno, "cannot remove %s", path);
	return GN_OK;
}

enum gn_status gn_sync_dir(const char *path, struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int failed;

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open folder %s", path);
	/* Some file systems do not support fsync on a directory: EINVAL. */
	failed = fsync(fd) && errno != EINVAL ? errno : 0;
	close(fd);
	return failed ? gn_err_errno(err, failed, "cannot sync folder %s", path) : GN_OK;
}

enum gn_status gn_sync_parent(const char *path, struct gn_err *err)
{
	char parent[PATH_MAX];
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (len && path[len - 1] != '/')
		len--;
	if (len >= sizeof parent)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	if (!len)
		return gn_sync_dir(".", err);
	memcpy(parent, path, len);
	parent[len] = '\0';
	return gn_sync_dir(parent, err);
}

enum gn_status gn_free_bytes(const char *path, uint64_t *out, struct gn_err *err)
{
	struct statvfs info;

	if (statvfs(path, &info))
		return gn_err_errno(err, errno, "cannot read the free space at %s", path);
	*out = (uint64_t)info.f_bavail * info.f_frsize;
	return GN_OK;
}

enum gn_status gn_file_load(const char *path, size_t max_bytes, char **out, size_t *len_bytes, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	char *text = NULL;
	struct stat info;
	/* O_NONBLOCK: opening a FIFO must not block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	if (fstat(fd, &info))
		status = gn_err_errno(err, errno, "cannot stat %s", path);
	else if (!S_ISREG(info.st_mode))
		status = gn_err_set(err, GN_ERR_DATA, "%s is not a regular file", path);
	else if ((uint64_t)info.st_size > max_bytes)
		status = gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes; at most %zu are allowed", path,
				    (long long)info.st_size, max_bytes);
	else if (!(text = malloc((size_t)info.st_size + 1)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);
	else
		status = gn_pread_full(fd, text, (size_t)info.st_size, 0, path, err);
	close(fd);
	if (status) {
		free(text);
		return status;
	}
	text[info.st_size] = '\0';
	*out = text;
	if (len_bytes)
		*len_bytes = (size_t)info.st_size;
	return GN_OK;
}

enum gn_status gn_file_load_text(const char *path, size_t max_bytes, char **out, size_t *len_bytes, struct gn_err *err)
{
	size_t len = 0, to = 0, at;
	char *text;
	enum gn_status status = gn_file_load(path, max_bytes, &text, &len, err);

	if (status)
		return status;
	if (strlen(text) != len) {
		free(text);
		return gn_err_set(err, GN_ERR_DATA, "%s holds a zero byte: is it UTF-16? save it as UTF-8", path);
	}
	for (at = strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3; at <= len; at++)
		if (text[at] != '\r' || text[at + 1] != '\n')
			text[to++] = text[at];
	*out = text;
	if (len_bytes)
		*len_bytes = to - 1;
	return GN_OK;
}

enum gn_status gn_file_check_replaceable(const char *path, struct gn_err *err)
{
	struct stat info;
	enum gn_status status = gn_trust_check_links(path, err);

	if (status || lstat(path, &info) || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode))
		return status;
	return gn_err_set(err, GN_ERR_IO, "%s exists and is not a regular file: name another file", path);
}

enum gn_status gn_file_check_folder(const char *path, const char *option, struct gn_err *err)
{
	char folder[PATH_MAX];

	gn_path_parent(path, folder);
	if (access(folder, W_OK))
		return gn_err_set(err, GN_ERR_USAGE, "--%s: cannot write %s: %s", option, path, strerror(errno));
	return gn_file_check_replaceable(path, err);
}

enum gn_status gn_file_check_own(const char *path, const char *beginning, const char *what, struct gn_err *err)
{
	size_t len = strlen(beginning);
	char found[128];
	struct stat info;
	ssize_t got = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	/* what cannot be read is for the writer to complain of */
	if (fd < 0)
		return GN_OK;
	if (!fstat(fd, &info) && S_ISREG(info.st_mode))
		got = gn_read_some(fd, found, len < sizeof found ? len : sizeof found);
	close(fd);
	if (got <= 0 || ((size_t)got >= len && !memcmp(found, beginning, len)))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "%s exists and is no %s: name another file, or remove it", path, what);
}

static enum gn_status replace(const char *path, const void *data, size_t len_bytes, enum gn_replace how, struct gn_err *err)
{
	char temporary[PATH_MAX];
	enum gn_status status = gn_file_check_replaceable(path, err);
	int fd;

	if (status)
		return status;
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid()) >= sizeof temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	/* GN_ERR_NOT_FOUND for a missing folder would blame the input. */
	if (fd < 0 && errno == ENOENT)
		return gn_err_set(err, GN_ERR_IO, "cannot create %s: %s", temporary, strerror(errno));
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot create %s", temporary);
	status = gn_write_full(fd, data, len_bytes, temporary, err);
	if (!status && how == GN_REPLACE_PUBLIC && fchmod(fd, 0644))
		status = gn_err_errno(err, errno, "cannot set the mode of %s", temporary);
	if (!status && how == GN_REPLACE_SYNCED && fsync(fd))
		status = gn_err_errno(err, errno, "cannot sync %s", temporary);
	if (close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", temporary);
	if (!status && rename(temporary, path))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", temporary, path);
	if (status) {
		unlink(temporary);
		return status;
	}
	return how == GN_REPLACE_SYNCED ? gn_sync_parent(path, err) : GN_OK;
}

enum gn_status gn_file_replace(const char *path, const void *data, size_t len_bytes, struct gn_err *err)
{
	return replace(path, data, len_bytes, GN_REPLACE_SYNCED, err);
}

enum gn_status gn_file_replace_text(const char *path, const struct gn_strbuf *text, enum gn_replace how, struct gn_err *err)
{
	return gn_strbuf_failed(text) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path)
				      : replace(path, gn_strbuf_text(text), text->len, how, err);
}
