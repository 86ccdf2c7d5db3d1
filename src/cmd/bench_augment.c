#include "src/cmd/bench_augment.h"

#include "data/sample/auto_augment.h"
#include "data/sample/mixup.h"
#include "src/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Work that is timed: on image number i. */
struct work {
	struct gn_loader_options options;
	struct gn_bitmap bitmap;
	const uint8_t *source; /* what the bitmap holds before each run: an operation on its own results soon sees a black image */
	float *image, *pair;
	enum gn_image_op op;
	double magnitude;
	void (*run)(struct work *w, uint64_t i);
};

static void run_policy(struct work *w, uint64_t i)
{
	gn_auto_augment_apply(&w->options.auto_augment, 1, 0, i, &w->bitmap);
}

static void run_erasing(struct work *w, uint64_t i)
{
	gn_random_erase(1, 1, 0, i, w->options.channels, w->options.height, w->options.width, w->image);
}

static void run_cutmix(struct work *w, uint64_t i)
{
	struct gn_mix m;

	gn_mix_draw(&w->options, 0, i, &m);
	gn_mix_apply(&m, &w->options, w->image, w->pair);
}

static void run_op(struct work *w, uint64_t i)
{
	(void)i;
	gn_image_op_apply(w->op, w->magnitude, &w->bitmap);
}

/* The least of three rounds, microseconds for an image. */
static double measure(struct work *w)
{
	enum { rounds = 3, images = 24 };
	double least = INFINITY;

	for (int k = 0; k < rounds; k++) {
		double took = 0;

		for (uint64_t i = 0; i < images; i++) {
			double began;

			memcpy(w->bitmap.pixels, w->source, (size_t)w->bitmap.width * w->bitmap.height * w->bitmap.channels);
			began = gn_clock_thread_cpu_s();
			w->run(w, i);
			took += (gn_clock_thread_cpu_s() - began) * 1e6;
		}
		least = fmin(least, took / images);
	}
	return least;
}

static void measure_all(struct work *w, struct gn_bench_augment_row *rows)
{
	static const struct {
		const char *name;
		struct gn_auto_augment augment;
		void (*run)(struct work *w, uint64_t i);
	} kinds[] = {
		{"randaugment 2,9", {.policy = GN_POLICY_RAND, .ops = 2, .magnitude = 9}, run_policy},
		{"trivialaugment", {.policy = GN_POLICY_TRIVIAL}, run_policy},
		{"auto-augment imagenet", {.policy = GN_POLICY_IMAGENET}, run_policy},
		{"color-jitter 0.4,0.4,0.4,0.1", {.jitter = {0.4, 0.4, 0.4, 0.1}}, run_policy},
		{"random-erasing 1", {.policy = GN_POLICY_NONE}, run_erasing},
		{"cutmix 1", {.policy = GN_POLICY_NONE}, run_cutmix},
	};
	size_t row = 0;

	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++, row++) {
		w->options.auto_augment = kinds[k].augment;
		w->run = kinds[k].run;
		rows[row] = (struct gn_bench_augment_row){kinds[k].name, measure(w)};
	}
	w->run = run_op;
	for (int op = GN_OP_IDENTITY + 1; op < GN_OP_COUNT; op++, row++) {
		w->op = (enum gn_image_op)op;
		w->magnitude = w->op == GN_OP_HUE ? 0.1 : gn_auto_augment_magnitude(GN_POLICY_RAND, w->op, 9, w->options.width,
										    w->options.height);
		rows[row] = (struct gn_bench_augment_row){gn_image_op_name(w->op), measure(w)};
	}
}

enum gn_status gn_bench_augment(uint32_t side, struct gn_bench_augment_row rows[GN_BENCH_AUGMENT_ROWS], struct gn_err *err)
{
	const size_t values = 3 * (size_t)side * side;
	uint8_t *bytes = malloc(3 * values);
	struct work w = {.options = {.seed = 1, .channels = 3, .height = side, .width = side, .cutmix = 1},
			 .bitmap = {bytes, bytes ? bytes + values : NULL, side, side, 3}, .source = bytes ? bytes + 2 * values : NULL,
			 .image = calloc(values, sizeof(float)), .pair = calloc(values, sizeof(float))};
	enum gn_status status = GN_OK;

	if (bytes && w.image && w.pair) {
		for (size_t i = 0; i < values; i++)
			bytes[2 * values + i] = (uint8_t)(i * 2654435761u >> 13);
		measure_all(&w, rows);
	} else {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for images of side %u", side);
	}
	free(bytes);
	free(w.image);
	free(w.pair);
	return status;
}
