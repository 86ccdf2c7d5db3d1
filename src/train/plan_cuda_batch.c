/* Batches on their way to a GPU: each waits in pinned memory and goes up on a stream of its own while a step runs. */
#include "src/train/plan_cuda.h"

#include <string.h>

static void copy_images(float *to, const float *from, size_t count)
{
#pragma omp parallel for schedule(static)
	for (size_t begin = 0; begin < count; begin += 1 << 16)
		memcpy(to + begin, from + begin, (count - begin < 1 << 16 ? count - begin : 1 << 16) * sizeof *to);
}

enum gn_status gn_plan_cuda_stage(struct gn_plan *p, const float *images, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_plan_slot *s = &d->slots[d->next_slot];
	size_t batch = (size_t)p->options.batch, elements = d->image_elements + (targets ? gn_plan_cuda_target_elements(p) : 0);
	float *labels = s->pinned + d->image_elements;
	/* what was sent from here two batches ago has long arrived */
	enum gn_status status = gn_cuda_event_wait(s->uploaded, err);

	if (status)
		return status;
	copy_images(s->pinned, images, d->image_elements);
	if (targets) {
		memcpy(labels, targets->labels, batch * 4);
		memcpy(labels + batch, targets->mates ? targets->mates : targets->labels, batch * 4);
		if (targets->mates)
			memcpy(labels + 2 * batch, targets->shares, batch * 4);
	}
	s->has_mates = targets && targets->mates;
	if ((status = gn_cuda_stream_after(d->upload, s->taken, err)) ||
	    (status = gn_cuda_copy(d->upload, s->images, s->pinned, elements * sizeof(float), err)) ||
	    (status = gn_cuda_event_record(s->uploaded, d->upload, err)))
		return status;
	d->staged = d->next_slot;
	d->next_slot = (d->next_slot + 1) % GN_PLAN_SLOTS;
	return GN_OK;
}

enum gn_status gn_plan_cuda_take(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	void *images = gn_plan_address(p, p->tensors[0].data);
	struct gn_plan_slot *s;
	enum gn_status status;

	if (d->staged < 0)
		return gn_err_set(err, GN_ERR_USAGE, "a step without a batch that was staged");
	s = &d->slots[d->staged];
	d->staged = -1;
	d->has_mates = s->has_mates;
	if ((status = gn_cuda_stream_after(d->stream, s->uploaded, err)) ||
	    (status = gn_cuda_copy(d->stream, images, s->images, d->image_elements * sizeof(float), err)) ||
	    (status = gn_cuda_copy(d->stream, d->labels, s->images + d->image_elements, gn_plan_cuda_target_elements(p) * 4, err)))
		return status;
	return gn_cuda_event_record(s->taken, d->stream, err);
}
