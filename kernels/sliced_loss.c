#include "kernels/sliced_loss.h"

#include <math.h>

/* Of an image on one rank. Sums over the rank's classes; shifted: target times logit less top. */
enum { TOP, EXPONENTIALS, MASS, SHIFTED, OWN };

struct rows {
	enum gn_backend backend;
	const struct gn_loss_args *a;
	const struct gn_class_slice *slice;
};

static double logit(const struct rows *r, int image, int k)
{
	size_t at = (size_t)image * (size_t)r->slice->count + (size_t)k;

	return r->backend == GN_BACKEND_REF ? ((const double *)r->a->logits)[at] : (double)((const float *)r->a->logits)[at];
}

static void set_gradient(const struct rows *r, int image, int k, double value)
{
	size_t at = (size_t)image * (size_t)r->slice->count + (size_t)k;

	if (r->backend == GN_BACKEND_REF)
		((double *)r->a->dlogits)[at] = value;
	else
		((float *)r->a->dlogits)[at] = (float)value;
}

/* Of this rank's class number k. */
static double target(const struct rows *r, int image, int k)
{
	const struct gn_targets *t = &r->a->targets;
	const int class = r->slice->first + k;
	const double lambda = t->pair_labels ? (double)t->lambdas[image] : 1;
	double part = class == t->labels[image] ? lambda : 0;

	if (t->pair_labels && class == t->pair_labels[image])
		part += 1 - lambda;
	part = part * (1 - r->a->smoothing) + r->a->smoothing / r->slice->classes;
	return t->class_weights ? part * t->class_weights[class] : part;
}

static void tell_image(const struct rows *r, int image, double *out)
{
	int own = gn_targets_main_label(&r->a->targets, image) - r->slice->first;

	out[TOP] = logit(r, image, 0);
	for (int k = 1; k < r->slice->count; k++)
		out[TOP] = logit(r, image, k) > out[TOP] ? logit(r, image, k) : out[TOP];
	out[EXPONENTIALS] = out[MASS] = out[SHIFTED] = 0;
	for (int k = 0; k < r->slice->count; k++) {
		double t = target(r, image, k), x = logit(r, image, k) - out[TOP];

		out[EXPONENTIALS] += exp(x);
		out[MASS] += t;
		out[SHIFTED] += t * x;
	}
	out[OWN] = own >= 0 && own < r->slice->count ? logit(r, image, own) : -INFINITY;
}

enum gn_status gn_sliced_loss_begin(enum gn_backend backend, const struct gn_loss_args *a, const struct gn_class_slice *slice, double *numbers,
				    struct gn_err *err)
{
	const struct rows r = {backend, a, slice};
	enum gn_status status = gn_targets_check(&a->targets, a->batch, slice->classes, err);

	for (int i = 0; i < a->batch && !status; i++)
		for (int k = 0; k < GN_SLICED_LOSS_NUMBERS; k++)
			numbers[i * GN_SLICED_LOSS_NUMBERS + k] = 0;
	for (int i = 0; i < a->batch && !status; i++)
		if (a->targets.labels[i] >= 0)
			tell_image(&r, i, numbers + (size_t)i * GN_SLICED_LOSS_NUMBERS);
	return status;
}

/* Of all ranks, in their order. */
static void join(const struct rows *r, int image, const double *all, double out[GN_SLICED_LOSS_NUMBERS])
{
	const size_t stride = (size_t)r->a->batch * GN_SLICED_LOSS_NUMBERS;
	const double *x = all + (size_t)image * GN_SLICED_LOSS_NUMBERS;

	out[TOP] = x[TOP];
	out[OWN] = x[OWN];
	for (int i = 1; i < r->slice->ranks; i++) {
		out[TOP] = x[(size_t)i * stride + TOP] > out[TOP] ? x[(size_t)i * stride + TOP] : out[TOP];
		out[OWN] = x[(size_t)i * stride + OWN] > out[OWN] ? x[(size_t)i * stride + OWN] : out[OWN];
	}
	out[EXPONENTIALS] = out[MASS] = out[SHIFTED] = 0;
	for (int i = 0; i < r->slice->ranks; i++, x += stride) {
		out[EXPONENTIALS] += x[EXPONENTIALS] * exp(x[TOP] - out[TOP]);
		out[MASS] += x[MASS];
		out[SHIFTED] += x[SHIFTED] + x[MASS] * (x[TOP] - out[TOP]);
	}
}

static double end_image(const struct rows *r, int image, double scale, const double x[GN_SLICED_LOSS_NUMBERS])
{
	const double log_sum = log(x[EXPONENTIALS]), whole = r->a->targets.class_weights ? x[MASS] : 1;

	for (int k = 0; k < r->slice->count; k++)
		set_gradient(r, image, k, (whole * exp(logit(r, image, k) - x[TOP] - log_sum) - target(r, image, k)) * scale);
	return whole * log_sum - x[SHIFTED];
}

void gn_sliced_loss_end(enum gn_backend backend, const struct gn_loss_args *a, const struct gn_class_slice *slice, const double *all)
{
	const struct rows r = {backend, a, slice};
	double x[GN_SLICED_LOSS_NUMBERS], loss = 0;
	int counted = 0, correct = 0;

	for (int i = 0; i < a->batch; i++)
		counted += a->targets.labels[i] >= 0;
	for (int i = 0; i < a->batch; i++) {
		if (a->targets.labels[i] < 0) {
			for (int k = 0; k < slice->count; k++)
				set_gradient(&r, i, k, 0);
			continue;
		}
		join(&r, i, all, x);
		loss += end_image(&r, i, a->grad_scale / counted, x);
		correct += x[OWN] >= x[TOP] && !isnan(x[EXPONENTIALS]);
	}
	a->out->loss = counted ? loss / counted : 0;
	if (a->mean)
		*a->mean += (float)(a->out->loss * a->share);
	if (a->correct)
		*a->correct += (float)((counted ? (double)correct / counted : 0) * a->share);
	if (a->mean_weight)
		*a->mean_weight += (float)(gn_targets_mean_weight(&a->targets, a->batch) * a->share);
}
