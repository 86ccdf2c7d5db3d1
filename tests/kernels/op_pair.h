/* One operator run by both backends on the same numbers, which are plain outside. */
#ifndef GN_TESTS_KERNELS_OP_PAIR_H
#define GN_TESTS_KERNELS_OP_PAIR_H

#include "tests/test.h"

#include "kernels/op.h"

/* What went in and what came out; unused ones are NULL. */
struct op_run {
	struct gn_layout in, out;
	struct gn_weight_layout weight_layout; /* as the operator had it; weight and dweight here are in torch's order */
	size_t in_count, out_count, weight_count, bias_count;
	int halves; /* set after init: the gradient of the output comes as two parts, where the operator adds them */
	float *x[2], *dy, *weight, *bias;
	float *y, *dx[2], *dweight, *dbias, *mean, *var;
};

/* Random inputs of the shapes that desc asks for; values > 0 rounds them to so many different ones, to make ties. Where desc has
 * bfloat16 on the host, in elements of in[0] or to multiply, they are such numbers, so that both backends compute on the same. */
void op_run_init(struct op_run *r, const struct gn_op_desc *desc, int values);
void op_run_release(struct op_run *r);
/* Forward, and backward when desc->training; fills y, dx, dweight, dbias, mean, var. The host gets its inputs in
 * the layouts of desc, the oracle in plain ones. */
void op_run_execute(struct op_run *r, enum gn_backend backend, const struct gn_op_desc *desc);
/* What the two bounds of a comparison are for: tensors (outputs and gradients of inputs), and what is always float (gradients of
 * parameters, running statistics). */
struct op_bounds {
	double tensors, params;
};

/* Host against oracle. */
void op_compare(const char *title, const struct gn_op_desc *desc, int values, struct op_bounds bounds);
/* In every layout that oneDNN may choose. */
void op_compare_layouts(const char *title, const struct gn_op_desc *desc, int values, struct op_bounds bounds);
/* Fails naming what when the norm of a - b is more than bound times the norm of b. Returns the ratio. */
double assert_near(const char *title, const char *what, size_t count, const float *a, const float *b, double bound);

#endif
