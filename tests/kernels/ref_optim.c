#include "tests/kernels/ref_optim.h"

#include <math.h>

static double norm(const double *x, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

static void sgd(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t)
{
	double *buffer = t->slots[0];

	for (size_t i = 0; i < t->count; i++) {
		double g = u->grad_scale * t->grads[i] + t->weight_decay * t->params[i];

		if (o->momentum != 0) {
			buffer[i] = o->momentum * buffer[i] + g;
			g = o->nesterov ? g + o->momentum * buffer[i] : buffer[i];
		}
		t->params[i] -= u->lr * t->lr_scale * g;
	}
}

static void lars(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t)
{
	double p_norm = norm(t->params, t->count), g_norm = u->grad_scale * norm(t->grads, t->count), ratio = 1;

	if (t->adapt && p_norm > 0 && g_norm > 0)
		ratio = o->trust * p_norm / (g_norm + t->weight_decay * p_norm + o->eps);
	for (size_t i = 0; i < t->count; i++) {
		double d = ratio * u->lr * t->lr_scale * (u->grad_scale * t->grads[i] + t->weight_decay * t->params[i]);

		t->slots[0][i] = o->momentum * t->slots[0][i] + d;
		t->params[i] -= o->nesterov ? o->momentum * t->slots[0][i] + d : t->slots[0][i];
	}
}

/* m and v divided by first and second are the bias-corrected moments. */
static double lamb_direction(const struct gn_optim *o, const struct gn_ref_optim_tensor *t, double first, double second,
			     size_t i)
{
	return t->slots[0][i] / first / (sqrt(t->slots[1][i] / second) + o->eps) + t->weight_decay * t->params[i];
}

static void lamb(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t)
{
	double first = 1 - pow(o->momentum, (double)u->step), second = 1 - pow(o->beta2, (double)u->step);
	double p_norm = norm(t->params, t->count), d_norm = 0, ratio = 1;

	for (size_t i = 0; i < t->count; i++) {
		double g = u->grad_scale * t->grads[i], d;

		t->slots[0][i] = o->momentum * t->slots[0][i] + (1 - o->momentum) * g;
		t->slots[1][i] = o->beta2 * t->slots[1][i] + (1 - o->beta2) * g * g;
		d = lamb_direction(o, t, first, second, i);
		d_norm += d * d;
	}
	d_norm = sqrt(d_norm);
	if (o->kind == GN_OPTIM_LAMB && t->adapt && p_norm > 0 && d_norm > 0)
		ratio = p_norm / d_norm;
	for (size_t i = 0; i < t->count; i++)
		t->params[i] -= u->lr * t->lr_scale * ratio * lamb_direction(o, t, first, second, i);
}

static void rmsprop(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t)
{
	for (size_t i = 0; i < t->count; i++) {
		double g = u->grad_scale * t->grads[i] + t->weight_decay * t->params[i];

		t->slots[1][i] = o->beta2 * t->slots[1][i] + (1 - o->beta2) * g * g;
		t->slots[0][i] = o->momentum * t->slots[0][i] + g / (sqrt(t->slots[1][i]) + o->eps);
		t->params[i] -= u->lr * t->lr_scale * t->slots[0][i];
	}
}

void gn_ref_optim_step(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t)
{
	switch (o->kind) {
	case GN_OPTIM_SGD:
		sgd(o, u, t);
		break;
	case GN_OPTIM_LARS:
		lars(o, u, t);
		break;
	case GN_OPTIM_LAMB:
	case GN_OPTIM_ADAMW:
		lamb(o, u, t);
		break;
	case GN_OPTIM_RMSPROP:
		rmsprop(o, u, t);
		break;
	}
}
