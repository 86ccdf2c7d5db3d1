#include "data/loader/sample_pipeline.h"

#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "tests/data/picture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A shard whose checksums are right and whose contents are not: what a broken packer would leave behind. */
enum { good, no_jpeg, cut_short, wrong_size, samples };

static const char *const names[samples] = {"a/good.jpg", "a/no.jpg", "a/short.jpg", "a/size.jpg"};
static char directory[] = "/tmp/gannet-render-XXXXXX";
static uint8_t *files[samples];
static size_t lengths[samples];

static void must(enum gn_status status, const struct gn_err *err)
{
	if (status)
		fail_msg("%s: %s", gn_status_text(status), err->text);
}

static void make_files(void)
{
	struct picture p = {.width = 40, .height = 30, .components = 3, .across = 2, .down = 2};

	for (int i = 0; i < samples; i++)
		files[i] = picture_encode(&p, &lengths[i]);
	memset(files[no_jpeg], 'x', lengths[no_jpeg]);
	lengths[cut_short] -= lengths[cut_short] / 3;
}

static void write_shard(struct gn_manifest_shard *entry)
{
	struct gn_shard_row rows[samples];
	struct gn_shard_layout layout;
	uint64_t at = 0;
	struct gn_err err;
	char path[512];
	int fd;

	for (int i = 0; i < samples; i++) {
		rows[i] = (struct gn_shard_row){.offset = at,
						.length_bytes = (uint32_t)lengths[i],
						.crc32c = gn_crc32c(0, files[i], lengths[i]),
						.width = i == wrong_size ? 41 : 40,
						.height = 30};
		at += lengths[i];
	}
	must(gn_path_join(path, sizeof path, directory, "shard-00000.h5", &err), &err);
	must(gn_shard_write(path, rows, names, samples, 1, &layout, &err), &err);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (int i = 0; i < samples; i++)
		must(gn_pwrite_full(fd, files[i], lengths[i], layout.data_offset + rows[i].offset, path, &err), &err);
	close(fd);
	snprintf(entry->file, sizeof entry->file, "shard-00000.h5");
	entry->samples = samples;
	entry->size_bytes = layout.size_bytes;
	entry->data_offset = layout.data_offset;
	entry->data_bytes = layout.data_bytes;
	memset(entry->sha256, '0', sizeof entry->sha256 - 1);
	must(gn_shard_head_digest(path, layout.data_offset, layout.data_bytes, entry->head_sha256, &err), &err);
}

static int set_up(void **state)
{
	struct gn_dataset *d = NULL;
	struct gn_manifest m;
	struct gn_err err;

	alarm(60);
	if (!mkdtemp(directory))
		return -1;
	make_files();
	must(gn_manifest_init(&m, 1, 1, &err), &err);
	m.classes[0].name = strdup("a");
	m.classes[0].samples = m.samples = samples;
	write_shard(&m.shards[0]);
	must(gn_manifest_seal(&m, &err), &err);
	must(gn_manifest_save(&m, directory, &err), &err);
	gn_manifest_release(&m);
	must(gn_dataset_open(directory, &d, &err), &err);
	*state = d;
	return 0;
}

static int tear_down(void **state)
{
	gn_dataset_close(*state);
	for (int i = 0; i < samples; i++)
		free(files[i]);
	return gn_remove_tree(directory, NULL) ? -1 : 0;
}

static struct gn_loader_options options(void)
{
	return (struct gn_loader_options){
		.ranks = 1, .batch = 1, .channels = 3, .height = 24, .width = 24, .deviation = {1, 1, 1}, .threads = 1};
}

static void refused(struct gn_sample_pipeline *r, uint64_t index, const char *text)
{
	float image[3 * 24 * 24];
	struct gn_err err = {0};
	int32_t label = 77;

	assert_int_equal(gn_sample_pipeline_run(r, 0, index, image, NULL, &label, &err), GN_ERR_DATA);
	assert_int_equal(label, 77);
	if (!strstr(err.text, text) || !strstr(err.text, names[index]) || !strstr(err.text, directory) ||
	    !strstr(err.text, "shard 0"))
		fail_msg("\"%s\" does not name %s in shard 0 of %s, or say \"%s\"", err.text, names[index], directory,
			 text);
}

static void samples_that_lie_are_named(void **state)
{
	struct gn_loader_options o = options();
	struct gn_sample_pipeline *r = NULL;
	float image[3 * 24 * 24];
	int32_t label = -5;
	struct gn_err err;

	must(gn_sample_pipeline_create(*state, &o, &r, &err), &err);
	refused(r, no_jpeg, "Not a JPEG");
	refused(r, cut_short, "not a good JPEG");
	refused(r, wrong_size, "the JPEG is 40x30 and the shard says 41x30");
	must(gn_sample_pipeline_run(r, 0, good, image, NULL, &label, &err), &err);
	assert_int_equal(label, 0);
	gn_sample_pipeline_destroy(r);
	gn_sample_pipeline_destroy(NULL);
}

/* Each channel is normalised by its own mean and deviation. */
static void channels_have_their_own_numbers(void **state)
{
	struct gn_loader_options o = options(), scaled = o;
	struct gn_sample_pipeline *r = NULL, *s = NULL;
	float a[3 * 24 * 24], b[3 * 24 * 24];
	int32_t label;
	struct gn_err err;

	for (int c = 0; c < 3; c++) {
		scaled.mean[c] = 0.1f * (float)(c + 1);
		scaled.deviation[c] = 0.25f * (float)(c + 1);
	}
	must(gn_sample_pipeline_create(*state, &o, &r, &err), &err);
	must(gn_sample_pipeline_create(*state, &scaled, &s, &err), &err);
	must(gn_sample_pipeline_run(r, 0, good, a, NULL, &label, &err), &err);
	must(gn_sample_pipeline_run(s, 0, good, b, NULL, &label, &err), &err);
	for (int i = 0; i < 3 * 24 * 24; i++) {
		int c = i / (24 * 24);
		float expected = (a[i] - scaled.mean[c]) / scaled.deviation[c];

		assert_true(a[i] >= 0 && a[i] <= 1);
		assert_true(b[i] - expected < 1e-5f && expected - b[i] < 1e-5f);
	}
	gn_sample_pipeline_destroy(r);
	gn_sample_pipeline_destroy(s);
}

/* Without augmentation all pixels are used, as in evaluation: no decoding at half the size. */
static void training_without_augmentation_is_evaluation(void **state)
{
	struct gn_loader_options o = options();
	float image[2][3 * 8 * 8];
	struct gn_err err;
	int32_t label;

	o.height = o.width = 8;
	for (o.training = 0; o.training < 2; o.training++) {
		struct gn_sample_pipeline *r = NULL;

		must(gn_sample_pipeline_create(*state, &o, &r, &err), &err);
		must(gn_sample_pipeline_run(r, 0, good, image[o.training], NULL, &label, &err), &err);
		gn_sample_pipeline_destroy(r);
	}
	assert_memory_equal(image[0], image[1], sizeof image[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_that_lie_are_named),
		cmocka_unit_test(training_without_augmentation_is_evaluation),
		cmocka_unit_test(channels_have_their_own_numbers),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
