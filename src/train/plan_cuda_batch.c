/* Batches on their way to a GPU: each waits in pinned memory and goes up on a stream of its own while a step runs. */
#include "src/train/plan_cuda.h"

#include <string.h>

enum { COPIED_AT_ONCE = 1 << 18 };

static void copy_images(char *to, const char *from, size_t bytes)
{
#pragma omp parallel for schedule(static)
	for (size_t begin = 0; begin < bytes; begin += COPIED_AT_ONCE)
		memcpy(to + begin, from + begin, bytes - begin < COPIED_AT_ONCE ? bytes - begin : COPIED_AT_ONCE);
}

enum gn_status gn_plan_cuda_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_plan_slot *s = &d->slots[d->next_slot];
	size_t column = (size_t)p->options.batch * 4;
	size_t bytes = targets ? d->targets_at + gn_plan_cuda_target_elements(p) * 4 : d->image_bytes;
	char *labels = s->pinned + d->targets_at;
	/* what was sent from here two batches ago has long arrived */
	enum gn_status status = gn_cuda_event_wait(s->uploaded, err);

	if (status)
		return status;
	copy_images(s->pinned, images, d->image_bytes);
	if (targets) {
		memcpy(labels, targets->labels, column);
		memcpy(labels + column, targets->mates ? targets->mates : targets->labels, column);
		if (targets->mates)
			memcpy(labels + 2 * column, targets->shares, column);
	}
	s->has_mates = targets && targets->mates;
	if ((status = gn_cuda_stream_after(d->upload, s->taken, err)) ||
	    (status = gn_cuda_copy(d->upload, s->images, s->pinned, bytes, err)) ||
	    (status = gn_cuda_event_record(s->uploaded, d->upload, err)))
		return status;
	d->staged = d->next_slot;
	d->next_slot = (d->next_slot + 1) % GN_PLAN_SLOTS;
	return GN_OK;
}

static enum gn_status normalise(struct gn_plan *p, const void *pixels, void *images, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const struct gn_layout *l = &p->tensors[0].layout;
	struct gn_cuda_image_args a = {
		.type = l->element_bytes == sizeof(float) ? GN_CUDA_F32 : d->type, .n = l->n, .h = l->h, .w = l->w,
		.out_h = l->h, .out_w = l->w, .out_channels = l->c, .images = pixels, .out = images,
	};

	memcpy(a.mean, d->pixels.mean, sizeof a.mean);
	memcpy(a.deviation, d->pixels.deviation, sizeof a.deviation);
	return gn_cuda_crop_flip_normalise(d->stream, &a, err);
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
	    (status = d->bytes ? normalise(p, s->images, images, err) : gn_cuda_copy(d->stream, images, s->images, d->image_bytes, err)) ||
	    (status = gn_cuda_copy(d->stream, d->labels, s->images + d->targets_at, gn_plan_cuda_target_elements(p) * 4, err)))
		return status;
	return gn_cuda_event_record(s->taken, d->stream, err);
}
