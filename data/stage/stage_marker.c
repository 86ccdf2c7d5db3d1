#include "data/stage/stage_marker.h"

#include "data/stage/tree.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKER_MAX_BYTES (256u << 20)

/* One line: digest and expected properties of the file. */
static enum gn_status append_line(const struct gn_manifest_shard *s, const char *directory, struct gn_strbuf *out,
			       struct gn_err *err)
{
	char path[PATH_MAX];
	struct stat info;
	enum gn_status status = gn_path_join(path, sizeof path, directory, s->file, err);

	if (status)
		return status;
	if (lstat(path, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	if (!gn_stage_is_own_file(&info))
		return gn_err_set(err, GN_ERR_IO, "%s can be written by other users", path);
	gn_strbuf_printf(out, "%s %s %lld %lld.%09ld %lld.%09ld %llu:%llu\n", s->file, s->sha256,
			 (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
			 (long long)info.st_ctim.tv_sec, info.st_ctim.tv_nsec, (unsigned long long)info.st_dev,
			 (unsigned long long)info.st_ino);
	return GN_OK;
}

void gn_stage_marker_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted)
{
	char path[PATH_MAX], *text;
	struct gn_strbuf line = {0};

	if (gn_path_join(path, sizeof path, directory, GN_STAGE_MARKER_NAME, NULL) || !gn_stage_is_own_path(path) ||
	    gn_file_load(path, MARKER_MAX_BYTES, &text, NULL, NULL))
		return;
	for (uint32_t i = 0; i < m->shard_count; i++) {
		const char *found;

		gn_strbuf_clear(&line);
		if (append_line(&m->shards[i], directory, &line, NULL) || gn_strbuf_failed(&line))
			continue;
		found = strstr(text, gn_strbuf_text(&line));
		trusted[i] = found && (found == text || found[-1] == '\n');
	}
	gn_strbuf_release(&line);
	free(text);
}

int gn_stage_marker_follow(const struct gn_manifest *m, const char *directory, unsigned char *trusted, struct timespec *seen)
{
	char path[PATH_MAX];
	struct stat info;

	if (gn_path_join(path, sizeof path, directory, GN_STAGE_MARKER_NAME, NULL) || stat(path, &info) ||
	    (info.st_mtim.tv_sec == seen->tv_sec && info.st_mtim.tv_nsec == seen->tv_nsec))
		return 0;
	*seen = info.st_mtim;
	memset(trusted, 0, m->shard_count);
	gn_stage_marker_load(m, directory, trusted);
	return 1;
}

enum gn_status gn_stage_marker_save(const struct gn_manifest *m, const char *directory, const unsigned char *right, struct gn_err *err)
{
	char path[PATH_MAX];
	struct gn_strbuf text = {0};
	enum gn_status status = gn_path_join(path, sizeof path, directory, GN_STAGE_MARKER_NAME, err);

	for (uint32_t i = 0; i < m->shard_count && !status; i++)
		if (right[i])
			status = append_line(&m->shards[i], directory, &text, err);
	if (!status)
		status = gn_file_replace_text(path, &text, GN_REPLACE_SYNCED, err);
	gn_strbuf_release(&text);
	return status;
}

/* The device is not in it: its number may be another one after a boot. */
static void append_root(const char *root, struct gn_strbuf *out)
{
	struct statx s = {0};

	if (!statx(AT_FDCWD, root, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &s))
		gn_strbuf_printf(out, "root %llu %lld.%09u\n", (unsigned long long)s.stx_ino, (long long)s.stx_btime.tv_sec, s.stx_btime.tv_nsec);
}

void gn_stage_marker_root(const char *root, const char *identity, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "identity %s\n", identity);
	append_root(root, out);
}

/* The last bytes of a marker that is this user's alone, as text. Returns how many. */
static size_t read_end(const char *marker, char out[256])
{
	int fd = open(marker, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat info;
	ssize_t len = 0;

	if (fd >= 0 && !fstat(fd, &info) && gn_stage_is_own_file(&info))
		len = pread(fd, out, 255, info.st_size > 255 ? info.st_size - 255 : 0);
	if (fd >= 0)
		close(fd);
	len = len > 0 ? len : 0;
	out[len] = '\0';
	return (size_t)len;
}

int gn_stage_marker_is_of(const char *marker, const char *root)
{
	struct gn_strbuf line = {0};
	char end[256];
	size_t len = read_end(marker, end);
	int same;

	append_root(root, &line);
	same = !gn_strbuf_failed(&line) && line.len && len > line.len && end[len - line.len - 1] == '\n' &&
	       !memcmp(end + len - line.len, gn_strbuf_text(&line), line.len);
	gn_strbuf_release(&line);
	return same;
}

int gn_stage_marker_is_changed(const char *marker, const char *root)
{
	static const char key[] = "\nidentity ";
	struct gn_tree there;
	char end[256];
	const char *at = read_end(marker, end) ? strstr(end, key) : NULL;
	int changed;

	if (!at)
		return 0;
	if (gn_tree_scan(root, 0, NULL, &there, NULL))
		return 1;
	changed = strncmp(at + sizeof key - 1, there.identity, GN_SHA256_HEX - 1) != 0;
	gn_tree_release(&there);
	return changed;
}

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define LOOK_TRIES 50
#define LOOK_PAUSE_NS 10000000

int gn_stage_is_own_file(const struct stat *info)
{
	return S_ISREG(info->st_mode) && info->st_uid == geteuid() && !(info->st_mode & OTHERS_WRITE);
}

int gn_stage_is_own_path(const char *path)
{
	struct stat info;

	return !lstat(path, &info) && gn_stage_is_own_file(&info);
}

int gn_stage_is_private(const char *path)
{
	struct stat info;

	return !lstat(path, &info) && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & 077);
}

enum gn_status gn_stage_make_private(const char *path, struct gn_err *err)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return gn_err_errno(err, errno, "cannot create the folder %s", path);
	if (!gn_stage_is_private(path))
		return gn_err_set(err, GN_ERR_IO, "%s is not a folder that only this user can open: remove it", path);
	return GN_OK;
}

