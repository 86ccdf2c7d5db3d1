/* The oracle's gradients against central differences in double precision: for random directions v, the slope of
 * sum(c * f(x + t v)) at t = 0 is <gradient, v>. */
#include "tests/test.h"

#include "kernels/backend.h"
#include "kernels/ref/ref.h"
#include "src/base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 4096

struct point {
	size_t x_count, y_count, weight_count, bias_count;
	double x[ROOM], weight[ROOM], bias[ROOM];
	double c[ROOM];                              /* the scalar is sum(c * y) */
	double dx[ROOM], dweight[ROOM], dbias[ROOM]; /* its gradients */
};

struct shape {
	struct gn_ref_window w;
	void (*forward)(const struct gn_ref_window *w, const struct point *p, double *y);
	void (*backward)(const struct gn_ref_window *w, struct point *p);
};

static void fill(struct gn_rng *r, size_t count, double *out)
{
	assert_true(count <= ROOM);
	for (size_t i = 0; i < count; i++)
		out[i] = gn_rng_normal(r);
}

static double value(const struct shape *s, const struct point *p)
{
	static double y[ROOM];
	double sum = 0;

	s->forward(&s->w, p, y);
	for (size_t i = 0; i < p->y_count; i++)
		sum += p->c[i] * y[i];
	return sum;
}

static double slope(const struct shape *s, struct point *p, double *values, size_t count, const double *v)
{
	const double h = 1e-6;
	double above, below;

	for (size_t i = 0; i < count; i++)
		values[i] += h * v[i];
	above = value(s, p);
	for (size_t i = 0; i < count; i++)
		values[i] -= 2 * h * v[i];
	below = value(s, p);
	for (size_t i = 0; i < count; i++)
		values[i] += h * v[i];
	return (above - below) / (2 * h);
}

static void check_part(const char *what, const struct shape *s, struct point *p, struct gn_rng *r, double *values,
		       size_t count, const double *gradient)
{
	static double v[ROOM];

	for (int round = 0; round < 3 && count; round++) {
		double along = 0, size = 0, measured;

		fill(r, count, v);
		for (size_t i = 0; i < count; i++) {
			along += gradient[i] * v[i];
			size += gradient[i] * gradient[i];
		}
		measured = slope(s, p, values, count, v);
		if (!(fabs(measured - along) <= 2e-7 * sqrt(size) + 1e-9))
			fail_msg("gradient of %s: %.12g by differences, %.12g computed", what, measured, along);
	}
}

static void check(const char *title, const struct shape *s, size_t weight_count, size_t bias_count)
{
	static struct point p;
	struct gn_rng r;

	memset(&p, 0, sizeof p);
	p.x_count = (size_t)s->w.n * s->w.c * s->w.h * s->w.w;
	p.y_count = (size_t)s->w.n * s->w.out_c * s->w.out_h * s->w.out_w;
	p.weight_count = weight_count;
	p.bias_count = bias_count;
	gn_rng_init(&r, 11, GN_RNG_TEST, 0, 0);
	fill(&r, p.x_count, p.x);
	fill(&r, p.y_count, p.c);
	fill(&r, weight_count, p.weight);
	fill(&r, bias_count, p.bias);
	s->backward(&s->w, &p);
	check_part(title, s, &p, &r, p.x, p.x_count, p.dx);
	check_part(title, s, &p, &r, p.weight, p.weight_count, p.dweight);
	check_part(title, s, &p, &r, p.bias, p.bias_count, p.dbias);
}

static void conv_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	gn_ref_conv_forward(w, p->x, p->weight, p->bias, y);
}

static void conv_backward(const struct gn_ref_window *w, struct point *p)
{
	gn_ref_conv_backward_data(w, p->c, p->weight, p->dx);
	gn_ref_conv_backward_weight(w, p->x, p->c, p->dweight, p->dbias);
}

