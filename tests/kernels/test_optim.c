/* Optimizers in float against the oracle in double, and the oracle against what torch.optim.SGD prints and against LARS and
 * LAMB worked out from the papers' formulas elsewhere. */
#include "tests/test.h"

#include "tests/kernels/ref_optim.h"
#include "src/base/philox.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1003

struct sgd {
	double momentum;
	int nesterov;
	double decay, scale;
};

static void compare(const struct sgd *s)
{
	static float p[COUNT], g[COUNT], b[COUNT];
	static double wide_p[COUNT], wide_g[COUNT], wide_b[COUNT];
	const struct gn_optim sgd = {.kind = GN_OPTIM_SGD, .momentum = s->momentum, .nesterov = s->nesterov};
	const struct gn_optim_update u = {0.1, s->scale, 1};
	const struct gn_optim_tensor t = {p, g, {s->momentum != 0 ? b : NULL}, COUNT, s->decay, 0, 1};
	const struct gn_ref_optim_tensor wide = {wide_p, wide_g, {wide_b}, COUNT, s->decay, 0, 1};
	struct gn_rng r;

	gn_rng_init(&r, 1, GN_RNG_TEST, 0, 0);
	for (int i = 0; i < COUNT; i++) {
		p[i] = (float)gn_rng_normal(&r);
		wide_p[i] = p[i];
		b[i] = 0;
		wide_b[i] = 0;
	}
	for (int step = 0; step < 20; step++) {
		for (int i = 0; i < COUNT; i++) {
			g[i] = (float)gn_rng_normal(&r);
			wide_g[i] = g[i];
		}
		gn_optim_step(&sgd, &u, &t);
		gn_ref_optim_step(&sgd, &u, &wide);
	}
	for (int i = 0; i < COUNT; i++)
		assert_true(fabs(p[i] - wide_p[i]) < 3e-6);
}

static void test_against_oracle(void **state)
{
	static const struct sgd table[] = {{0, 0, 0, 1},	{0.9, 0, 0, 1},	   {0.9, 0, 1e-4, 1},
					   {0.9, 1, 5e-4, 1}, {0.875, 1, 0, 0.25}, {0, 0, 1e-2, 0.125}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&table[i]);
}

/* torch.optim.SGD([1.0], lr=0.1, momentum=0.9, weight_decay=0.01) with gradients 0.5, -0.25, 1 */
static void test_against_torch(void **state)
{
	static const double grads[3] = {0.5, -0.25, 1}, plain[3] = {0.949, 0.927151, 0.806559749},
			    nesterov[3] = {0.9031, 0.90757411, 0.698189208};
	struct gn_optim sgd = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	const struct gn_optim_update u = {0.1, 1, 1};

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		double p = 1, b = 0;

		sgd.nesterov = kind;
		for (int i = 0; i < 3; i++) {
			gn_ref_optim_step(&sgd, &u, &(struct gn_ref_optim_tensor){&p, &grads[i], {&b}, 1, 0.01, 0, 1});
			assert_true(fabs(p - (kind ? nesterov : plain)[i]) < 1e-9);
		}
	}
}

struct memory {
	float *p, *g, *slots[2];
	double *wide_p, *wide_g, *wide_slots[2];
};

static void *room(size_t count, size_t size)
{
	void *p = calloc(count, size);

	assert_non_null(p);
	return p;
}

static struct memory make_memory(size_t count)
{
	return (struct memory){room(count, 4), room(count, 4), {room(count, 4), room(count, 4)},
			       room(count, 8), room(count, 8), {room(count, 8), room(count, 8)}};
}

static void free_memory(struct memory *m)
{
	free(m->p), free(m->g), free(m->slots[0]), free(m->slots[1]);
	free(m->wide_p), free(m->wide_g), free(m->wide_slots[0]), free(m->wide_slots[1]);
}

static const struct gn_optim rules[] = {
	{GN_OPTIM_SGD, 0.9, 0, 0, 0, 0},	   {GN_OPTIM_SGD, 0, 0, 0, 0, 0},
	{GN_OPTIM_SGD, 0.875, 0, 0, 0, 1},	   {GN_OPTIM_LARS, 0.9, 0, 1e-9, 0.001, 0},
	{GN_OPTIM_LARS, 0.9, 0, 0, 0.02, 1},	   {GN_OPTIM_LARS, 0, 0, 0, 0.001, 0},
	{GN_OPTIM_LAMB, 0.9, 0.999, 1e-6, 0, 0}, {GN_OPTIM_LAMB, 0.9, 0.99, 1e-3, 0, 0},
	{GN_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0, 0}, {GN_OPTIM_RMSPROP, 0.9, 0.9, 0.0316, 0, 0},
};

