/* What the operators of a plan move and compute, as they are implemented: for tables and for the roofline's floor.
 *
 * Bytes are those of every pass that an operator makes over a tensor or a weight, as if no cache kept anything from one
 * operator to the next; a pass over what was read just before in the same operator and fits a processor's own cache is not
 * counted. FLOPs are those of convolutions and linear layers, a multiplication and an addition being two.
 */
#ifndef GN_TRAIN_PLAN_PLAN_COST_H
#define GN_TRAIN_PLAN_PLAN_COST_H

#include "src/train/plan/plan.h"

struct gn_plan_cost {
	const char *kind; /* "convolution", "batch norm+relu", "reorder" */
	const char *name; /* of the layer in the model; "" where it has none */
	struct gn_layout out;
	double flops[2], bytes[2]; /* forward, backward */
	double products[2];	   /* of flops, those that are left by Winograd's filtering: a quarter, in whole tiles */
	struct gn_op_exchange exchange[2]; /* of a slice of a network, among ranks: the same */
};

int gn_plan_op_count(const struct gn_plan *p);
/* Convolutions that are computed by Winograd's filtering. p may be NULL. */
int gn_plan_winograd(const struct gn_plan *p);
/* Operator index in the order of the forward pass. */
void gn_plan_op_cost(const struct gn_plan *p, int index, struct gn_plan_cost *out);
/* As gn_op_engines(). */
int gn_plan_op_engines(const struct gn_plan *p, int index, struct gn_op_engine out[GN_OP_ENGINES_MAX]);

#endif
