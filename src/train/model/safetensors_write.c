/* Writing safetensors files. */
#include "src/train/model/safetensors.h"

#include "src/base/cipher_file.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const size_t prefix_bytes = 8;
enum { PIECE_BYTES = 1 << 18 };

static void put_entry(struct gn_json *j, const struct gn_tensor_entry *t, uint64_t offset)
{
	gn_json_object(j, t->name);
	gn_json_put(j, "dtype %s shape [", gn_safetensors_type_name(t->type));
	for (int d = 0; d < t->dims; d++)
		gn_json_int(j, NULL, t->shape[d]);
	gn_json_put(j, "] data_offsets [");
	gn_json_uint(j, NULL, offset);
	gn_json_uint(j, NULL, offset + t->len_bytes);
	gn_json_put(j, "] }");
}

static void put_header(struct gn_json *j, const struct gn_tensor_entry *tensors, size_t count,
		       const char *const *metadata, size_t count_metadata)
{
	uint64_t offset = 0;

	gn_json_object(j, NULL);
	if (count_metadata) {
		gn_json_object(j, "__metadata__");
		for (size_t i = 0; i < count_metadata; i++)
			gn_json_string(j, metadata[2 * i], metadata[2 * i + 1]);
		gn_json_end(j);
	}
	for (size_t i = 0; i < count; i++) {
		put_entry(j, &tensors[i], offset);
		offset += tensors[i].len_bytes;
	}
	gn_json_end(j);
	/* pads the header with spaces, so that data starts at a multiple of eight */
	while ((prefix_bytes + j->text.len) % 8)
		gn_strbuf_puts(&j->text, " ");
}

/* A file that is being written. */
struct sink {
	int fd;
	const char *path;
	struct gn_sha256 *sha;
	struct gn_cipher_file *cipher; /* NULL: plain */
};

static enum gn_status put_bytes(const struct sink *to, const void *data, size_t len, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (to->cipher)
		return gn_cipher_write(to->cipher, data, len, err);
	/* what was just read for the digest is in the cache when it is written */
	for (size_t at = 0, n; at < len && !status; at += n) {
		n = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;
		gn_sha256_update(to->sha, (const char *)data + at, n);
		status = gn_write_full(to->fd, (const char *)data + at, n, to->path, err);
	}
	return status;
}

static enum gn_status put_all(const struct sink *to, const struct gn_json *header, const struct gn_tensor_entry *tensors, size_t count,
			      struct gn_err *err)
{
	unsigned char prefix[8];
	enum gn_status status;

	for (size_t i = 0; i < prefix_bytes; i++)
		prefix[i] = (unsigned char)(header->text.len >> (8 * i));
	status = put_bytes(to, prefix, sizeof prefix, err);
	if (!status)
		status = put_bytes(to, gn_json_text(header), header->text.len, err);
	for (size_t i = 0; i < count && !status; i++)
		status = put_bytes(to, tensors[i].data, tensors[i].len_bytes, err);
	if (!status && to->cipher)
		status = gn_cipher_finish(to->cipher, err);
	if (!status && fsync(to->fd))
		status = gn_err_errno(err, errno, "cannot sync %s", to->path);
	return status;
}

static enum gn_status write_all(int fd, const char *path, const struct gn_data_key *key, const struct gn_json *header,
				const struct gn_tensor_entry *tensors, size_t count, char hex[65], uint64_t *len_bytes,
				struct gn_err *err)
{
	struct sink to = {.fd = fd, .path = path};
	uint64_t total = prefix_bytes + header->text.len;
	enum gn_status status = gn_sha256_create(&to.sha, err);

	if (status)
		return status;
	for (size_t i = 0; i < count; i++)
		total += tensors[i].len_bytes;
	if (key)
		status = gn_cipher_create(fd, path, key, total, to.sha, &to.cipher, err);
	if (!status)
		status = put_all(&to, header, tensors, count, err);
	if (!status && hex)
		gn_sha256_finish(to.sha, hex);
	if (!status && len_bytes)
		*len_bytes = key ? gn_cipher_size(total) : total;
	gn_cipher_close(to.cipher);
	gn_sha256_destroy(to.sha);
	return status;
}

enum gn_status gn_safetensors_write(const char *path, const struct gn_data_key *key, const struct gn_tensor_entry *tensors, size_t count,
				    const char *const *metadata, size_t count_metadata, char hex[65],
				    uint64_t *len_bytes, struct gn_err *err)
{
	struct gn_json header;
	enum gn_status status;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot create %s", path);
	gn_json_init(&header);
	put_header(&header, tensors, count, metadata, count_metadata);
	if (gn_json_failed(&header))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the header of %s", path);
	else
		status = write_all(fd, path, key, &header, tensors, count, hex, len_bytes, err);
	gn_json_release(&header);
	if (close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", path);
	if (status)
		unlink(path);
	return status;
}