/* steps updates of both; the largest distance, in units of the largest parameter. */
static double distance(const struct gn_optim *o, size_t count, double decay, int adapt, double scale, int steps)
{
	struct memory m = make_memory(count);
	struct gn_rng r;
	double most = 1e-30, apart = 0;

	gn_rng_init(&r, 5, GN_RNG_TEST, 1, (uint32_t)count);
	for (size_t i = 0; i < count; i++)
		m.wide_p[i] = m.p[i] = (float)gn_rng_normal(&r);
	for (int step = 1; step <= steps; step++) {
		struct gn_optim_update u = {o->kind == GN_OPTIM_LARS ? 5 : 0.05, 0.25, (uint64_t)step};
		struct gn_optim_tensor t = {m.p, m.g, {m.slots[0], m.slots[1]}, count, decay, adapt, scale};
		struct gn_ref_optim_tensor w = {m.wide_p, m.wide_g, {m.wide_slots[0], m.wide_slots[1]}, count, decay, adapt, scale};

		for (size_t i = 0; i < count; i++)
			m.wide_g[i] = m.g[i] = (float)gn_rng_normal(&r);
		gn_optim_step(o, &u, &t);
		gn_ref_optim_step(o, &u, &w);
	}
	for (size_t i = 0; i < count; i++) {
		most = fmax(most, fabs(m.wide_p[i]));
		apart = fmax(apart, fabs(m.p[i] - m.wide_p[i]));
	}
	free_memory(&m);
	return apart / most;
}

/* Every rule, with and without decay and adaptation, over the shapes of tensors that networks have: a bias, a batch norm, a
 * convolution, one longer than a piece, one longer than all pieces' least length. */
static void test_rules_against_oracle(void **state)
{
	static const size_t counts[] = {1, 10, 64, 1003, 4096, 4097, 36864, 300007};
	double worst = 0;

	(void)state;
	for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
		for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
			for (int kind = 0; kind < 3; kind++) {
				double d = distance(&rules[k], counts[c], kind ? 1e-2 : 0, kind != 1, kind ? 1 : 0.25,
						    counts[c] > 5000 ? 2 : 12);

				if (!(d < 2e-6))
					fail_msg("rule %zu, %zu elements, kind %d: %g", k, counts[c], kind, d);
				worst = fmax(worst, d);
			}
		}
	}
	print_message("# worst distance %.3g of the largest parameter\n", worst);
}

/* Zero parameters and zero gradients have no norm to go by: the ratio is 1 and nothing becomes NaN. */
static void test_zero_norms(void **state)
{
	(void)state;
	for (size_t k = 3; k < sizeof rules / sizeof *rules; k++) {
		for (int zero = 0; zero < 2; zero++) {
			double p[2] = {!zero, !zero}, g[2] = {zero, zero}, a[2] = {0}, b[2] = {0};
			float fp[2] = {!zero, !zero}, fg[2] = {zero, zero}, fa[2] = {0}, fb[2] = {0};
			struct gn_optim_update u = {0.5, 1, 1};
			struct gn_ref_optim_tensor w = {p, g, {a, b}, 2, 0, 1, 1};
			struct gn_optim_tensor t = {fp, fg, {fa, fb}, 2, 0, 1, 1};

			gn_ref_optim_step(&rules[k], &u, &w);
			gn_optim_step(&rules[k], &u, &t);
			assert_true(isfinite(p[0]) && fabs(p[0] - fp[0]) < 1e-6);
		}
	}
}

/* Two updates of three parameters, worked out by the formulas in another language. */
static void test_against_papers(void **state)
{
	static const struct {
		struct gn_optim o;
		double lr, p[3];
	} known[] = {
		{{GN_OPTIM_LARS, 0.9, 0, 1e-9, 0.001, 0}, 2, {0.999748952455, -2.000605124719, 0.492135509549}},
		{{GN_OPTIM_LARS, 0.9, 0, 1e-9, 0.001, 1}, 2, {1.001316234930, -2.002097657191, 0.488605499538}},
		{{GN_OPTIM_LAMB, 0.9, 0.999, 1e-6, 0, 0}, 0.01, {0.995283864066, -1.997967644523, 0.469086005129}},
		/* torch.optim.AdamW and RMSprop */
		{{GN_OPTIM_ADAMW, 0.9, 0.999, 1e-8, 0, 0}, 0.01, {0.993462045424, -1.994542918645, 0.482492898776}},
		{{GN_OPTIM_RMSPROP, 0.9, 0.9, 0.0316, 0, 0}, 0.01, {0.975811364475, -1.982574529339, 0.442224007516}},
	};
	static const double grads[2][3] = {{0.5, -0.25, 1}, {-1, 0.75, 0.1}};

	(void)state;
	for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
		double p[3] = {1, -2, 0.5}, a[3] = {0}, b[3] = {0};

		for (uint64_t step = 1; step <= 2; step++) {
			struct gn_optim_update u = {known[k].lr, 1, step};
			struct gn_ref_optim_tensor t = {p, grads[step - 1], {a, b}, 3, 0.01, 1, 1};

			gn_ref_optim_step(&known[k].o, &u, &t);
		}
		for (int i = 0; i < 3; i++)
			assert_true(fabs(p[i] - known[k].p[i]) < 1e-11);
	}
}

