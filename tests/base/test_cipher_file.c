#include "tests/test.h"

#include "src/base/cipher_file.h"
#include "src/base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct gn_data_key key = {{1, 2, 3}}, other = {{1, 2, 4}};
static char path[64];

static int make_file(void **state)
{
	int fd;

	(void)state;
	memcpy(path, "/tmp/gannet-cipher.XXXXXX", 26);
	fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
	(void)state;
	return unlink(path);
}

static unsigned char text_at(size_t i)
{
	return (unsigned char)(i * 2654435761u >> 13);
}

/* Written by calls of different sizes. */
static void write_text(size_t len)
{
	unsigned char *text = malloc(len);
	struct gn_cipher_file *f;
	struct gn_sha256 *sha;
	struct gn_err err;
	char written[GN_SHA256_HEX], found[GN_SHA256_HEX];
	uint64_t size;
	int fd = open(path, O_WRONLY | O_TRUNC);

	assert_non_null(text);
	for (size_t i = 0; i < len; i++)
		text[i] = text_at(i);
	assert_ok(gn_sha256_create(&sha, &err));
	assert_ok(gn_cipher_create(fd, path, &key, len, sha, &f, &err));
	for (size_t at = 0, n = 1; at < len; at += n, n = n * 3 < len - at ? n * 3 : len - at)
		assert_ok(gn_cipher_write(f, text + at, n < len - at ? n : len - at, &err));
	assert_ok(gn_cipher_finish(f, &err));
	assert_int_equal(gn_cipher_write(f, text, 1, &err), GN_ERR_FAILED);
	gn_cipher_close(f);
	close(fd);
	gn_sha256_finish(sha, written);
	gn_sha256_destroy(sha);
	assert_ok(gn_sha256_file(path, found, &size, &err));
	assert_string_equal(written, found);
	assert_int_equal(size, gn_cipher_size(len));
	free(text);
}

/* Opens and reads len bytes from offset. */
static enum gn_status read_text(const struct gn_data_key *with, unsigned char *text, size_t len, uint64_t offset, struct gn_err *err)
{
	struct gn_cipher_file *f;
	uint64_t found;
	int fd = open(path, O_RDONLY);
	enum gn_status status = gn_cipher_open(fd, path, with, &f, &found, err);

	if (!status) {
		status = gn_cipher_read(f, text, len, offset, err);
		gn_cipher_close(f);
	}
	close(fd);
	return status;
}

static void test_any_range_is_read(void **state)
{
	static const size_t lengths[] = {1, 1000, GN_CIPHER_PIECE - 1, GN_CIPHER_PIECE, GN_CIPHER_PIECE + 1, 3 * GN_CIPHER_PIECE + 77};
	static unsigned char text[3 * GN_CIPHER_PIECE + 77];
	struct gn_err err;

	(void)state;
	for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
		size_t len = lengths[k], starts[] = {0, len / 2, len - 1};

		write_text(len);
		for (size_t s = 0; s < 3; s++) {
			assert_ok(read_text(&key, text, len - starts[s], starts[s], &err));
			for (size_t i = starts[s]; i < len; i++)
				if (text[i - starts[s]] != text_at(i))
					fail_msg("length %zu, byte %zu", len, i);
		}
		assert_int_equal(read_text(&key, text, 1, len, &err), GN_ERR_DATA);
		assert_int_equal(read_text(&key, text, 2, len - 1, &err), GN_ERR_DATA);
	}
}

static void test_keys_are_named(void **state)
{
	unsigned char text[8];
	struct gn_err err;

	(void)state;
	write_text(8);
	assert_int_equal(read_text(NULL, text, 8, 0, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "is encrypted"));
	assert_int_equal(read_text(&other, text, 8, 0, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "another key"));
}

static void test_every_bit_counts(void **state)
{
	unsigned char text[64], *file;
	size_t len;
	struct gn_err err;
	int fd;

	(void)state;
	write_text(sizeof text);
	assert_ok(gn_file_load(path, 1 << 20, (char **)&file, &len, &err));
	fd = open(path, O_WRONLY);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		file[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_int_equal(pwrite(fd, file, len, 0), len);
		if (!read_text(&key, text, sizeof text, 0, &err))
			fail_msg("bit %zu was changed, and nothing noticed", bit);
		file[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	assert_int_equal(pwrite(fd, file, len, 0), len);
	assert_ok(read_text(&key, text, sizeof text, 0, &err));
	for (size_t less = 1; less <= len; less++) {
		assert_int_equal(ftruncate(fd, (off_t)(len - less)), 0);
		assert_int_not_equal(read_text(&key, text, 1, 0, &err), GN_OK);
	}
	close(fd);
	free(file);
}

static void test_pieces_keep_their_places(void **state)
{
	static unsigned char piece[2][GN_CIPHER_PIECE + GN_AEAD_TAG_BYTES];
	unsigned char text[1];
	struct gn_err err;
	int fd;

	(void)state;
	write_text(2 * GN_CIPHER_PIECE);
	fd = open(path, O_RDWR);
	assert_ok(gn_pread_full(fd, piece, sizeof piece, GN_CIPHER_HEADER, path, &err));
	assert_int_equal(pwrite(fd, piece[1], sizeof piece[1], GN_CIPHER_HEADER), sizeof piece[1]);
	close(fd);
	assert_int_equal(read_text(&key, text, 1, 0, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "piece 0"));
	assert_ok(read_text(&key, text, 1, GN_CIPHER_PIECE, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_any_range_is_read, make_file, drop_file),
		cmocka_unit_test_setup_teardown(test_keys_are_named, make_file, drop_file),
		cmocka_unit_test_setup_teardown(test_every_bit_counts, make_file, drop_file),
		cmocka_unit_test_setup_teardown(test_pieces_keep_their_places, make_file, drop_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
