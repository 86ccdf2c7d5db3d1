/* Mixup: shares have the moments of the beta distribution, and a loader mixes the same samples the same way for every world
 * size, batch, number of threads and place of a resume. */
#include "tests/test.h"

#include "data/loader/loader.h"
#include "data/pack/pack.h"
#include "data/sample/mixup.h"
#include "src/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, IMAGES = 53, FLOATS = 3 * SIDE * SIDE };

static char root[64], path[80];
static struct gn_dataset *dataset;

static int make_data(void **state)
{
	struct gn_progress_bar progress = {0};
	struct gn_pack_options o = {
		.out = path, .synthetic_count = IMAGES, .synthetic_classes = 5, .synthetic_height = 16, .synthetic_width = 16,
		.shard_bytes = 1 << 20, .seed = 1, .threads = 1, .quality = 90, .progress = &progress,
	};
	struct gn_pack_result result;
	struct gn_err err;

	(void)state;
	memcpy(root, "/tmp/gannet-mixup.XXXXXX", 25);
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof path, "%s/data", root);
	if (gn_pack(&o, &result, &err) || gn_dataset_open(path, &dataset, &err)) {
		fprintf(stderr, "# %s\n", err.text);
		return -1;
	}
	return 0;
}

static int drop_data(void **state)
{
	(void)state;
	gn_dataset_close(dataset);
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static void test_shares(void **state)
{
	static const double alphas[] = {0.01, 0.2, 1, 4, 100};
	enum { draws = 20000 };

	(void)state;
	for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
		double sum = 0, square = 0, variance = 1 / (4 * (2 * alphas[k] + 1));

		for (int i = 0; i < draws; i++) {
			double lambda = gn_mixup_lambda(7, alphas[k], 3, (uint64_t)i);

			assert_true(lambda >= 0 && lambda <= 1);
			assert_true(lambda == gn_mixup_lambda(7, alphas[k], 3, (uint64_t)i));
			sum += lambda;
			square += (lambda - 0.5) * (lambda - 0.5);
		}
		/* five deviations of the mean; of the variance, which has at most 1/16 of its own */
		assert_true(fabs(sum / draws - 0.5) < 5 * sqrt(variance / draws));
		assert_true(fabs(square / draws - variance) < 5 * sqrt(1.0 / 16 / draws) * fmax(variance * 4, 0.02));
	}
	assert_true(gn_mixup_lambda(7, 0.2, 3, 1) != gn_mixup_lambda(7, 0.2, 4, 1));
	assert_true(gn_mixup_lambda(7, 0.2, 3, 1) != gn_mixup_lambda(8, 0.2, 3, 1));
}

static void test_pairs(void **state)
{
	struct gn_order order = {.count = 5};

	(void)state;
	for (uint64_t p = 0; p < 4; p++)
		assert_int_equal(gn_mixup_pair(&order, p), p ^ 1);
	assert_int_equal(gn_mixup_pair(&order, 4), 4);
}

/* What an epoch delivers, by index of the sample. */
struct epoch {
	float images[IMAGES][FLOATS];
	int32_t labels[IMAGES], pair_labels[IMAGES];
	float lambdas[IMAGES];
	int seen[IMAGES];
};

/* Beside mixup. */
static struct gn_loader_options extra;

static void run(struct epoch *e, double mixup, uint32_t ranks, uint32_t batch, int threads, uint64_t done)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct gn_loader_options o = {
			.seed = 9, .rank = rank, .ranks = ranks, .batch = batch, .channels = 3, .height = SIDE, .width = SIDE,
			.augment = GN_AUGMENT_CROP_FLIP, .mean = {0.5f, 0.5f, 0.5f}, .deviation = {0.5f, 0.5f, 0.5f},
			.mixup = mixup, .cutmix = extra.cutmix, .erasing = extra.erasing, .auto_augment = extra.auto_augment,
			.training = 1, .threads = threads,
		};
		struct gn_loader *l;
		struct gn_batch b;
		struct gn_err err;

		assert_ok(gn_loader_create(dataset, &o, &l, &err));
		assert_ok(gn_loader_start(l, 2, done, &err));
		while (!gn_loader_next(l, &b, &err)) {
			for (uint32_t i = 0; i < b.count; i++) {
				uint64_t index = b.indices[i];

				assert_int_equal(e->seen[index]++, 0);
				memcpy(e->images[index], b.images + (size_t)i * FLOATS, sizeof e->images[index]);
				e->labels[index] = b.labels[i];
				assert_int_equal(b.pair_labels != NULL, mixup > 0 || extra.cutmix > 0);
				e->pair_labels[index] = b.pair_labels ? b.pair_labels[i] : -1;
				e->lambdas[index] = b.lambdas ? b.lambdas[i] : 1;
			}
		}
		assert_int_equal(err.status, GN_ERR_NOT_FOUND);
		gn_loader_destroy(l);
	}
}