/* Ranks may have different numbers of threads and must stay bit-identical. */
static void test_threads_do_not_matter(void **state)
{
	enum { count = 300007 };
	struct memory one = make_memory(count), three = make_memory(count);
	struct gn_optim_update u = {0.05, 0.25, 1};
	double sums[2];
	struct gn_rng r;

	(void)state;
	gn_rng_init(&r, 5, GN_RNG_TEST, 2, 0);
	for (int i = 0; i < count; i++) {
		one.p[i] = three.p[i] = (float)gn_rng_normal(&r);
		one.g[i] = three.g[i] = (float)gn_rng_normal(&r);
	}
	for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
		struct gn_optim_tensor a = {one.p, one.g, {one.slots[0], one.slots[1]}, count, 1e-2, 1, 1};
		struct gn_optim_tensor b = {three.p, three.g, {three.slots[0], three.slots[1]}, count, 1e-2, 1, 1};

		omp_set_num_threads(1);
		gn_optim_step(&rules[k], &u, &a);
		sums[0] = gn_sum_squares(one.p, count);
		omp_set_num_threads(3);
		gn_optim_step(&rules[k], &u, &b);
		sums[1] = gn_sum_squares(three.p, count);
		assert_memory_equal(one.p, three.p, count * sizeof(float));
		assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
	}
	omp_set_num_threads(1);
	free_memory(&one);
	free_memory(&three);
}

/* A tensor in pieces has the norms of the whole, and the same update. */
static void test_pieces(void **state)
{
	enum { count = 30007, cut = 11008 };
	struct memory whole = make_memory(count), pieces = make_memory(count);
	struct gn_optim_update u = {0.05, 0.25, 1};
	struct gn_rng r;

	(void)state;
	gn_rng_init(&r, 5, GN_RNG_TEST, 3, 0);
	for (int i = 0; i < count; i++) {
		whole.p[i] = pieces.p[i] = (float)gn_rng_normal(&r);
		whole.g[i] = pieces.g[i] = (float)(i < cut ? 4 : 1) * (float)gn_rng_normal(&r);
	}
	for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
		struct gn_optim_tensor t = {whole.p, whole.g, {whole.slots[0], whole.slots[1]}, count, 1e-2, 1, 1};
		struct gn_optim_tensor a = {pieces.p, pieces.g, {pieces.slots[0], pieces.slots[1]}, cut, 1e-2, 1, 1};
		struct gn_optim_tensor b = {pieces.p + cut, pieces.g + cut, {pieces.slots[0] + cut, pieces.slots[1] + cut}, count - cut, 1e-2, 1, 1};
		double sums[2][2];

		gn_optim_step(&rules[k], &u, &t);
		gn_optim_sums(&rules[k], &u, &a, sums[0]);
		gn_optim_sums(&rules[k], &u, &b, sums[1]);
		sums[0][0] += sums[1][0];
		sums[0][1] += sums[1][1];
		gn_optim_apply(&rules[k], &u, &a, sums[0]);
		gn_optim_apply(&rules[k], &u, &b, sums[0]);
		for (int i = 0; i < count; i++)
			assert_true(fabsf(whole.p[i] - pieces.p[i]) <= 1e-6f * fmaxf(1, fabsf(whole.p[i])));
	}
	free_memory(&whole);
	free_memory(&pieces);
}

static void test_sum_squares(void **state)
{
	static const size_t counts[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 262144, 262145, 300007};
	float *x = room(300007, sizeof *x);

	(void)state;
	for (int i = 0; i < 300007; i++)
		x[i] = (float)(1 + i % 7) * (i % 3 ? 1e-3f : 1e18f);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		double want = gn_ref_sum_squares(x, counts[c]), sum = gn_sum_squares(x, counts[c]);

		assert_true(fabs(sum - want) <= 1e-12 * want);
		for (size_t i = 0; i < counts[c]; i += counts[c] / 3 + 1) {
			float kept = x[i];

			x[i] = c % 2 ? NAN : INFINITY;
			assert_false(isfinite(gn_sum_squares(x, counts[c])));
			x[i] = kept;
		}
	}
	free(x);
}

static void test_average(void **state)
{
	float average[3] = {1, 2, 3};
	const float values[3] = {3, 2, 0};

	(void)state;
	gn_average_step(average, values, 3, 0.75);
	assert_true(average[0] == 1.5f && average[1] == 2 && average[2] == 2.25f);
}

static void test_names(void **state)
{
	(void)state;
	for (int kind = GN_OPTIM_SGD; kind <= GN_OPTIM_RMSPROP; kind++)
		assert_int_equal(gn_optim_find(gn_optim_name((enum gn_optim_kind)kind)), kind);
	assert_int_equal(gn_optim_find("adam"), -1);
	assert_int_equal(gn_optim_slots(GN_OPTIM_LAMB), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_oracle),	   cmocka_unit_test(test_against_torch),
		cmocka_unit_test(test_rules_against_oracle), cmocka_unit_test(test_zero_norms),
		cmocka_unit_test(test_against_papers),	   cmocka_unit_test(test_threads_do_not_matter),
		cmocka_unit_test(test_pieces), cmocka_unit_test(test_sum_squares),	   cmocka_unit_test(test_average),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