static void test_conv(void **state)
{
	static const struct gn_ref_window table[] = {{2, 3, 5, 6, 4, 3, 3, 3, 2, 1, 0},
						     {1, 2, 7, 7, 3, 1, 1, 7, 3, 1, 0},
						     {2, 4, 3, 3, 5, 3, 3, 1, 1, 0, 0},
						     {1, 1, 4, 4, 2, 4, 4, 3, 1, 1, 0},
						     {1, 3, 5, 5, 2, 3, 3, 1, 2, 0, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct shape s = {table[i], conv_forward, conv_backward};

		check("convolution", &s, (size_t)s.w.out_c * s.w.c * s.w.kernel * s.w.kernel, s.w.out_c);
	}
}

static void norm_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	double mean[64], var[64];

	gn_ref_batch_norm_statistics(w->n, w->c, (size_t)w->h * w->w, p->x, mean, var);
	gn_ref_batch_norm_forward(w->n, w->c, (size_t)w->h * w->w, p->x, mean, var, 1e-5, p->weight, p->bias, y);
}

static void norm_backward(const struct gn_ref_window *w, struct point *p)
{
	double mean[64], var[64];
	size_t map = (size_t)w->h * w->w;

	gn_ref_batch_norm_statistics(w->n, w->c, map, p->x, mean, var);
	gn_ref_batch_norm_backward(w->n, w->c, map, p->x, p->c, mean, var, 1e-5, p->weight, p->dx, p->dweight,
				   p->dbias);
}

static void test_batch_norm(void **state)
{
	struct shape s = {{3, 4, 2, 5, 4, 2, 5, 0, 0, 0, 0}, norm_forward, norm_backward};

	(void)state;
	check("batch norm", &s, 4, 4);
}

static void linear_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	gn_ref_linear_forward(w->n, (size_t)w->c * w->h * w->w, w->out_c, p->x, p->weight, p->bias, y);
}

static void linear_backward(const struct gn_ref_window *w, struct point *p)
{
	gn_ref_linear_backward(w->n, (size_t)w->c * w->h * w->w, w->out_c, p->x, p->c, p->weight, p->dx, p->dweight,
			       p->dbias);
}

static void test_linear(void **state)
{
	struct shape s = {{3, 5, 2, 2, 7, 1, 1, 0, 0, 0, 0}, linear_forward, linear_backward};

	(void)state;
	check("linear layer", &s, 140, 7);
}

static void max_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	int64_t winner[ROOM];

	gn_ref_max_pool_forward(w, p->x, y, winner);
}

static void max_backward(const struct gn_ref_window *w, struct point *p)
{
	static double y[ROOM];
	int64_t winner[ROOM];

	gn_ref_max_pool_forward(w, p->x, y, winner);
	gn_ref_max_pool_backward(w, p->c, winner, p->dx);
}

static void adaptive_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	gn_ref_adaptive_avg_pool_forward(w, p->x, y);
}

static void adaptive_backward(const struct gn_ref_window *w, struct point *p)
{
	gn_ref_adaptive_avg_pool_backward(w, p->c, p->dx);
}

static void test_pools(void **state)
{
	struct shape max = {{2, 3, 7, 6, 3, 4, 3, 3, 2, 1, 0}, max_forward, max_backward};
	struct shape wide = {{2, 3, 10, 7, 3, 7, 7, 0, 0, 0, 0}, adaptive_forward, adaptive_backward};
	struct shape narrow = {{2, 3, 3, 2, 3, 7, 7, 0, 0, 0, 0}, adaptive_forward, adaptive_backward};

	(void)state;
	check("max pooling", &max, 0, 0);
	check("adaptive pooling", &wide, 0, 0);
	check("adaptive pooling of a small map", &narrow, 0, 0);
}

/* The values that torch gives: see torch.nn.functional.adaptive_avg_pool2d of 0 1 2 3 4 to 3, and max_pool2d's indices.
 */
