/* Initial values of parameters, and images and labels made up by the same formula.
 *
 * Both kinds are pure functions of a parameter's name and a seed, so that they do not depend on the order in which
 * parameters are filled, on the world size or on the machine.
 */
#ifndef GN_TRAIN_MODEL_INIT_H
#define GN_TRAIN_MODEL_INIT_H

#include "src/train/model/model.h"

/* spec "formula": the one of tests/golden/README.md. spec "seed:N": convolutions Kaiming-normal by fan-out with zero
 * bias as torchvision's networks, linear layers uniform in +-1/sqrt(fan-in) as torch (vgg16's as
 * torchvision: normal, deviation 0.01, bias 0), batch norm 1 and 0. Running means become 0, variances 1. Anything else is GN_ERR_USAGE. Arrays as in plan.h; padding between parameters becomes 0. */
enum gn_status gn_init_params(const struct gn_model *m, const char *spec, float *params, float *buffers,
			      struct gn_err *err);

/* Parameter number index of spec "seed:N". */
void gn_init_param(const struct gn_model *m, int index, uint64_t seed, float *out);

/* Batch norms that end a residual branch become 0, so that every block begins as the identity: Goyal et al. 2017, sec. 5.1.
 * Networks without such blocks stay as they are. */
void gn_init_zero_gamma(const struct gn_model *m, float *params);

/* u(name, i) of the formula, in [-1, 1). */
double gn_init_formula(const char *name, uint64_t i);
/* images [batch][channels][side][side] = u("input", i); label k = h("label", k) mod classes. */
void gn_init_formula_batch(int batch, int channels, int side, int classes, float *images, int32_t *labels);

#endif
