#include "tests/test.h"

#include "src/train/checkpoint/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAS = 3, SHARED = 5 };

static const char *const names[] = {"residual", "velocity"};

struct fixture {
	char folder[64];
	struct gn_model *model;
	size_t count;
	float *arrays[2], shared[SHARED];
	struct gn_checkpoint_rank_state state;
};

static float kept(int rank, int array, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13 + (size_t)array * 5) % 101) - 50;
}

static void write_all(struct fixture *f)
{
	struct gn_err err;

	for (int r = 0; r < WAS; r++) {
		struct gn_checkpoint_file file = {.name = ""};

		for (int k = 0; k < 2; k++)
			for (size_t i = 0; i < f->count; i++)
				f->arrays[k][i] = kept(r, k, i);
		for (int i = 0; i < SHARED; i++)
			f->shared[i] = (float)i + 0.5f;
		assert_ok(gn_checkpoint_rank_write(f->folder, r, NULL, &f->state, &file, &err));
		assert_true(file.name[0] && file.len_bytes);
	}
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct gn_err err;

	*state = f;
	strcpy(f->folder, "/tmp/gn-rank.XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	assert_ok(gn_model_create("lenet", 10, 0, 28, &f->model, &err));
	f->count = gn_model_param_elements(f->model);
	for (int k = 0; k < 2; k++)
		f->arrays[k] = calloc(f->count, sizeof(float));
	f->state = (struct gn_checkpoint_rank_state){.model = f->model, .count = 2, .names = names, .arrays = f->arrays, .shared = f->shared, .shared_count = SHARED};
	write_all(f);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char path[128];

	for (int r = 0; r < WAS; r++) {
		snprintf(path, sizeof path, "%s/compress-%05d.safetensors", f->folder, r);
		remove(path);
	}
	remove(f->folder);
	free(f->arrays[0]);
	free(f->arrays[1]);
	gn_model_destroy(f->model);
	free(f);
	return 0;
}

/* The same number of ranks: each its own bits. Fewer, more: the sum of all, times the ratio of ranks. */
static void test_load(void **state)
{
	struct fixture *f = *state;
	struct gn_err err;
	int fits;

	for (int ranks = 1; ranks <= 5; ranks++) {
		double *sums = calloc(2 * f->count, sizeof *sums);

		for (int r = 0; r < ranks; r++) {
			memset(f->shared, 0, sizeof f->shared);
			assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, r, ranks, &f->state, &fits, &err));
			for (int i = 0; i < SHARED; i++)
				assert_true(f->shared[i] == (float)i + 0.5f);
			for (size_t i = 0; i < 2 * f->count; i++)
				sums[i] += f->arrays[i / f->count][i % f->count];
			for (int p = 0; p < gn_model_param_count(f->model) && ranks == WAS; p++) {
				const struct gn_param *t = gn_model_param(f->model, p);

				for (size_t i = t->offset; i < t->offset + t->count; i++)
					assert_true(f->arrays[0][i] == kept(r, 0, i) && f->arrays[1][i] == kept(r, 1, i));
			}
		}
		for (int p = 0; p < gn_model_param_count(f->model); p++) {
			const struct gn_param *t = gn_model_param(f->model, p);

			for (size_t i = t->offset; i < t->offset + t->count; i++) {
				double was = (double)kept(0, 0, i) + kept(1, 0, i) + kept(2, 0, i);

				assert_true(sums[i] / ranks - was / WAS < 1e-4 && was / WAS - sums[i] / ranks < 1e-4);
			}
		}
		free(sums);
	}
}

static void test_damage(void **state)
{
	struct fixture *f = *state;
	struct gn_checkpoint_rank_state other = f->state;
	static const char *const others[] = {"residual", "else"};
	struct gn_err err;
	int fits;

	other.names = others;
	assert_int_equal(gn_checkpoint_load_rank(f->folder, WAS, NULL, 0, WAS, &other, &fits, &err), GN_ERR_DATA);
	other = f->state;
	other.shared_count = SHARED - 1;
	assert_int_equal(gn_checkpoint_load_rank(f->folder, WAS, NULL, 0, WAS, &other, &fits, &err), GN_ERR_DATA);
	assert_int_not_equal(gn_checkpoint_load_rank(f->folder, WAS + 1, NULL, 3, WAS + 1, &f->state, &fits, &err), GN_OK);
}

static void test_parts(void **state)
{
	struct fixture *f = *state;
	struct gn_checkpoint_rank_state part = f->state;
	struct gn_err err;
	int fits = 1;

	/* written by ranks with all of the network */
	part.part = "stage 1 of 2";
	assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, 1, WAS, &part, &fits, &err));
	assert_false(fits);
	f->state.part = "stage 1 of 2";
	write_all(f);
	assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, 1, WAS, &part, &fits, &err));
	assert_true(fits && f->arrays[0][3] == kept(1, 0, 3));
	part.part = "stage 0 of 2";
	assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, 1, WAS, &part, &fits, &err));
	assert_false(fits);
	part.part = "stage 1 of 2";
	assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, 0, 2, &part, &fits, &err));
	assert_false(fits);
	part.part = NULL;
	assert_ok(gn_checkpoint_load_rank(f->folder, WAS, NULL, 1, WAS, &part, &fits, &err));
	assert_false(fits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_load), cmocka_unit_test(test_damage), cmocka_unit_test(test_parts)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
