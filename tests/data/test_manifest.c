#include "data/shard/manifest.h"
#include "data/shard/names.h"
#include "src/base/file.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/gannet-manifest-XXXXXX";

static void sample(struct gn_manifest *m)
{
	static const char *const names[] = {"plain", "a\"quote\\", "new\nline", "\xc3\xbc"};
	struct gn_err err;

	assert_ok(gn_manifest_init(m, 4, 2, &err));
	for (uint32_t i = 0; i < 4; i++) {
		m->classes[i].name = strdup(names[i]);
		m->classes[i].samples = i * 10;
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct gn_manifest_shard *s = &m->shards[i];

		snprintf(s->file, sizeof s->file, "shard-%05u.h5", i);
		s->samples = 30;
		s->size_bytes = 5000 + i;
		s->data_offset = 2048;
		s->data_bytes = 2900;
		memset(s->sha256, 'a' + (int)i, 64);
		memset(s->head_sha256, '0' + (int)i, 64);
	}
	m->samples = 60;
	m->seed = 99;
	m->skipped = 3;
	assert_ok(gn_manifest_seal(m, &err));
}

static char *sample_text(size_t *len)
{
	char path[4096], *text;
	struct gn_manifest m;
	struct gn_err err;

	sample(&m);
	assert_ok(gn_manifest_save(&m, folder, &err));
	gn_manifest_release(&m);
	assert_ok(gn_path_join(path, sizeof path, folder, GN_MANIFEST_NAME, &err));
	assert_ok(gn_file_load(path, 1 << 20, &text, len, &err));
	return text;
}

static void what_is_saved_is_loaded(void **state)
{
	struct gn_manifest saved, m;
	struct gn_err err;

	(void)state;
	sample(&saved);
	assert_ok(gn_manifest_save(&saved, folder, &err));
	assert_ok(gn_manifest_load(folder, &m, &err));
	assert_int_equal(m.class_count, 4);
	assert_int_equal(m.shard_count, 2);
	assert_int_equal(m.samples, 60);
	assert_int_equal(m.seed, 99);
	assert_int_equal(m.skipped, 3);
	assert_string_equal(m.digest, saved.digest);
	for (uint32_t i = 0; i < 4; i++) {
		assert_string_equal(m.classes[i].name, saved.classes[i].name);
		assert_int_equal(m.classes[i].samples, saved.classes[i].samples);
	}
	assert_memory_equal(m.shards, saved.shards, 2 * sizeof *m.shards);
	gn_manifest_release(&m);
	gn_manifest_release(&saved);
}

static void digest_depends_on_what_it_covers(void **state)
{
	struct gn_manifest m;
	char before[GN_SHA256_HEX];
	struct gn_err err;

	(void)state;
	sample(&m);
	memcpy(before, m.digest, sizeof before);
	assert_ok(gn_manifest_seal(&m, &err));
	assert_string_equal(m.digest, before);
	m.seed = 1;
	assert_ok(gn_manifest_seal(&m, &err));
	assert_string_not_equal(m.digest, before);
	m.seed = 99;
	m.skipped = 4;
	assert_ok(gn_manifest_seal(&m, &err));
	assert_string_not_equal(m.digest, before);
	m.skipped = 3;
	m.shards[1].sha256[5] = '7';
	assert_ok(gn_manifest_seal(&m, &err));
	assert_string_not_equal(m.digest, before);
	gn_manifest_release(&m);
	sample(&m);
	m.classes[2].name[0] = 'N';
	assert_ok(gn_manifest_seal(&m, &err));
	assert_string_not_equal(m.digest, before);
	gn_manifest_release(&m);
}

/* text with the first `from` replaced by `to`. */
static char *replace(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	size_t size = strlen(text) + strlen(to) + 1;
	char *out = malloc(size);

	assert_non_null(at);
	assert_non_null(out);
	snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return out;
}