enum gn_status gn_stage_check_private(const char *path, struct gn_err *err)
{
	struct stat info;

	if (!stat(path, &info) && S_ISDIR(info.st_mode) && (info.st_mode & (S_ISVTX | S_IWOTH)))
		return gn_err_set(err, GN_ERR_IO, "%s is a shared folder (mode %o): give a folder below it", path,
				  (unsigned)(info.st_mode & 07777));
	return GN_OK;
}

enum gn_status gn_stage_close_folder(const char *path, struct gn_err *err)
{
	struct stat info;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	if ((info.st_mode & OTHERS_WRITE) && chmod(path, info.st_mode & 07777 & ~(mode_t)OTHERS_WRITE))
		return gn_err_errno(err, errno, "cannot remove the write permission of others for %s", path);
	return GN_OK;
}

/* Whether who had the lock has removed or renamed its file. */
static int is_replaced(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) || lstat(path, &b) || a.st_ino != b.st_ino || a.st_dev != b.st_dev;
}

static enum gn_status open_lock(const char *path, int *out, struct gn_err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat info;

	if (fd < 0 && errno == ELOOP)
		return gn_err_set(err, GN_ERR_IO, "the lock %s is a symbolic link: remove it", path);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open the lock %s", path);
	/* another user who can open the lock file could hold the lock */
	if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() || fchmod(fd, 0600)) {
		close(fd);
		return gn_err_set(err, GN_ERR_IO, "the lock %s does not belong to this user: remove it", path);
	}
	*out = fd;
	return GN_OK;
}

/* An exclusive lock on an open file or folder, tried for half a second, as gannet stage --list looks at locks for a moment. 0 or an error
 * number, EWOULDBLOCK: somebody has it. */
static int try_lock(int fd)
{
	int failed;

	for (int i = 0; (failed = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0) == EWOULDBLOCK && i < LOOK_TRIES; i++)
		gn_clock_sleep_ns(LOOK_PAUSE_NS);
	return failed;
}

enum gn_status gn_stage_claim(const char *root, const char *why, int *out, struct gn_err *err)
{
	struct stat info;
	int fd;

	*out = -1;
	/* opening a device is not looking at it */
	if (stat(root, &info) || (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)))
		return GN_OK;
	fd = open(root, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s to see whether it is in use", root);
	if (try_lock(fd) != EWOULDBLOCK) {
		*out = fd;
		return GN_OK;
	}
	close(fd);
	return gn_err_set(err, GN_ERR_EXISTS, "%s %s", root, why);
}

static enum gn_status take_lock(int fd, const char *path, const char *to, int wait, struct gn_log *log, struct gn_err *err)
{
	int failed = wait ? (flock(fd, LOCK_EX | LOCK_NB) ? errno : 0) : try_lock(fd);

	if (failed == EWOULDBLOCK && !wait)
		return gn_err_set(err, GN_ERR_EXISTS, "another gannet stage copies to %s: on a file system that nodes share stage once, "
				  "without a launcher, else wait for the other", to);
	if (failed == EWOULDBLOCK) {
		gn_log_info(log, "waiting for another gannet stage that copies to %s", to);
		do
			failed = flock(fd, LOCK_EX) ? errno : 0;
		while (failed == EINTR);
	}
	return failed ? gn_err_errno(err, failed, "cannot lock %s", path) : GN_OK;
}

enum gn_status gn_stage_lock(const char *path, const char *to, int wait, struct gn_log *log, int *out, int *replaced, struct gn_err *err)
{
	enum gn_status status;
	int fd = -1, again = 0;

	for (;;) {
		status = open_lock(path, &fd, err);
		if (status)
			return status;
		status = take_lock(fd, path, to, wait, log, err);
		if (status || !is_replaced(path, fd))
			break;
		close(fd);
		again = 1;
	}
	if (status) {
		close(fd);
		return status;
	}
	if (replaced)
		*replaced = again;
	*out = fd;
	return GN_OK;
}
