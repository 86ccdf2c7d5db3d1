#include "src/train/optim/ema.h"

#include <math.h>
#include <string.h>

enum gn_status gn_ema_init(struct gn_ema *e, const struct gn_model *model, double decay, const struct gn_parts *parts,
			   struct gn_device *device, struct gn_err *err)
{
	enum gn_status status;

	*e = (struct gn_ema){.decay = decay, .parts = parts};
	status = gn_array_create(device, parts ? parts->elements : gn_model_param_elements(model), &e->params, err);
	if (!status)
		status = gn_array_create(device, gn_model_buffer_elements(model), &e->buffers, err);
	if (!status)
		return GN_OK;
	gn_ema_release(e);
	return gn_err_prefix(err, "moving average of the parameters"), status;
}

void gn_ema_release(struct gn_ema *e)
{
	gn_array_release(&e->params);
	gn_array_release(&e->buffers);
}

double gn_ema_decay(double decay, uint64_t t)
{
	return fmin(decay, (1 + (double)t) / (10 + (double)t));
}

void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers)
{
	if (e->parts)
		gn_parts_pack(e->parts, params, e->params.host);
	else
		memcpy(e->params.host, params, e->params.count * sizeof(float));
	memcpy(e->buffers.host, buffers, e->buffers.count * sizeof(float));
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
	swap(e->params.host, params, e->params.count);
	swap(e->buffers.host, buffers, e->buffers.count);
}
