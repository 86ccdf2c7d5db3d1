#include "transport/auth/secret.h"

#include "src/base/clock.h"
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES 4096
#define LABEL_MAX 512
/* On a shared file system a file that another node has just linked may become visible late. */
#define VISIBLE_NS 10000000000u

enum gn_status gn_secret_random(struct gn_secret *out, struct gn_err *err)
{
	if (getrandom(out->bytes, sizeof out->bytes, 0) != (ssize_t)sizeof out->bytes)
		return gn_err_errno(err, errno, "no random numbers for the job's secret");
	return GN_OK;
}

void gn_secret_wipe(struct gn_secret *secret)
{
	OPENSSL_cleanse(secret, sizeof *secret);
}

static enum gn_status check_file(const char *path, int fd, struct gn_err *err)
{
	struct stat s;

	if (fstat(fd, &s))
		return gn_err_errno(err, errno, "%s", path);
	if (!S_ISREG(s.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "%s is not a regular file: it cannot be the secret", path);
	if (s.st_uid != geteuid())
		return gn_err_set(err, GN_ERR_USAGE, "%s belongs to user %u but this process runs as user %u: each user needs a "
				  "secret of their own", path, (unsigned)s.st_uid, (unsigned)geteuid());
	if (s.st_mode & 077)
		return gn_err_set(err, GN_ERR_USAGE, "%s has mode %04o, so others may know it: set mode 600, or better create a "
				  "new secret", path, (unsigned)(s.st_mode & 07777));
	if (s.st_size > FILE_MAX_BYTES)
		return gn_err_set(err, GN_ERR_USAGE, "%s has %lld bytes: a secret file has %d to %d", path, (long long)s.st_size,
				  GN_SECRET_BYTES, FILE_MAX_BYTES);
	return GN_OK;
}

enum gn_status gn_secret_read(const char *path, struct gn_secret *out, struct gn_err *err)
{
	/* opening a FIFO must not block */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned char text[FILE_MAX_BYTES];
	enum gn_status status;
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return gn_err_errno(err, errno, "the secret %s", path);
	status = check_file(path, fd, err);
	while (!status && len < sizeof text && (n = gn_read_some(fd, text + len, sizeof text - len)) != 0) {
		if (n < 0)
			status = gn_err_errno(err, errno, "the secret %s", path);
		else
			len += (size_t)n;
	}
	close(fd);
	if (!status && len < GN_SECRET_BYTES)
		status = gn_err_set(err, GN_ERR_USAGE, "%s has %zu bytes: a secret needs %d at least; create one with "
				    "(umask 077; head -c 32 /dev/urandom >FILE)", path, len, GN_SECRET_BYTES);
	if (!status)
		SHA256(text, len, out->bytes);
	OPENSSL_cleanse(text, sizeof text);
	return status;
}

static enum gn_status write_new(const char *path, struct gn_err *err)
{
	struct gn_secret secret;
	enum gn_status status = gn_secret_random(&secret, err);
	int fd;

	if (status)
		return status;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		status = gn_err_errno(err, errno, "cannot create the secret %s", path);
	else if (fchmod(fd, 0600) || write(fd, &secret, sizeof secret) != (ssize_t)sizeof secret || fsync(fd))
		status = gn_err_errno(err, errno, "cannot write the secret %s", path);
	if (fd >= 0 && close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot write the secret %s", path);
	gn_secret_wipe(&secret);
	return status;
}

static int wait_until_visible(const char *path)
{
	uint64_t until = gn_clock_ns() + VISIBLE_NS;

	while (access(path, F_OK)) {
		if (errno != ENOENT || gn_clock_ns() > until)
			return 0;
		gn_clock_sleep_ns(50000000);
	}
	return 1;
}

enum gn_status gn_secret_make(const char *path, struct gn_err *err)
{
	char host[64] = "", temporary[1024];
	enum gn_status status;

	if (!access(path, F_OK))
		return GN_OK;
	gethostname(host, sizeof host - 1);
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.%s.%ld", path, host, (long)gettid()) >= sizeof temporary)
		return gn_err_set(err, GN_ERR_USAGE, "the path of the secret is too long: %.200s...", path);
	status = write_new(temporary, err);
	/* link() is atomic: the first process wins and no process sees a partial file */
	if (!status && link(temporary, path) && errno != EEXIST)
		status = gn_err_errno(err, errno, "cannot create the secret %s", path);
	unlink(temporary);
	if (!status && !wait_until_visible(path))
		status = gn_err_set(err, GN_ERR_NOT_FOUND, "the secret %s was created but is not visible", path);
	return status;
}

enum gn_status gn_secret_derive(const struct gn_secret *secret, const char *label, const void *data, size_t len_bytes,
				struct gn_secret *out, struct gn_err *err)
{
	unsigned char text[LABEL_MAX];
	unsigned char *mac = NULL;
	size_t at = strlen(label) + 1;
	unsigned len = 0;

	if (at <= sizeof text && len_bytes <= sizeof text - at) {
		memcpy(text, label, at);
		if (len_bytes)
			memcpy(text + at, data, len_bytes);
		mac = HMAC(EVP_sha256(), secret->bytes, sizeof secret->bytes, text, at + len_bytes, out->bytes, &len);
	}
	if (!mac || len != sizeof out->bytes)
		return gn_err_set(err, GN_ERR_FAILED, "OpenSSL made no HMAC");
	return GN_OK;
}
