/* Keys, samples and manifests of encrypted datasets: what is changed, moved or opened with another key is found. */
#include "data/pack/pack.h"
#include "data/shard/dataset.h"
#include "data/shard/encryption.h"
#include "src/base/file.h"
#include "tests/test.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 100, STORED = LENGTH + GN_AEAD_TAG_BYTES };

static const struct gn_data_key key = {{1, 2, 3}};
static const struct gn_shard_row row = {.length_bytes = STORED, .label = 7, .width = 30, .height = 20};
static char root[32], path[64], key_file[64];

static void key_derivation_is_hkdf(void **state)
{
	uint8_t salt[GN_DATA_SALT_BYTES] = {9, 8, 7}, expected[32];
	size_t len = sizeof expected;
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);
	struct gn_data_key made;
	struct gn_err err;

	(void)state;
	assert_non_null(c);
	assert_int_equal(EVP_PKEY_derive_init(c), 1);
	assert_int_equal(EVP_PKEY_CTX_set_hkdf_md(c, EVP_sha256()), 1);
	assert_int_equal(EVP_PKEY_CTX_set1_hkdf_salt(c, salt, sizeof salt), 1);
	assert_int_equal(EVP_PKEY_CTX_set1_hkdf_key(c, key.bytes, sizeof key.bytes), 1);
	assert_int_equal(EVP_PKEY_CTX_add1_hkdf_info(c, (const unsigned char *)"a use", 5), 1);
	assert_int_equal(EVP_PKEY_derive(c, expected, &len), 1);
	EVP_PKEY_CTX_free(c);
	assert_ok(gn_data_key_derive(&key, salt, "a use", &made, &err));
	assert_memory_equal(made.bytes, expected, 32);
	assert_ok(gn_data_key_derive(&key, salt, "another use", &made, &err));
	assert_memory_not_equal(made.bytes, expected, 32);
}

static void encrypt(unsigned char *data, uint32_t shard, uint64_t index)
{
	struct gn_err err;

	memset(data, 'x', LENGTH);
	assert_ok(gn_sample_encrypt(&key, shard, index, &row, data, &err));
}

static void a_sample_is_decrypted(void **state)
{
	unsigned char data[STORED], other[STORED];
	struct gn_err err;

	(void)state;
	encrypt(data, 3, 5);
	encrypt(other, 3, 6);
	assert_memory_not_equal(data, other, LENGTH);
	encrypt(other, 4, 5);
	assert_memory_not_equal(data, other, LENGTH);
	for (int i = 0; i < LENGTH - 8; i++)
		assert_memory_not_equal(data + i, "xxxxxxxx", 8);
	assert_ok(gn_sample_decrypt(&key, 3, 5, &row, data, &err));
	for (int i = 0; i < LENGTH; i++)
		assert_int_equal(data[i], 'x');
}

static void every_flipped_bit_is_found(void **state)
{
	unsigned char good[STORED], data[STORED];
	struct gn_err err;

	(void)state;
	encrypt(good, 3, 5);
	for (int bit = 0; bit < 8 * STORED; bit++) {
		memcpy(data, good, STORED);
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
		if (gn_sample_decrypt(&key, 3, 5, &row, data, &err) != GN_ERR_DATA)
			fail_msg("bit %d was not found", bit);
		for (int i = 0; i < LENGTH; i++)
			assert_int_equal(data[i], 0);
	}
}

static void refused(const struct gn_data_key *k, uint32_t shard, uint64_t index, struct gn_shard_row r)
{
	unsigned char data[STORED];
	struct gn_err err;

	encrypt(data, 3, 5);
	assert_int_equal(gn_sample_decrypt(k, shard, index, &r, data, &err), GN_ERR_DATA);
}

static void a_moved_sample_is_found(void **state)
{
	const struct gn_data_key other = {{1, 2, 4}};
	struct gn_shard_row r = row;

	(void)state;
	refused(&other, 3, 5, r);
	refused(&key, 4, 5, r);
	refused(&key, 3, 6, r);
	r.label++;
	refused(&key, 3, 5, r);
	r = row;
	r.width--;
	refused(&key, 3, 5, r);
	r = row;
	r.height++;
	refused(&key, 3, 5, r);
	r = row;
	r.length_bytes--;
	refused(&key, 3, 5, r);
	r.length_bytes = GN_AEAD_TAG_BYTES;
	refused(&key, 3, 5, r);
}

static void a_changed_manifest_is_found(void **state)
{
	struct gn_dataset *d;
	struct gn_manifest m;
	struct gn_err err;
	char *name, *buffer;

	(void)state;
	assert_ok(gn_dataset_open(path, &d, &err));
	buffer = malloc(gn_dataset_max_length(d));
	assert_int_equal(gn_dataset_read(d, 0, buffer, &err), GN_ERR_USAGE);
	assert_ok(gn_dataset_unlock(d, key_file, &err));
	assert_ok(gn_dataset_read(d, 0, buffer, &err));
	assert_memory_equal(buffer, "\xff\xd8\xff", 3);
	free(buffer);
	gn_dataset_close(d);
	/* as someone without the key would: classes exchanged, all digests right */
	assert_ok(gn_manifest_load(path, &m, &err));
	name = m.classes[0].name;
	m.classes[0].name = m.classes[1].name;
	m.classes[1].name = name;
	assert_ok(gn_manifest_seal(&m, &err));
	assert_ok(gn_manifest_save(&m, path, &err));
	gn_manifest_release(&m);
	assert_ok(gn_dataset_open(path, &d, &err));
	assert_int_equal(gn_dataset_unlock(d, key_file, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "fails its authentication"));
	gn_dataset_close(d);
}

static int make_data(void **state)
{
	struct gn_progress_bar progress = {0};
	struct gn_pack_options o = {
		.out = path, .synthetic_count = 12, .synthetic_classes = 3, .synthetic_height = 16, .synthetic_width = 16,
		.shard_bytes = 2000, .seed = 1, .threads = 2, .quality = 90, .key_file = key_file, .progress = &progress,
	};
	struct gn_pack_result result;
	struct gn_err err;

	(void)state;
	snprintf(root, sizeof root, "/tmp/gannet-encrypt.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof path, "%s/data", root);
	snprintf(key_file, sizeof key_file, "%s/key", root);
	if (gn_file_replace(key_file, key.bytes, sizeof key.bytes, &err) || chmod(key_file, 0600) || gn_pack(&o, &result, &err)) {
		fprintf(stderr, "# %s\n", err.text);
		return -1;
	}
	return 0;
}

static int drop_data(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_derivation_is_hkdf),
		cmocka_unit_test(a_sample_is_decrypted),
		cmocka_unit_test(every_flipped_bit_is_found),
		cmocka_unit_test(a_moved_sample_is_found),
		cmocka_unit_test(a_changed_manifest_is_found),
	};

	return cmocka_run_group_tests_name("encryption", tests, make_data, drop_data);
}
