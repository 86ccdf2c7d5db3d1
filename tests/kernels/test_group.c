/* Batch norm over a group: two halves of a batch, each in a thread of its own, give what the whole batch gives. */
#include "tests/test.h"

#include "kernels/op.h"
#include "src/base/alloc.h"
#include "src/base/philox.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6, C = 24, SIDE = 5, ELEMENTS = N * C * SIDE * SIDE };

/* The two halves meet here. */
static pthread_barrier_t meeting;
static double *offered[2];

static void sum_both(int number, double *values, size_t count)
{
	double sums[4 * C + 64];

	offered[number] = values;
	pthread_barrier_wait(&meeting);
	for (size_t i = 0; i < count; i++)
		sums[i] = offered[0][i] + offered[1][i];
	pthread_barrier_wait(&meeting);
	memcpy(values, sums, count * sizeof *values);
}

/* A batch of n images through one operator, forward and backward. */
struct job {
	int n, members, number; /* number: of those that sum */
	const float *x, *dy;
	float *y, *dx;
	float weight[C], bias[C], dweight[C], dbias[C], mean[C], var[C];
	int failed;
};

static void *run(void *argument)
{
	struct job *j = argument;
	struct gn_op_desc d = {.kind = GN_OP_BATCH_NORM, .in = {{j->n, C, SIDE, SIDE, 1, 4}}, .relu = 1, .training = 1,
			       .needs_din = 1, .eps = 1e-5, .momentum = 0.1, .members = j->members};
	struct gn_op_buffers b = {.in = {j->x}, .out = j->y, .dout = j->dy, .din = {j->dx}, .weight = j->weight,
				  .bias = j->bias, .dweight = j->dweight, .dbias = j->dbias, .running_mean = j->mean,
				  .running_var = j->var};
	struct gn_op *op;
	struct gn_err err;
	size_t count;

	omp_set_num_threads(1);
	j->failed = 1;
	if (gn_op_create(GN_BACKEND_HOST, &d, &op, &err))
		return NULL;
	b.workspace = gn_alloc_aligned(gn_op_info(op)->workspace_bytes);
	b.scratch = gn_alloc_aligned(gn_op_info(op)->scratch_bytes);
	count = gn_op_info(op)->sum_count;
	j->failed = gn_op_bind(op, &b, &err) || gn_op_forward(op, 0, &err);
	if (count && !j->failed)
		sum_both(j->number, gn_op_sums(op), count);
	j->failed = j->failed || gn_op_forward_rest(op, &err) || gn_op_backward(op, &err);
	if (count && !j->failed)
		sum_both(j->number, gn_op_sums(op), count);
	j->failed = j->failed || gn_op_backward_rest(op, &err);
	free(b.workspace);
	free(b.scratch);
	gn_op_destroy(op);
	return NULL;
}

static float x[ELEMENTS], dy[ELEMENTS], y[2][ELEMENTS], dx[2][ELEMENTS];

static struct job make_job(int n, int members, int number, int offset, int which)
{
	struct job j = {.n = n, .members = members, .number = number, .x = x + offset, .dy = dy + offset, .y = y[which] + offset,
			.dx = dx[which] + offset};

	for (int c = 0; c < C; c++) {
		j.weight[c] = 0.5f + (float)c / C;
		j.bias[c] = 0.1f * (float)(c % 3);
		j.var[c] = 1;
	}
	return j;
}

static void near(const float *a, const float *b, int count, double bound)
{
	for (int i = 0; i < count; i++)
		assert_true(fabs((double)a[i] - b[i]) <= bound);
}

static void test_two_halves(void **state)
{
	const int cut = N / 2 * C * SIDE * SIDE;
	struct job whole = make_job(N, 1, 0, 0, 0), part[2];
	pthread_t threads[2];
	struct gn_rng r;

	(void)state;
	gn_rng_init(&r, 3, GN_RNG_TEST, 0, 0);
	for (int i = 0; i < ELEMENTS; i++) {
		/* the halves differ, or their own statistics would do */
		x[i] = (float)gn_rng_normal(&r) + (i < cut ? 0 : 2);
		dy[i] = (float)gn_rng_normal(&r);
	}
	assert_int_equal(pthread_barrier_init(&meeting, NULL, 2), 0);
	for (int k = 0; k < 2; k++) {
		part[k] = make_job(N / 2, 2, k, k * cut, 1);
		assert_int_equal(pthread_create(&threads[k], NULL, run, &part[k]), 0);
	}
	for (int k = 0; k < 2; k++)
		pthread_join(threads[k], NULL);
	pthread_barrier_destroy(&meeting);
	run(&whole);
	assert_false(whole.failed || part[0].failed || part[1].failed);
	near(y[0], y[1], ELEMENTS, 1e-6);
	near(dx[0], dx[1], ELEMENTS, 1e-6);
	for (int c = 0; c < C; c++) {
		float dweight = part[0].dweight[c] + part[1].dweight[c], dbias = part[0].dbias[c] + part[1].dbias[c];

		near(&dweight, &whole.dweight[c], 1, 2e-5);
		near(&dbias, &whole.dbias[c], 1, 2e-5);
	}
	for (int k = 0; k < 2; k++) {
		near(part[k].mean, whole.mean, C, 1e-7);
		near(part[k].var, whole.var, C, 1e-6);
	}
}

/* A group of one value a member has statistics; the oracle has no groups; one process alone has no sums. */
static void test_edges(void **state)
{
	struct gn_op_desc d = {.kind = GN_OP_BATCH_NORM, .in = {{1, C, 1, 1, 1, 4}}, .training = 1, .eps = 1e-5};
	struct gn_op *op;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_op_create(GN_BACKEND_HOST, &d, &op, &err), GN_ERR_USAGE);
	d.members = 2;
	assert_int_equal(gn_op_create(GN_BACKEND_REF, &d, &op, &err), GN_ERR_UNSUPPORTED);
	assert_ok(gn_op_create(GN_BACKEND_HOST, &d, &op, &err));
	assert_int_equal(gn_op_info(op)->sum_count, 2 * C);
	gn_op_destroy(op);
	d.members = 1;
	d.in[0].n = 2;
	assert_ok(gn_op_create(GN_BACKEND_HOST, &d, &op, &err));
	assert_int_equal(gn_op_info(op)->sum_count, 0);
	assert_null(gn_op_sums(op));
	gn_op_destroy(op);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_halves), cmocka_unit_test(test_edges)};

	return cmocka_run_group_tests_name("kernels/group", tests, NULL, NULL);
}
