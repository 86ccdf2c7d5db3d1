/* kernels/compute.h on the host: the oracle's and the fast backend's. */
#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

/* Below it threads cost more than they gain. */
enum { ALONE = 1 << 14 };

static void destroy(struct gn_compute *c)
{
	free(c);
}

static enum gn_status load(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	(void)c;
	(void)err;
	gn_tensor_load(l, from, to);
	return GN_OK;
}

static enum gn_status store(struct gn_compute *c, const struct gn_layout *l, const void *from, float *host, struct gn_err *err)
{
	(void)c;
	(void)err;
	gn_tensor_store(l, from, host);
	return GN_OK;
}

static enum gn_status put(struct gn_compute *c, void *to, const void *values, size_t bytes, struct gn_err *err)
{
	(void)c;
	(void)err;
	memcpy(to, values, bytes);
	return GN_OK;
}

static enum gn_status add_tensor(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	(void)c;
	(void)err;
	gn_tensor_accumulate(l, from, to);
	return GN_OK;
}

static enum gn_status add(struct gn_compute *c, const float *from, float *to, size_t count, struct gn_err *err)
{
	(void)c;
	(void)err;
#pragma omp parallel for simd schedule(static) if (count > ALONE)
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
	return GN_OK;
}

static enum gn_status scale(struct gn_compute *c, float *x, double factor, size_t count, struct gn_err *err)
{
	const float by = (float)factor;

	(void)c;
	(void)err;
#pragma omp parallel for simd schedule(static) if (count > ALONE)
	for (size_t i = 0; i < count; i++)
		x[i] *= by;
	return GN_OK;
}

/* Comparisons with NaN are false: a row that has one is not correct. */
static int is_correct(const float *row, int classes, int target)
{
	int below = 0;

	for (int k = 0; k < classes; k++)
		below += row[k] <= row[target];
	return below == classes;
}

static double correct_share(const struct gn_loss_args *a)
{
	const struct gn_targets *t = &a->targets;
	const float *logits = a->logits;
	int counted = 0, correct = 0;

	for (int n = 0; n < a->batch; n++) {
		if (t->labels[n] < 0)
			continue;
		counted++;
		correct += is_correct(logits + (size_t)n * (size_t)a->classes, a->classes, gn_targets_main_label(t, n));
	}
	return counted ? (double)correct / counted : 0;
}

static enum gn_status loss(struct gn_compute *c, const struct gn_loss_args *a, struct gn_err *err)
{
	enum gn_status status = gn_softmax_cross_entropy_mixed(c->backend, a->batch, a->classes, a->logits, &a->targets, a->smoothing,
							       &a->out->loss, a->dlogits, err);

	if (!status && a->mean)
		*a->mean += (float)(a->out->loss * a->share);
	if (!status && a->correct)
		*a->correct += (float)(correct_share(a) * a->share);
	if (!status && a->mean_weight)
		*a->mean_weight += (float)(gn_targets_mean_weight(&a->targets, a->batch) * a->share);
	return status;
}

enum gn_status gn_compute_create_host(struct gn_stream *s, enum gn_backend backend, struct gn_compute **out, struct gn_err *err)
{
	static const struct gn_compute_class class = {
		.destroy = destroy, .load = load, .store = store,
		.put = put, .add_tensor = add_tensor, .add = add, .scale = scale, .loss = loss, .update = &gn_host_update,
	};
	struct gn_compute *c = calloc(1, sizeof *c);

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a device's arithmetic");
	*c = (struct gn_compute){.class = &class, .stream = s, .backend = backend};
	*out = c;
	return GN_OK;
}
