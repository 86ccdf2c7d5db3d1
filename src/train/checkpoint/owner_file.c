/* Reads and writes the owner file of a checkpoint folder. */
#include "src/train/checkpoint/owner_internal.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t gn_owner_start_of(int64_t pid)
{
	struct gn_process p;

	return gn_process_read(pid, &p) && !gn_process_has_ended(&p) ? p.start : 0;
}

static void copy_variable(const char *name, char *out, size_t size)
{
	const char *value = getenv(name);

	snprintf(out, size, "%s", value ? value : "");
}

enum gn_status gn_owner_identify(struct gn_owner_identity *self, struct gn_err *err)
{
	const char *restart = getenv("SLURM_RESTART_COUNT");
	struct stat space;
	uint64_t random;

	memset(self, 0, sizeof *self);
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return gn_err_errno(err, errno, "cannot draw a random number");
	snprintf(self->nonce, sizeof self->nonce, "%016" PRIx64, random);
	if (gethostname(self->host, sizeof self->host - 1))
		self->host[0] = '\0';
	copy_variable("SLURM_CLUSTER_NAME", self->cluster, sizeof self->cluster);
	copy_variable("SLURM_JOB_ID", self->job, sizeof self->job);
	self->restart = restart ? strtoll(restart, NULL, 10) : 0;
	self->pid = getpid();
	self->pid_start = gn_owner_start_of(self->pid);
	self->pid_namespace = stat("/proc/self/ns/pid", &space) ? 0 : (int64_t)space.st_ino;
	gn_file_read_start("/proc/sys/kernel/random/boot_id", self->boot, sizeof self->boot);
	self->boot[strcspn(self->boot, "\n")] = '\0';
	return GN_OK;
}

const char *gn_owner_describe(const struct gn_owner_identity *who, char text[256])
{
	int used = snprintf(text, 256, "process %" PRId64 " on %s", who->pid, who->host);

	if (!who->nonce[0])
		return "an unknown run (unreadable owner file)";
	if (who->job[0])
		used += snprintf(text + used, 256 - (size_t)used, ", job %s", who->job);
	if (who->job[0] && who->restart)
		snprintf(text + used, 256 - (size_t)used, " (restart %" PRId64 ")", who->restart);
	return text;
}

static void json_identity(struct gn_json *j, const struct gn_owner_identity *who)
{
	char stamp[32];
	struct tm utc;
	time_t now = time(NULL);

	gmtime_r(&now, &utc);
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
	gn_json_put(j, "format gannet-owner host %s cluster %s job %s restart %ld pid %ld pid_start %ld pid_namespace %ld boot %s "
		    "nonce %s since %s", who->host, who->cluster, who->job, who->restart, who->pid, who->pid_start, who->pid_namespace,
		    who->boot, who->nonce, stamp);
	if (who->run[0])
		gn_json_put(j, "run %s world %ld", who->run, who->world);
	gn_json_end(j);
	gn_strbuf_puts(&j->text, "\n");
}

static enum gn_status write_identity(int file, const char *path, const struct gn_owner_identity *who, struct gn_err *err)
{
	struct gn_json j;
	enum gn_status status;

	gn_json_begin(&j);
	json_identity(&j, who);
	if (gn_json_failed(&j))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	else
		status = gn_write_full(file, gn_json_text(&j), j.text.len, path, err);
	gn_json_release(&j);
	if (!status && fsync(file))
		status = gn_err_errno(err, errno, "cannot sync %s", path);
	return status;
}

/* A file without a name, for gn_owner_file_create(); -1 where the file system (NFS) or the system has none. */
static int open_unnamed(const char *path)
{
	char folder[PATH_MAX];

	gn_path_parent(path, folder);
	return access("/proc/self/fd", F_OK) ? -1 : open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

/* Where it can, the file gets its name when it is complete: of a run that is killed in between nothing is left, and no file that says
 * nothing about its owner. */
enum gn_status gn_owner_file_create(const char *path, const struct gn_owner_identity *who, int *fd, struct gn_err *err)
{
	char link[64];
	int file = open_unnamed(path), is_unnamed = file >= 0;
	enum gn_status status;

	if (!is_unnamed)
		file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (file < 0 && errno == EEXIST)
		return gn_err_set(err, GN_ERR_EXISTS, "%s is there", path);
	/* GN_ERR_NOT_FOUND would blame the input */
	if (file < 0)
		return gn_err_set(err, errno == ENOSPC || errno == EDQUOT ? GN_ERR_NO_SPACE : GN_ERR_IO, "cannot create %s: %s", path,
				  strerror(errno));
	status = write_identity(file, path, who, err);
	snprintf(link, sizeof link, "/proc/self/fd/%d", file);
	if (!status && is_unnamed && linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
		status = errno == EEXIST ? gn_err_set(err, GN_ERR_EXISTS, "%s is there", path) : gn_err_errno(err, errno, "cannot create %s", path);
	if (status) {
		if (!is_unnamed)
			unlink(path);
		close(file);
		return status;
	}
	*fd = file;
	return GN_OK;
}

static void take_text(const json_t *root, const char *key, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(root, key));

	snprintf(out, size, "%s", text ? text : "");
}

static void parse(const char *text, size_t len, struct gn_owner_identity *who)
{
	json_t *root = json_loadb(text, len, 0, NULL);

	memset(who, 0, sizeof *who);
	take_text(root, "host", who->host, sizeof who->host);
	take_text(root, "cluster", who->cluster, sizeof who->cluster);
	take_text(root, "job", who->job, sizeof who->job);
	take_text(root, "boot", who->boot, sizeof who->boot);
	take_text(root, "nonce", who->nonce, sizeof who->nonce);
	take_text(root, "run", who->run, sizeof who->run);
	who->world = json_integer_value(json_object_get(root, "world"));
	who->restart = json_integer_value(json_object_get(root, "restart"));
	who->pid = json_integer_value(json_object_get(root, "pid"));
	who->pid_start = json_integer_value(json_object_get(root, "pid_start"));
	who->pid_namespace = json_integer_value(json_object_get(root, "pid_namespace"));
	json_decref(root);
}

enum gn_status gn_owner_file_look(const char *path, struct gn_owner_file *out, struct gn_err *err)
{
	char text[4096];
	struct stat info;
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	if (fstat(fd, &info) || !S_ISREG(info.st_mode) || (len = gn_read_some(fd, text, sizeof text)) < 0) {
		close(fd);
		return gn_err_set(err, GN_ERR_IO, "cannot read %s", path);
	}
	close(fd);
	parse(text, (size_t)len, &out->who);
	out->beat = info.st_mtim;
	out->inode = info.st_ino;
	return GN_OK;
}
enum gn_status gn_owner_file_age(const struct gn_owner_file *f, const char *path, const char *nonce, double *seconds, struct gn_err *err)
{
	char probe[PATH_MAX];
	struct stat info;
	int fd, failed;

	if ((size_t)snprintf(probe, sizeof probe, "%s.%s.tmp", path, nonce) >= sizeof probe)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	fd = open(probe, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	failed = fd < 0 || futimens(fd, NULL) || fstat(fd, &info) ? errno : 0;
	if (fd >= 0)
		close(fd);
	unlink(probe);
	if (failed)
		return gn_err_set(err, GN_ERR_IO, "cannot create %s: %s", probe, strerror(failed));
	*seconds = (double)(info.st_mtim.tv_sec - f->beat.tv_sec) + 1e-9 * (double)(info.st_mtim.tv_nsec - f->beat.tv_nsec);
	return GN_OK;
}
