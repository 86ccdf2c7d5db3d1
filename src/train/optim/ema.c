#include "src/train/optim/ema.h"

#include "kernels/optim.h"
#include "src/base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gn_ema {
	double decay;
	size_t param_count, buffer_count;
	float *params, *buffers;
};

enum gn_status gn_ema_create(const struct gn_model *model, double decay, struct gn_ema **out, struct gn_err *err)
{
	struct gn_ema *e = calloc(1, sizeof *e);

	if (e) {
		e->decay = decay;
		e->param_count = gn_model_param_elements(model);
		e->buffer_count = gn_model_buffer_elements(model);
		e->params = gn_alloc_aligned(e->param_count * sizeof(float));
		e->buffers = gn_alloc_aligned((e->buffer_count + 1) * sizeof(float));
	}
	if (!e || !e->params || !e->buffers) {
		gn_ema_destroy(e);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the moving average of the parameters");
	}
	*out = e;
	return GN_OK;
}

void gn_ema_destroy(struct gn_ema *e)
{
	if (!e)
		return;
	free(e->params);
	free(e->buffers);
	free(e);
}

void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers)
{
	memcpy(e->params, params, e->param_count * sizeof(float));
	memcpy(e->buffers, buffers, e->buffer_count * sizeof(float));
}

double gn_ema_decay(double decay, uint64_t t)
{
	return fmin(decay, (1 + (double)t) / (10 + (double)t));
}

double gn_ema_decays_by(const struct gn_ema *e)
{
	return e->decay;
}

void gn_ema_update(struct gn_ema *e, uint64_t t, const float *params, const float *buffers)
{
	double decay = gn_ema_decay(e->decay, t);

	gn_average_step(e->params, params, e->param_count, decay);
	gn_average_step(e->buffers, buffers, e->buffer_count, decay);
}

static void swap(float *a, float *b, size_t count)
{
#pragma omp parallel for simd schedule(static) if (count > 1 << 14)
	for (size_t i = 0; i < count; i++) {
		float kept = a[i];

		a[i] = b[i];
		b[i] = kept;
	}
}

void gn_ema_swap(struct gn_ema *e, float *params, float *buffers)
{
	swap(e->params, params, e->param_count);
	swap(e->buffers, buffers, e->buffer_count);
}

float *gn_ema_params(struct gn_ema *e)
{
	return e->params;
}

float *gn_ema_buffers(struct gn_ema *e)
{
	return e->buffers;
}
