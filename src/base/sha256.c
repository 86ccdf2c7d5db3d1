#include "src/base/sha256.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <unistd.h>

struct gn_sha256 {
	EVP_MD_CTX *context;
};

enum gn_status gn_sha256_create(struct gn_sha256 **out, struct gn_err *err)
{
	struct gn_sha256 *s = calloc(1, sizeof *s);

	if (s)
		s->context = EVP_MD_CTX_new();
	if (!s || !s->context || EVP_DigestInit_ex(s->context, EVP_sha256(), NULL) != 1) {
		gn_sha256_destroy(s);
		return gn_err_set(err, GN_ERR_FAILED, "libcrypto has no SHA-256");
	}
	*out = s;
	return GN_OK;
}

void gn_sha256_destroy(struct gn_sha256 *s)
{
	if (!s)
		return;
	EVP_MD_CTX_free(s->context);
	free(s);
}

void gn_sha256_update(struct gn_sha256 *s, const void *data, size_t len_bytes)
{
	EVP_DigestUpdate(s->context, data, len_bytes);
}

void gn_sha256_finish(struct gn_sha256 *s, char hex[GN_SHA256_HEX])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char digest[32] = {0};
	unsigned len = 0;

	EVP_DigestFinal_ex(s->context, digest, &len);
	EVP_DigestInit_ex(s->context, EVP_sha256(), NULL);
	for (size_t i = 0; i < sizeof digest; i++) {
		hex[2 * i] = digits[digest[i] >> 4];
		hex[2 * i + 1] = digits[digest[i] & 15];
	}
	hex[GN_SHA256_HEX - 1] = '\0';
}

enum gn_status gn_sha256_buffer(const void *data, size_t len_bytes, char hex[GN_SHA256_HEX], struct gn_err *err)
{
	struct gn_sha256 *s;
	enum gn_status status = gn_sha256_create(&s, err);

	if (status)
		return status;
	gn_sha256_update(s, data, len_bytes);
	gn_sha256_finish(s, hex);
	gn_sha256_destroy(s);
	return GN_OK;
}

enum gn_status gn_sha256_file(const char *path, char hex[GN_SHA256_HEX], uint64_t *size_bytes, struct gn_err *err)
{
	enum { BLOCK = 1 << 18 };
	struct gn_sha256 *s = NULL;
	unsigned char *block = NULL;
	uint64_t total = 0;
	ssize_t n = 0;
	enum gn_status status;
	/* O_NONBLOCK: opening a FIFO must not block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s", path);
	status = gn_sha256_create(&s, err);
	if (!status && !(block = malloc(BLOCK)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);
	while (!status && (n = gn_read_some(fd, block, BLOCK)) > 0) {
		gn_sha256_update(s, block, (size_t)n);
		total += (uint64_t)n;
	}
	if (!status && n < 0)
		status = gn_err_errno(err, errno, "cannot read %s", path);
	if (!status) {
		gn_sha256_finish(s, hex);
		if (size_bytes)
			*size_bytes = total;
	}
	free(block);
	gn_sha256_destroy(s);
	close(fd);
	return status;
}