static void every_lie_is_found(void **state)
{
	static const char *const lies[][3] = {
		{"gannet-dataset", "other", "not the manifest"},
		{"\"version\": 2", "\"version\": 4", "version"},
		{"\"version\": 2", "\"version\": 3", "encryption"},
		{"\"version\": 2", "\"version\": 2, \"encryption\": {}", "encryption"},
		{"\"version\": 2", "\"version\": 0", "version"},
		{"\"version\": 2", "\"version\": 1", "digest"},
		{"\"version\": 2", "\"version\": \"2\"", "version"},
		{"\"samples\": 60", "\"samples\": 61", "not 61"},
		{"\"samples\": 60", "\"samples\": -60", "samples"},
		{"\"samples\": 60", "\"samples\": 1e2", "samples"},
		{"\"samples\": 60", "\"samples\": 99999999999999999999", "integer"},
		{"\"seed\": 99", "\"seed\": null", "seed"},
		{"\"seed\": 99", "\"seed\": 98", "digest"},
		{"\"skipped\": 3", "\"skipped\": 0", "digest"},
		{"\"name\": \"plain\"", "\"name\": \"\"", "classes"},
		{"\"name\": \"plain\"", "\"name\": \"new\\nline\"", "twice"},
		{"\"name\": \"plain\"", "\"name\": \"pl\\u0000ain\"", "NUL"},
		{"\"name\": \"plain\"", "\"name\": 5", "classes"},
		{"\"name\": \"plain\"", "\"name\": \"plaiN\"", "digest"},
		{"\"classes\": [", "\"classes\": [], \"x\": [", "classes"},
		{"\"shards\": [", "\"shards\": [], \"x\": [", "shards"},
		{"\"shards\": [", "\"shards\": {}, \"x\": [", "shards"},
		{"\"shards\": [", "\"shards\": [7, ", "shards"},
		{"shard-00000.h5", "../shard.h5", "shards"},
		{"shard-00000.h5", "/etc/passwd", "shards"},
		{"shard-00000.h5", "..", "shards"},
		{"shard-00000.h5", "", "shards"},
		{"\"bytes\": 5000", "\"bytes\": 4000", "shards"},
		{"\"data_offset\": 2048", "\"data_offset\": 9223372036854775807", "shards"},
		{"\"data_bytes\": 2900", "\"data_bytes\": 9223372036854775807", "shards"},
		{"\"data_bytes\": 2900", "\"data_bytes\": 2901", "digest"},
		{"aaaaaaaa", "aaaaaaa", "shards"},
		{"aaaaaaaa", "AAAAAAAA", "shards"},
		{"aaaaaaaa", "baaaaaaa", "digest"},
		{"\"seed\"", "\"samples\"", "duplicate"},
	};
	size_t len;
	char *text = sample_text(&len);

	(void)state;
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		char *changed = replace(text, lies[i][0], lies[i][1]);
		struct gn_manifest m;
		struct gn_err err = {0};

		if (gn_manifest_parse(changed, strlen(changed), "test", &m, &err) != GN_ERR_DATA ||
		    !strstr(err.text, lies[i][2]))
			fail_msg("'%s' -> '%s' gives '%s', not '%s'", lies[i][0], lies[i][1], err.text, lies[i][2]);
		free(changed);
	}
	free(text);
}

/* Datasets packed before seed and skipped went into the digest. */
static void version_1_is_read(void **state)
{
	static const char text[] =
		"{\"format\": \"gannet-dataset\", \"version\": 1, \"samples\": 7, \"seed\": 5, \"skipped\": 1, \"digest\": "
		"\"9fb5bf21246f591f8e27e48d39a3c33870864d92b0673925c1b806b3a8332f89\", "
		"\"classes\": [{\"name\": \"cat\", \"samples\": 7}], \"shards\": [{\"file\": \"s.h5\", \"samples\": 7, "
		"\"bytes\": 5000, \"data_offset\": 2048, \"data_bytes\": 2900, "
		"\"sha256\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", "
		"\"head_sha256\": \"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}]}";
	struct gn_manifest m, again;
	struct gn_err err;

	(void)state;
	assert_ok(gn_manifest_parse(text, strlen(text), "test", &m, &err));
	assert_int_equal(m.version, 1);
	assert_ok(gn_manifest_save(&m, folder, &err)); /* as gannet stage does */
	assert_ok(gn_manifest_load(folder, &again, &err));
	assert_string_equal(again.digest, m.digest);
	gn_manifest_release(&again);
	gn_manifest_release(&m);
}

static void every_cut_is_found(void **state)
{
	size_t len;
	char *text = sample_text(&len);
	struct gn_manifest m;
	struct gn_err err;

	(void)state;
	for (size_t cut = 0; cut + 1 < len; cut++)
		assert_int_equal(gn_manifest_parse(text, cut, "test", &m, &err), GN_ERR_DATA);
	free(text);
	assert_int_equal(gn_manifest_load("/nowhere/at/all", &m, &err), GN_ERR_NOT_FOUND);
	assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

static void names_are_numbered(void **state)
{
	struct gn_names *n;
	struct gn_err err;
	char text[32];
	uint32_t id;

	(void)state;
	assert_ok(gn_names_create(&n, &err));
	assert_false(gn_names_find(n, "x", &id));
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 5000; i++) {
			snprintf(text, sizeof text, "n%08u", i * 7);
			assert_ok(gn_names_add(n, text, &id, &err));
			assert_int_equal(id, i);
		}
	assert_int_equal(gn_names_count(n), 5000);
	assert_true(gn_names_find(n, "n00000070", &id));
	assert_int_equal(id, 10);
	assert_false(gn_names_find(n, "n00000071", &id));
	assert_string_equal(gn_names_get(n, 4999), "n00034993");
	gn_names_destroy(n);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	return gn_remove_tree(folder, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_saved_is_loaded),
		cmocka_unit_test(digest_depends_on_what_it_covers),
		cmocka_unit_test(every_lie_is_found),
		cmocka_unit_test(version_1_is_read),
		cmocka_unit_test(every_cut_is_found),
		cmocka_unit_test(names_are_numbered),
	};

	return cmocka_run_group_tests_name("manifest", tests, make_folder, remove_folder);
}