/* Everything that both saw is the same to the bit. Returns how much that is. */
static int agree(const struct epoch *a, const struct epoch *b)
{
	int both = 0;

	for (int i = 0; i < IMAGES; i++) {
		if (!a->seen[i] || !b->seen[i])
			continue;
		both++;
		assert_memory_equal(a->images[i], b->images[i], sizeof a->images[i]);
		assert_int_equal(a->labels[i], b->labels[i]);
		assert_int_equal(a->pair_labels[i], b->pair_labels[i]);
		assert_true(a->lambdas[i] == b->lambdas[i]);
	}
	return both;
}

static struct epoch plain, mixed, other;

/* By definition, from what the loader gives without mixup. */
static void test_definition(void **state)
{
	struct gn_order order = {.seed = 9, .count = IMAGES, .ranks = 1, .batch = 1, .shuffled = 1, .drops = 1};
	int blended = 0;

	(void)state;
	run(&plain, 0, 1, 1, 1, 0);
	run(&mixed, 0.4, 1, 1, 1, 0);
	for (uint64_t p = 0; p < IMAGES; p++) {
		uint64_t i = gn_order_sample(&order, 2, p), m = gn_order_sample(&order, 2, gn_mixup_pair(&order, p));
		float lambda = m == i ? 1 : (float)gn_mixup_lambda(9, 0.4, 2, i);

		assert_true(mixed.lambdas[i] == lambda);
		assert_int_equal(mixed.labels[i], plain.labels[i]);
		assert_int_equal(mixed.pair_labels[i], plain.labels[m]);
		blended += memcmp(mixed.images[i], plain.images[i], sizeof plain.images[i]) != 0;
		for (int k = 0; k < FLOATS; k++)
			assert_true(fabsf(mixed.images[i][k] - (lambda * plain.images[i][k] + (1 - lambda) * plain.images[m][k])) <
				    1e-5f);
	}
	assert_true(blended > IMAGES / 2);
}

/* With these options beside mixup: all layouts agree with one rank of one sample a batch. */
static void layouts_agree(void)
{
	static const struct {
		uint32_t ranks, batch;
		int threads;
		uint64_t done;
		int least;
	} layouts[] = {{1, 8, 1, 0, 48}, {1, 8, 3, 0, 48}, {2, 4, 1, 0, 48},  {4, 3, 2, 0, 48},
		       {3, 5, 2, 0, 45}, {1, 7, 2, 5, 42}, {2, 16, 2, 8, 32}, {1, 53, 3, 0, 53}};

	memset(&mixed, 0, sizeof mixed);
	run(&mixed, 0.4, 1, 1, 1, 0);
	for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
		memset(&other, 0, sizeof other);
		run(&other, 0.4, layouts[k].ranks, layouts[k].batch, layouts[k].threads, layouts[k].done);
		assert_true(agree(&mixed, &other) >= layouts[k].least);
	}
}

static void test_layouts_agree(void **state)
{
	(void)state;
	layouts_agree();
}

/* What a GPU gets of augmented samples, finished crops, are the same bytes. */
static void test_crops_of_augmented(void **state)
{
	struct gn_loader_options o = {
		.seed = 9, .ranks = 1, .batch = IMAGES, .channels = 3, .height = SIDE, .width = SIDE, .augment = GN_AUGMENT_CROP_FLIP,
		.mean = {0, 0, 0}, .deviation = {1, 1, 1}, .training = 1, .threads = 2, .interpolation = GN_BICUBIC,
		.auto_augment = {.policy = GN_POLICY_TRIVIAL},
	};
	struct gn_loader *floats, *crops;
	struct gn_batch a, b;
	struct gn_err err;

	(void)state;
	assert_ok(gn_loader_create(dataset, &o, &floats, &err));
	o.crops = 1;
	assert_ok(gn_loader_create(dataset, &o, &crops, &err));
	assert_ok(gn_loader_start(floats, 1, 0, &err));
	assert_ok(gn_loader_start(crops, 1, 0, &err));
	assert_ok(gn_loader_next(floats, &a, &err));
	assert_ok(gn_loader_next(crops, &b, &err));
	for (size_t i = 0; i < IMAGES; i++) {
		const struct gn_crop *c = &b.crops[i];

		assert_true(c->width == SIDE && c->height == SIDE && c->to_width == SIDE && c->to_height == SIDE && !c->flip);
		for (size_t k = 0; k < FLOATS; k++)
			assert_int_equal(c->pixels[k % (SIDE * SIDE) * 3 + k / (SIDE * SIDE)], lrintf(a.images[i * FLOATS + k] * 255));
	}
	gn_loader_destroy(floats);
	gn_loader_destroy(crops);
}

/* Everything that changes samples, together. */
static void test_layouts_agree_on_all(void **state)
{
	(void)state;
	extra.cutmix = 1;
	extra.erasing = 0.5;
	extra.auto_augment = (struct gn_auto_augment){.policy = GN_POLICY_RAND, .ops = 2, .magnitude = 9, .jitter = {0.4, 0.4, 0.4, 0.1}};
	layouts_agree();
	memset(&extra, 0, sizeof extra);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_definition),
		cmocka_unit_test(test_layouts_agree),
		cmocka_unit_test(test_layouts_agree_on_all),
		cmocka_unit_test(test_crops_of_augmented),
	};

	return cmocka_run_group_tests_name("data/mixup", tests, make_data, drop_data);
}
