#include "src/base/cipher_file.h"

#include "src/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char magic[] = "gannet cipher 1\n";
enum { MAGIC_BYTES = sizeof magic - 1, CHECK_AT = MAGIC_BYTES + GN_DATA_SALT_BYTES, LENGTH_AT = CHECK_AT + 32 };

struct gn_cipher_file {
	int fd;
	const char *path;
	struct gn_sha256 *sha;
	struct gn_data_key key; /* of the pieces */
	unsigned char header[GN_CIPHER_HEADER];
	uint64_t len_bytes, written;
	unsigned char *piece;	/* when writing: the text since the last whole piece, with space for a tag */
};

uint64_t gn_cipher_size(uint64_t len_bytes)
{
	return GN_CIPHER_HEADER + len_bytes + (len_bytes + GN_CIPHER_PIECE - 1) / GN_CIPHER_PIECE * GN_AEAD_TAG_BYTES;
}

int gn_cipher_begins(const unsigned char prefix[16])
{
	return !memcmp(prefix, magic, MAGIC_BYTES);
}

static void nonce_of(uint64_t piece, uint8_t nonce[GN_AEAD_NONCE_BYTES])
{
	memset(nonce, 0, GN_AEAD_NONCE_BYTES);
	gn_data_put(nonce + 4, piece, 8);
}

/* The key of the pieces and the check, by the salt in the header. */
static enum gn_status derive(struct gn_cipher_file *f, const struct gn_data_key *key, struct gn_data_key *check, struct gn_err *err)
{
	enum gn_status status = gn_data_key_derive(key, f->header + MAGIC_BYTES, "gannet file check 1", check, err);

	return status ? status : gn_data_key_derive(key, f->header + MAGIC_BYTES, "gannet file 1", &f->key, err);
}

static enum gn_status make_file(int fd, const char *path, struct gn_cipher_file **out, struct gn_err *err)
{
	*out = calloc(1, sizeof **out);
	if (!*out)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of %s", path);
	(*out)->fd = fd;
	(*out)->path = path;
	return GN_OK;
}

static enum gn_status put_bytes(struct gn_cipher_file *f, const void *data, size_t len_bytes, struct gn_err *err)
{
	if (f->sha)
		gn_sha256_update(f->sha, data, len_bytes);
	return gn_write_full(f->fd, data, len_bytes, f->path, err);
}

static enum gn_status begin(struct gn_cipher_file *f, const struct gn_data_key *key, struct gn_err *err)
{
	struct gn_data_key check;
	enum gn_status status;

