#include "tests/test.h"

#include "src/base/file.h"
#include "src/train/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64], path[128];

static int make_root(void **state)
{
	(void)state;
	memcpy(root, "/tmp/gannet-manifest.XXXXXX", 28);
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof path, "%s/manifest.json", root);
	return 0;
}

static int drop_root(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static const struct gn_checkpoint_info sample = {
	.state = {.step = 120, .epoch = 3, .sample = 640, .seed = 7, .skipped = 2},
	.input = {.mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}, .resize_shorter = 256},
	.model = "resnet18", .classes = 10, .channels = 3, .side = 64, .global_batch = 64, .world_size = 4,
	.options = "lr=0.1 mixup=", .dataset_digest = "d", .classes_digest = "c", .layout_digest = "l", .optimizer = GN_OPTIM_LAMB,
};
static const struct gn_checkpoint_file file = {.name = "model.safetensors", .len_bytes = 12, .sha256 = "abc"};

static void test_round_trip(void **state)
{
	struct gn_checkpoint_info info;
	struct gn_checkpoint_file *files;
	size_t count;
	struct gn_err err;
	char *options;

	(void)state;
	assert_ok(gn_checkpoint_manifest_write(root, &sample, &file, 1, &err));
	assert_ok(gn_checkpoint_manifest_read(root, &info, &files, &count, &err));
	assert_int_equal(count, 1);
	assert_string_equal(files[0].name, "model.safetensors");
	assert_int_equal(files[0].len_bytes, 12);
	assert_int_equal(info.state.step, 120);
	assert_int_equal(info.state.sample, 640);
	assert_int_equal(info.state.skipped, 2);
	assert_int_equal(info.optimizer, GN_OPTIM_LAMB);
	assert_false(info.has_average);
	assert_string_equal(info.model, "resnet18");
	assert_true(info.input.deviation[2] == 0.225);
	assert_null(info.options);
	free(files);
	assert_ok(gn_checkpoint_options(root, &options, &err));
	assert_string_equal(options, sample.options);
	free(options);
}

/* One thing after another is replaced by what makes no sense. */
static void test_nonsense_is_refused(void **state)
{
	static const struct {
		const char *find, *put;
	} cases[] = {
		{"gannet-checkpoint", "other"}, {"\"version\": 1", "\"version\": 0"}, {"\"version\": 1", "\"version\": 1.5"}, {"\"step\": 120", "\"step\": -1"},
		{"\"epoch\": 3", "\"epoch\": 3.5"}, {"\"seed\": 7", "\"seed\": \"7\""}, {"\"world_size\": 4", "\"world_size\": 0"},
		{"\"side\": 64", "\"side\": 1e9"}, {"0.229", "0.0"}, {"0.229", "\"x\""}, {"\"bytes\": 12", "\"bytes\": -12"},
		{"model.safetensors", "../model"}, {"model.safetensors", ".hidden"}, {"model.safetensors", ""},
		{"[{\"name\"", "[{\"nome\""}, {"{", "["}, {"\"resnet18\"", "\"a name that is much too long for any network\""},
		{"\"lamb\"", "\"adam\""}, {"\"lamb\"", "2"}, {"\"skipped\": 2", "\"skipped\": 121"},
		{"\"skipped\": 2", "\"skipped\": null"},
	};
	struct gn_checkpoint_info info;
	struct gn_checkpoint_file *files;
	size_t count, len;
	struct gn_err err;
	char *text;

	(void)state;
	assert_ok(gn_checkpoint_manifest_write(root, &sample, &file, 1, &err));
	assert_ok(gn_file_load(path, 1 << 20, &text, &len, &err));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *at = strstr(text, cases[i].find);
		char bent[4096];
		int n;

		assert_non_null(at);
		n = snprintf(bent, sizeof bent, "%.*s%s%s", (int)(at - text), text, cases[i].put,
			     at + strlen(cases[i].find));
		assert_ok(gn_file_replace(path, bent, (size_t)n, &err));
		if (gn_checkpoint_manifest_read(root, &info, &files, &count, &err) != GN_ERR_DATA)
			fail_msg("case %zu passed", i);
	}
	free(text);
}

/* Not damaged: who passes it over would go on from an older one without a word. */
static void test_newer_format(void **state)
{
	struct gn_checkpoint_info info;
	struct gn_checkpoint_file *files;
	size_t count, len;
	struct gn_err err;
	char *text;

	(void)state;
	assert_ok(gn_checkpoint_manifest_write(root, &sample, &file, 1, &err));
	assert_ok(gn_file_load(path, 1 << 20, &text, &len, &err));
	*(strstr(text, "\"version\": 1") + 11) = '7';
	assert_ok(gn_file_replace(path, text, len, &err));
	assert_int_equal(gn_checkpoint_manifest_read(root, &info, &files, &count, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "format version 7, this program knows up to 2"));
	free(text);
}

/* Before there were optimizers to choose from. */
static void test_earlier_ones(void **state)
{
	const struct gn_checkpoint_file files[2] = {file, {.name = "ema.safetensors", .len_bytes = 12, .sha256 = "abc"}};
	struct gn_checkpoint_info info;
	struct gn_checkpoint_file *found;
	size_t count, len;
	struct gn_err err;
	char *text;

	(void)state;
	assert_ok(gn_checkpoint_manifest_write(root, &sample, files, 2, &err));
	assert_ok(gn_file_load(path, 1 << 20, &text, &len, &err));
	memcpy(strstr(text, "optimizer"), "earlier_1", 9);
	memcpy(strstr(text, "skipped"), "earlier", 7);
	assert_ok(gn_file_replace(path, text, len, &err));
	assert_ok(gn_checkpoint_manifest_read(root, &info, &found, &count, &err));
	assert_int_equal(info.optimizer, GN_OPTIM_SGD);
	assert_int_equal(info.state.skipped, 0);
	assert_true(info.has_average);
	free(found);
	free(text);
}

/* Of who wrote no names, and of who wrote something else. */
static void test_class_names(void **state)
{
	static const char head[] = "{\"class_names\": [\"tench\", \"a \\\"b\\\"\"", *const tails[2] = {"]}", ", 3]}"};
	char text[128], *names = text;
	struct gn_err err;

	(void)state;
	assert_ok(gn_checkpoint_manifest_write(root, &sample, &file, 1, &err));
	assert_ok(gn_checkpoint_class_names(root, &names, &err));
	assert_null(names);
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof text, "%s%s", head, tails[i]);
		assert_ok(gn_file_replace(path, text, strlen(text), &err));
		if (!i)
			assert_ok(gn_checkpoint_class_names(root, &names, &err));
	}
	assert_string_equal(names, "[\"tench\", \"a \\\"b\\\"\"]");
	free(names);
	assert_int_equal(gn_checkpoint_class_names(root, &names, &err), GN_ERR_DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_nonsense_is_refused),
		cmocka_unit_test(test_newer_format),
		cmocka_unit_test(test_earlier_ones),
		cmocka_unit_test(test_class_names),
	};

	return cmocka_run_group_tests_name("train/manifest", tests, make_root, drop_root);
}
