/* Predictors of gradients: they learn what is linear in the output and the labels, alike in all layouts. */
#include "tests/test.h"

#include "src/base/half.h"
#include "src/train/parallel/pipe_predictor.h"

#include <stdlib.h>
#include <string.h>

enum { IMAGES = 6, CHANNELS = 5, SIDE = 3, CLASSES = 4, PIXELS = SIDE * SIDE, BLOCK = 8 };

static float drawn(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static size_t place(int block, int n, int c, int pixel)
{
	if (block == 0)
		return (size_t)((n * PIXELS + pixel) * CHANNELS + c);
	if (block == 1)
		return (size_t)((n * CHANNELS + c) * PIXELS + pixel);
	return (size_t)((n * PIXELS + pixel) * BLOCK + c); /* one block */
}

static void put(void *to, const struct gn_layout *l, int n, int c, int pixel, float v)
{
	if (l->element_bytes == 2)
		((uint16_t *)to)[place(l->block, n, c, pixel)] = gn_bf16_of_f32(v);
	else if (l->element_bytes == 8)
		((double *)to)[place(l->block, n, c, pixel)] = v;
	else
		((float *)to)[place(l->block, n, c, pixel)] = v;
}

static float get(const void *from, const struct gn_layout *l, int n, int c, int pixel)
{
	if (l->element_bytes == 8)
		return (float)((const double *)from)[place(l->block, n, c, pixel)];
	return l->element_bytes == 2 ? gn_f32_of_bf16(((const uint16_t *)from)[place(l->block, n, c, pixel)])
				     : ((const float *)from)[place(l->block, n, c, pixel)];
}

/* The gradient is a fixed function of output and label, with the delay of a pipeline. Returns the last error; *sum: of all predictions. */
static double learn(int block, int element_bytes, int rounds, double *sum)
{
	const struct gn_layout l = {IMAGES, CHANNELS, SIDE, SIDE, block, element_bytes};
	void *h = calloc(1, gn_layout_bytes(&l)), *gradients[GN_PIPE_LAG + 1];
	float matrix[CHANNELS][CHANNELS], bias[CLASSES][CHANNELS][PIXELS];
	struct gn_pipe_predictor *p;
	int32_t labels[IMAGES];
	uint32_t state = 7;
	double error = 1, missed, wanted;
	struct gn_err err;

	assert_ok(gn_pipe_predictor_create(&l, CLASSES, &p, &err));
	assert_true(gn_pipe_predictor_bytes(p) > 0);
	for (int i = 0; i < CHANNELS * CHANNELS; i++)
		matrix[i / CHANNELS][i % CHANNELS] = drawn(&state);
	for (int i = 0; i < CLASSES * CHANNELS * PIXELS; i++)
		bias[i / PIXELS / CHANNELS][i / PIXELS % CHANNELS][i % PIXELS] = drawn(&state);
	for (int i = 0; i <= GN_PIPE_LAG; i++)
		gradients[i] = calloc(1, gn_layout_bytes(&l));
	*sum = 0;
	for (int k = 0; k < rounds; k++) {
		const struct gn_targets targets = {.labels = labels};

		for (int n = 0; n < IMAGES; n++) {
			labels[n] = (int32_t)((drawn(&state) + 1) * 0.4999f * CLASSES);
			for (int pixel = 0; pixel < PIXELS; pixel++) {
				for (int c = 0; c < CHANNELS; c++)
					put(h, &l, n, c, pixel, drawn(&state));
				for (int c = 0; c < CHANNELS; c++) {
					float g = bias[labels[n]][c][pixel];

					for (int i = 0; i < CHANNELS; i++)
						g += matrix[c][i] * get(h, &l, n, i, pixel);
					put(gradients[k % (GN_PIPE_LAG + 1)], &l, n, c, pixel, g);
				}
			}
		}
		gn_pipe_predictor_predict(p, k, h, &targets);
		for (int n = 0; n < IMAGES; n++)
			*sum += get(gn_pipe_predictor_gradient(p), &l, n, n % CHANNELS, n);
		if (k >= GN_PIPE_LAG) {
			gn_pipe_predictor_learn(p, k - GN_PIPE_LAG, gradients[(k - GN_PIPE_LAG) % (GN_PIPE_LAG + 1)], &missed, &wanted);
			error = missed / wanted;
		}
		if (k == GN_PIPE_LAG)
			assert_true(error > 0.999 && error < 1.001); /* of zeros */
	}
	for (int i = 0; block > 1 && i < IMAGES * PIXELS * BLOCK; i++)
		if (i % BLOCK >= CHANNELS)
			assert_true(((const float *)gn_pipe_predictor_gradient(p))[i] == 0); /* padding */
	gn_pipe_predictor_destroy(p);
	for (int i = 0; i <= GN_PIPE_LAG; i++)
		free(gradients[i]);
	free(h);
	return error;
}

static void test_learns(void **state)
{
	double sums[5], error = learn(1, 4, 800, &sums[0]);

	(void)state;
	assert_true(error < 1e-3);
	assert_true(learn(0, 4, 800, &sums[1]) == error && sums[1] == sums[0]);
	assert_true(learn(BLOCK, 4, 800, &sums[2]) == error && sums[2] == sums[0]);
	assert_true(learn(1, 2, 800, &sums[3]) < 1e-2);
	assert_true(learn(1, 8, 800, &sums[4]) == error && sums[4] == sums[0]);
}

/* More channels than a matrix is kept for: each by itself. */
static void test_many_channels(void **state)
{
	enum { MANY = 3000 };
	const struct gn_layout l = {2, MANY, 1, 1, 1, 4};
	const int32_t labels[] = {0, 1};
	const struct gn_targets targets = {.labels = labels};
	float *h = calloc(2 * MANY, sizeof *h), *gradient = calloc(2 * MANY, sizeof *gradient);
	struct gn_pipe_predictor *p;
	double missed = 1, wanted = 1;
	uint32_t seed = 3;
	struct gn_err err;

	(void)state;
	assert_ok(gn_pipe_predictor_create(&l, 2, &p, &err));
	assert_true(gn_pipe_predictor_bytes(p) < 1 << 20);
	for (int k = 0; k < 300; k++) {
		for (int i = 0; i < 2 * MANY; i++) {
			h[i] = drawn(&seed);
			gradient[i] = (float)(i % MANY % 7) * h[i] - (float)(i / MANY);
		}
		gn_pipe_predictor_predict(p, k, h, &targets);
		gn_pipe_predictor_learn(p, k, gradient, &missed, &wanted);
	}
	assert_true(missed / wanted < 0.05);
	gn_pipe_predictor_destroy(p);
	free(h), free(gradient);
}

/* Labels that are none, or none yet known to be wrong, and gradients that are not finite. */
static void test_bad_input(void **state)
{
	const struct gn_layout l = {2, 3, 1, 1, 1, 4};
	const int32_t labels[] = {-1, 1000};
	const struct gn_targets targets = {.labels = labels};
	const float h[6] = {1, 2, 3, 4, 5, 6};
	float gradient[6] = {1, 1, 1, 1, 1, 0};
	struct gn_pipe_predictor *p;
	double missed, wanted;
	struct gn_err err;

	(void)state;
	assert_ok(gn_pipe_predictor_create(&l, 10, &p, &err));
	gn_pipe_predictor_predict(p, 0, h, &targets);
	gradient[5] /= gradient[5]; /* not a number */
	gn_pipe_predictor_learn(p, 0, gradient, &missed, &wanted);
	assert_true(missed == 0 && wanted == 0);
	gn_pipe_predictor_predict(p, 1, h, &targets);
	for (int i = 0; i < 6; i++)
		assert_true(((const float *)gn_pipe_predictor_gradient(p))[i] == 0);
	memset(gradient, 0, sizeof gradient);
	gn_pipe_predictor_learn(p, 1, gradient, &missed, &wanted);
	assert_true(missed == 0 && wanted == 0);
	gn_pipe_predictor_destroy(p);
	gn_pipe_predictor_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns), cmocka_unit_test(test_many_channels), cmocka_unit_test(test_bad_input)};

	return cmocka_run_group_tests_name("train/pipe_predictor", tests, NULL, NULL);
}
