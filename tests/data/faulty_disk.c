/* LD_PRELOAD: a disk that fails. GN_FAIL="CALL ERRNO AFTER": after AFTER successes below the folder GN_FAIL_BELOW, CALL fails with that
 * error, again and again; only on rank GN_FAIL_RANK. "stall N 0": each pwrite() waits until the file `go` is there; with the Nth the file
 * `stalled` is made. "stall-syncfs N 0": the same of syncfs(). "late-syncfs ERRNO BYTES": the first syncfs() fails, as it does once of a
 * disk that failed, when as many bytes have been written. "statvfs BYTES 0": with each call as many bytes more are free than with the one
 * before, as where others remove files meanwhile. Without PMIX_RANK it is rank 0. For tests/data/stage_disks.t and its like. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static long was_read, written; /* bytes, by pread() and pwrite(), anywhere */

static int is_below(const char *path)
{
	const char *folder = getenv("GN_FAIL_BELOW");

	return folder && strstr(path, folder) != NULL;
}

static int is_chosen(const char *call, const char *path, int *code, int *after)
{
	const char *fail = getenv("GN_FAIL"), *rank = getenv("PMIX_RANK"), *which = getenv("GN_FAIL_RANK");
	char name[32];

	return fail && which && !strcmp(rank ? rank : "0", which) && sscanf(fail, "%31s %d %d", name, code, after) == 3 && !strcmp(name, call) && is_below(path);
}

static int fails_now(const char *call, const char *path)
{
	static int done;
	int code, after;

	if (!is_chosen(call, path, &code, &after) || __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST) <= after)
		return 0;
	errno = code;
	return 1;
}

static void stall(const char *name, const char *path)
{
	static int waiting;
	int count, unused, fd;

	if (!is_chosen(name, path, &count, &unused))
		return;
	if (__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST) == count && (fd = creat("stalled", 0600)) >= 0)
		close(fd);
	while (access("go", F_OK))
		usleep(1000);
}

static int fails_late(const char *path)
{
	static int done;
	int code, bytes;

	if (!is_chosen("late-syncfs", path, &code, &bytes) || __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST) > 1)
		return 0;
	while (__atomic_load_n(&written, __ATOMIC_SEQ_CST) < bytes)
		usleep(1000);
	errno = code;
	return 1;
}

static int fails(const char *call, int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof path - 1);
	if (len <= 0)
		return 0;
	path[len] = '\0';
	if (!strncmp(call, "pwrite", 6))
		stall("stall", path);
	else if (!strcmp(call, "syncfs"))
		stall("stall-syncfs", path);
	if (!strcmp(call, "syncfs") && fails_late(path))
		return 1;
	return fails_now(call, path);
}

#define NEXT(name) (*(void **)&next = dlsym(RTLD_NEXT, name))

#define ON_DATA(name, data, counter)                                                                         \
	ssize_t name(int fd, data buffer, size_t len, off_t at)                                              \
	{                                                                                                    \
		ssize_t (*next)(int, data, size_t, off_t), done;                                             \
													     \
		done = fails(#name, fd) ? -1 : (NEXT(#name), next(fd, buffer, len, at));                     \
		if (done > 0)                                                                                \
			__atomic_add_fetch(counter, done, __ATOMIC_SEQ_CST);                                 \
		return done;                                                                                 \
	}
ON_DATA(pread, void *, &was_read)
ON_DATA(pread64, void *, &was_read)
ON_DATA(pwrite, const void *, &written)
ON_DATA(pwrite64, const void *, &written)

ssize_t write(int fd, const void *buffer, size_t len)
{
	ssize_t (*next)(int, const void *, size_t);

	return fails("write", fd) ? -1 : (NEXT("write"), next(fd, buffer, len));
}

#define ON_FILE(name)                                                   \
	int name(int fd)                                                \
	{                                                               \
		int (*next)(int);                                       \
									\
		return fails(#name, fd) ? -1 : (NEXT(#name), next(fd)); \
	}
ON_FILE(fsync)
ON_FILE(fdatasync)
ON_FILE(syncfs)

int ftruncate(int fd, off_t len)
{
	int (*next)(int, off_t);

	return fails("ftruncate", fd) ? -1 : (NEXT("ftruncate"), next(fd, len));
}

int rename(const char *from, const char *to)
{
	int (*next)(const char *, const char *);

	return fails_now("rename", to) ? -1 : (NEXT("rename"), next(from, to));
}

int mkdir(const char *path, mode_t mode)
{
	int (*next)(const char *, mode_t);

	return fails_now("mkdir", path) ? -1 : (NEXT("mkdir"), next(path, mode));
}

int statvfs(const char *path, struct statvfs *out)
{
	int (*next)(const char *, struct statvfs *);
	static int calls;
	int bytes, unused, code = (NEXT("statvfs"), next(path, out));

	if (!code && is_chosen("statvfs", path, &bytes, &unused))
		out->f_bavail += (unsigned long)__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) * (unsigned long)bytes / out->f_frsize;
	return code;
}
