/* SGD in float against the oracle in double, and both against what torch.optim.SGD prints. */
#include "tests/test.h"

#include "kernels/optim.h"
#include "src/base/philox.h"

#include <math.h>

#define COUNT 1003

static void compare(const struct gn_sgd *sgd)
{
	static float p[COUNT], g[COUNT], b[COUNT];
	static double wide_p[COUNT], wide_g[COUNT], wide_b[COUNT];
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
		gn_sgd_step(sgd, p, g, sgd->momentum != 0 ? b : NULL, COUNT);
		gn_ref_sgd_step(sgd, wide_p, wide_g, wide_b, COUNT);
	}
	for (int i = 0; i < COUNT; i++)
		assert_true(fabs(p[i] - wide_p[i]) < 3e-6);
}

static void test_against_oracle(void **state)
{
	static const struct gn_sgd table[] = {{0.1, 0, 0, 0, 1},        {0.1, 0.9, 0, 0, 1},
					      {0.1, 0.9, 0, 1e-4, 1},   {0.1, 0.9, 1, 5e-4, 1},
					      {0.1, 0.875, 1, 0, 0.25}, {0.1, 0, 0, 1e-2, 0.125}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		compare(&table[i]);
}

/* torch.optim.SGD([1.0], lr=0.1, momentum=0.9, weight_decay=0.01) with gradients 0.5, -0.25, 1 */
static void test_against_torch(void **state)
{
	static const double grads[3] = {0.5, -0.25, 1}, plain[3] = {0.949, 0.927151, 0.806559749},
			    nesterov[3] = {0.9031, 0.90757411, 0.698189208};
	struct gn_sgd sgd = {0.1, 0.9, 0, 0.01, 1};

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		double p = 1, b = 0;

		sgd.nesterov = kind;
		for (int i = 0; i < 3; i++) {
			gn_ref_sgd_step(&sgd, &p, &grads[i], &b, 1);
			assert_true(fabs(p - (kind ? nesterov : plain)[i]) < 1e-9);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_against_torch)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