	if (!f->len_bytes || !(f->piece = malloc(GN_CIPHER_PIECE + GN_AEAD_TAG_BYTES)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to encrypt %s", f->path);
	memcpy(f->header, magic, MAGIC_BYTES);
	gn_data_put(f->header + LENGTH_AT, f->len_bytes, 8);
	status = gn_data_salt(f->header + MAGIC_BYTES, err);
	if (!status)
		status = derive(f, key, &check, err);
	if (status)
		return status;
	memcpy(f->header + CHECK_AT, check.bytes, sizeof check.bytes);
	return put_bytes(f, f->header, sizeof f->header, err);
}

enum gn_status gn_cipher_create(int fd, const char *path, const struct gn_data_key *key, uint64_t len_bytes, struct gn_sha256 *sha,
				struct gn_cipher_file **out, struct gn_err *err)
{
	struct gn_cipher_file *f;
	enum gn_status status = make_file(fd, path, &f, err);

	if (status)
		return status;
	f->sha = sha;
	f->len_bytes = len_bytes;
	status = begin(f, key, err);
	if (status)
		gn_cipher_close(f);
	else
		*out = f;
	return status;
}

static enum gn_status put_piece(struct gn_cipher_file *f, size_t len_bytes, struct gn_err *err)
{
	uint8_t nonce[GN_AEAD_NONCE_BYTES];
	enum gn_status status;

	nonce_of((f->written - 1) / GN_CIPHER_PIECE, nonce);
	status = gn_aead_encrypt(&f->key, nonce, f->header, sizeof f->header, f->piece, len_bytes, err);
	return status ? status : put_bytes(f, f->piece, len_bytes + GN_AEAD_TAG_BYTES, err);
}

enum gn_status gn_cipher_write(struct gn_cipher_file *f, const void *data, size_t len_bytes, struct gn_err *err)
{
	const char *from = data;
	enum gn_status status = GN_OK;

	if (len_bytes > f->len_bytes - f->written)
		return gn_err_set(err, GN_ERR_FAILED, "%s: more to encrypt than was announced", f->path);
	while (len_bytes && !status) {
		size_t at = f->written % GN_CIPHER_PIECE, left = GN_CIPHER_PIECE - at, n = len_bytes < left ? len_bytes : left;

		memcpy(f->piece + at, from, n);
		from += n;
		len_bytes -= n;
		f->written += n;
		if (n == left || f->written == f->len_bytes)
			status = put_piece(f, at + n, err);
	}
	return status;
}

enum gn_status gn_cipher_finish(struct gn_cipher_file *f, struct gn_err *err)
{
	return f->written == f->len_bytes ? GN_OK : gn_err_set(err, GN_ERR_FAILED, "%s: less to encrypt than was announced", f->path);
}

static enum gn_status read_header(struct gn_cipher_file *f, const struct gn_data_key *key, struct gn_err *err)
{
	struct gn_data_key check;
	struct stat info;
	enum gn_status status = gn_pread_full(f->fd, f->header, sizeof f->header, 0, f->path, err);

	if (status)
		return status;
	f->len_bytes = gn_data_get(f->header + LENGTH_AT, 8);
	if (fstat(f->fd, &info))
		return gn_err_errno(err, errno, "cannot stat %s", f->path);
	if (!gn_cipher_begins(f->header) || !f->len_bytes || f->len_bytes > INT64_MAX / 2 || gn_cipher_size(f->len_bytes) != (uint64_t)info.st_size)
		return gn_err_set(err, GN_ERR_DATA, "%s is not a whole encrypted file", f->path);
	if (!key)
		return gn_err_set(err, GN_ERR_USAGE, "%s is encrypted: give --checkpoint-key FILE with the checkpoint that it belongs to; gannet "
				  "export writes its weights for other programs", f->path);
	status = derive(f, key, &check, err);
	if (!status && memcmp(check.bytes, f->header + CHECK_AT, sizeof check.bytes))
		status = gn_err_set(err, GN_ERR_USAGE, "%s was encrypted with another key than --checkpoint-key", f->path);
	return status;
}

enum gn_status gn_cipher_open(int fd, const char *path, const struct gn_data_key *key, struct gn_cipher_file **out, uint64_t *len_bytes,
			      struct gn_err *err)
{
	struct gn_cipher_file *f;
	enum gn_status status = make_file(fd, path, &f, err);

	if (status)
		return status;
	status = read_header(f, key, err);
	if (status) {
		gn_cipher_close(f);
		return status;
	}
	*len_bytes = f->len_bytes;
	*out = f;
	return GN_OK;
}

/* Decrypts a piece; room has GN_CIPHER_PIECE bytes and a tag. */
static enum gn_status get_piece(const struct gn_cipher_file *f, uint64_t piece, unsigned char *room, struct gn_err *err)
{
	uint64_t at = piece * GN_CIPHER_PIECE, left = f->len_bytes - at;
	size_t len = left < GN_CIPHER_PIECE ? (size_t)left : GN_CIPHER_PIECE;
	uint8_t nonce[GN_AEAD_NONCE_BYTES];
	struct gn_err why;
	enum gn_status status = gn_pread_full(f->fd, room, len + GN_AEAD_TAG_BYTES, GN_CIPHER_HEADER + at + piece * GN_AEAD_TAG_BYTES, f->path, err);

	if (status)
		return status;
	nonce_of(piece, nonce);
	status = gn_aead_decrypt(&f->key, nonce, f->header, sizeof f->header, room, len, &why);
	return status ? gn_err_set(err, status, "%s: piece %llu, at byte %llu of the text, %s", f->path, (unsigned long long)piece,
				   (unsigned long long)at, why.text)
		      : GN_OK;
}

enum gn_status gn_cipher_read(const struct gn_cipher_file *f, void *data, size_t len_bytes, uint64_t offset, struct gn_err *err)
{
	unsigned char *room, *to = data;
	enum gn_status status = GN_OK;

	if (offset > f->len_bytes || len_bytes > f->len_bytes - offset)
		return gn_err_set(err, GN_ERR_DATA, "%s ends before byte %llu", f->path, (unsigned long long)(offset + len_bytes));
	room = malloc(GN_CIPHER_PIECE + GN_AEAD_TAG_BYTES);
	if (!room)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to decrypt %s", f->path);
	while (len_bytes && !status) {
		size_t at = offset % GN_CIPHER_PIECE, n = GN_CIPHER_PIECE - at < len_bytes ? GN_CIPHER_PIECE - at : len_bytes;

		status = get_piece(f, offset / GN_CIPHER_PIECE, room, err);
		if (!status)
			memcpy(to, room + at, n);
		to += n;
		offset += n;
		len_bytes -= n;
	}
	free(room);
	return status;
}

void gn_cipher_close(struct gn_cipher_file *f)
{
	if (!f)
		return;
	gn_data_key_wipe(&f->key);
	free(f->piece);
	free(f);
}