static void test_pool_windows(void **state)
{
	const double row[5] = {0, 1, 2, 3, 4}, ties[4] = {7, 7, 7, 7}, negative[1] = {-5};
	struct gn_ref_window w = {1, 1, 1, 5, 1, 1, 3, 0, 0, 0, 0}, tie = {1, 1, 2, 2, 1, 1, 1, 2, 2, 0, 0};
	struct gn_ref_window lone = {1, 1, 1, 1, 1, 1, 1, 3, 2, 1, 0};
	int64_t winner;
	double y[3];

	(void)state;
	gn_ref_adaptive_avg_pool_forward(&w, row, y);
	assert_true(y[0] == 0.5 && y[1] == 2 && y[2] == 3.5);
	gn_ref_max_pool_forward(&tie, ties, y, &winner);
	assert_int_equal(winner, 0);
	gn_ref_max_pool_forward(&lone, negative, y, &winner);
	assert_true(y[0] == -5);
}

static void relu_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	(void)w;
	gn_ref_relu_forward(p->x_count, p->x, y);
}

static void relu_backward(const struct gn_ref_window *w, struct point *p)
{
	static double y[ROOM];

	relu_forward(w, p, y);
	gn_ref_relu_backward(p->x_count, y, p->c, p->dx);
}

static void dropout_forward(const struct gn_ref_window *w, const struct point *p, double *y)
{
	(void)w;
	gn_ref_dropout(0, p->x_count, p->x, 0.5, 3, 4, 5, y);
}

static void dropout_backward(const struct gn_ref_window *w, struct point *p)
{
	(void)w;
	gn_ref_dropout(0, p->x_count, p->c, 0.5, 3, 4, 5, p->dx);
}

static void test_pointwise(void **state)
{
	struct shape relu = {{2, 3, 4, 5, 3, 4, 5, 0, 0, 0, 0}, relu_forward, relu_backward};
	struct shape dropout = {{2, 3, 4, 5, 3, 4, 5, 0, 0, 0, 0}, dropout_forward, dropout_backward};

	(void)state;
	check("relu", &relu, 0, 0);
	check("dropout", &dropout, 0, 0);
}

/* Half of many are dropped, the rest doubled; another step draws another mask, the same step the same one. */
static void test_dropout_masks(void **state)
{
	static double x[ROOM], a[ROOM], b[ROOM], c[ROOM];
	size_t kept = 0, same = 0;

	(void)state;
	for (size_t i = 0; i < ROOM; i++)
		x[i] = 1;
	gn_ref_dropout(0, ROOM, x, 0.5, 1, 0, 10, a);
	gn_ref_dropout(0, ROOM, x, 0.5, 1, 0, 10, b);
	gn_ref_dropout(0, ROOM, x, 0.5, 1, 0, 11, c);
	assert_memory_equal(a, b, sizeof a);
	for (size_t i = 0; i < ROOM; i++) {
		assert_true(a[i] == 0 || a[i] == 2);
		kept += a[i] != 0;
		same += a[i] == c[i];
	}
	assert_in_range(kept, ROOM / 2 - 150, ROOM / 2 + 150);
	assert_in_range(same, ROOM / 2 - 150, ROOM / 2 + 150);
}

static double loss_at(const double *logits, const struct gn_targets *targets, double smoothing, double *dlogits)
{
	return gn_ref_softmax_cross_entropy(4, 6, logits, targets, 3, smoothing, dlogits);
}

/* Against differences, and the host's against the oracle's. */
static void check_loss(const struct gn_targets *targets)
{
	double logits[24], d[24], scrap[24], h = 1e-6, host_loss, ref_loss;
	float narrow[24], host_d[24];
	struct gn_rng r;

	gn_rng_init(&r, 5, GN_RNG_TEST, 0, 0);
	fill(&r, 24, logits);
	ref_loss = loss_at(logits, targets, 0.1, d);
	for (int i = 0; i < 24; i++) {
		double above, below;

		logits[i] += h;
		above = loss_at(logits, targets, 0.1, scrap);
		logits[i] -= 2 * h;
		below = loss_at(logits, targets, 0.1, scrap);
		logits[i] += h;
		assert_true(fabs((above - below) / (2 * h) - d[i]) < 1e-9);
		narrow[i] = (float)logits[i];
	}
	host_loss = gn_host_softmax_cross_entropy(4, 6, narrow, targets, 3, 0.1, host_d);
	assert_true(fabs(host_loss - ref_loss) < 2e-7);
	for (int i = 0; i < 24; i++)
		assert_true(fabs(host_d[i] - d[i]) < 1e-7);
}

static void test_loss(void **state)
{
	const int32_t labels[4] = {2, 0, -1, 5}, pair_labels[4] = {2, 4, 1, 0};
	const float lambdas[4] = {0.75f, 0.25f, 0.5f, 1};
	const struct gn_targets plain = {.labels = labels}, mixed = {labels, pair_labels, lambdas, NULL}, one = {.labels = labels + 1};
	const double even[2] = {0, 0};
	double scrap[2];

	(void)state;
	check_loss(&plain);
	check_loss(&mixed);
	assert_true(fabs(gn_ref_softmax_cross_entropy(1, 2, even, &one, 1, 0.3, scrap) - log(2)) < 1e-15);
}

/* Without mixup. */
static enum gn_status cross_entropy(enum gn_backend backend, int batch, int classes, const void *logits, const int32_t *labels,
				    double smoothing, double *loss, void *dlogits, struct gn_err *err)
{
	const struct gn_targets targets = {.labels = labels};

	return gn_softmax_cross_entropy_mixed(backend, batch, classes, logits, &targets, smoothing, loss, dlogits, err);
}

/* A mixed image loses what its two labels lose, in their shares. */
static void test_mixed_loss(void **state)
{
	const double logits[3] = {0.5, -1, 2};
	const int32_t a = 0, b = 2, bad = 3, worse = -1;
	const float share = 0.375f;
	const struct gn_targets mixed = {&a, &b, &share, NULL}, beyond = {&a, &bad, &share, NULL}, below = {&a, &worse, &share, NULL};
	double loss, loss_a, loss_b, d[3], da[3], db[3];
	struct gn_err err;

	(void)state;
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, 1, 3, logits, &mixed, 0.1, &loss, d, &err));
	assert_ok(cross_entropy(GN_BACKEND_REF, 1, 3, logits, &a, 0.1, &loss_a, da, &err));
	assert_ok(cross_entropy(GN_BACKEND_REF, 1, 3, logits, &b, 0.1, &loss_b, db, &err));
	assert_true(fabs(loss - (0.375 * loss_a + 0.625 * loss_b)) < 1e-14);
	for (int k = 0; k < 3; k++)
		assert_true(fabs(d[k] - (0.375 * da[k] + 0.625 * db[k])) < 1e-15);
	assert_int_equal(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, 1, 3, logits, &beyond, 0, &loss, d, &err),
			 GN_ERR_DATA);
	assert_int_equal(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, 1, 3, logits, &below, 0, &loss, d, &err),
			 GN_ERR_DATA);
}

static void test_loss_edges(void **state)
{
	const float huge[3] = {1e30f, -1e30f, 0}, some[3] = {1, 2, 3};
	const int32_t none = -1, zero = 0, three = 3;
	struct gn_err err;
	double loss;
	float d[3];

	(void)state;
	assert_ok(cross_entropy(GN_BACKEND_HOST, 1, 3, huge, &zero, 0, &loss, d, &err));
	assert_true(loss == 0 && d[0] == 0 && d[1] == 0);
	assert_ok(cross_entropy(GN_BACKEND_HOST, 1, 3, some, &none, 0, &loss, d, &err));
	assert_true(loss == 0 && d[0] == 0 && d[1] == 0 && d[2] == 0);
	assert_int_equal(cross_entropy(GN_BACKEND_HOST, 1, 3, some, &three, 0, &loss, d, &err), GN_ERR_DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conv),          cmocka_unit_test(test_batch_norm),
		cmocka_unit_test(test_linear),        cmocka_unit_test(test_pools),
		cmocka_unit_test(test_pool_windows),  cmocka_unit_test(test_pointwise),
		cmocka_unit_test(test_dropout_masks), cmocka_unit_test(test_loss),
		cmocka_unit_test(test_loss_edges),    cmocka_unit_test(test_mixed_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
