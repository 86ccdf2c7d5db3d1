/* Batches on their way to a GPU: each waits in pinned memory and goes up on a stream of its own while a step runs. */
#include "src/train/plan/plan_cuda.h"

#include <string.h>

enum { COPIED_AT_ONCE = 1 << 18 };

static void copy_images(char *to, const char *from, size_t bytes)
{
#pragma omp parallel for schedule(static)
	for (size_t begin = 0; begin < bytes; begin += COPIED_AT_ONCE)
		memcpy(to + begin, from + begin, bytes - begin < COPIED_AT_ONCE ? bytes - begin : COPIED_AT_ONCE);
}

/* Pixels close together; crops come to point to where those will lie on the device. *bytes: of all pixels. */
static enum gn_status copy_crops(const struct gn_plan *p, struct gn_plan_slot *s, const struct gn_crop *from, size_t *bytes,
				   struct gn_err *err)
{
	const struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_crop *to = (struct gn_crop *)(void *)(s->pinned + d->crops_at);
	uint8_t *device = (uint8_t *)s->device + d->images_at;
	int batch = p->options.batch;
	size_t room = d->image_bytes / (size_t)batch, used = 0;

	for (int i = 0; i < batch; i++) {
		if (gn_crop_bytes(&from[i]) > room || (!gn_crop_bytes(&from[i]) && from[i].to_width && from[i].to_height))
			return gn_err_set(err, GN_ERR_USAGE, "image %d of a batch: a crop of %ux%u for %ux%u of a sample, where "
					  "there is room for %zu bytes", i, from[i].width, from[i].height, from[i].to_width,
					  from[i].to_height, room);
		to[i] = from[i];
		to[i].pixels = device + used;
		used += gn_crop_bytes(&from[i]);
	}
#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < batch; i++)
		if (gn_crop_bytes(&from[i]))
			memcpy(s->pinned + d->images_at + (to[i].pixels - device), from[i].pixels, gn_crop_bytes(&from[i]));
	*bytes = used;
	return GN_OK;
}

static void copy_targets(const struct gn_plan *p, struct gn_plan_slot *s, const struct gn_targets *targets)
{
	size_t column = (size_t)p->options.batch * 4;

	memcpy(s->pinned, targets->labels, column);
	memcpy(s->pinned + column, targets->pair_labels ? targets->pair_labels : targets->labels, column);
	if (targets->pair_labels)
		memcpy(s->pinned + 2 * column, targets->lambdas, column);
}

enum gn_status gn_plan_cuda_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_plan_slot *s = &d->slots[d->next_slot];
	size_t bytes = d->image_bytes;
	/* what was sent from here two batches ago has long arrived */
	enum gn_status status = gn_cuda_event_wait(s->uploaded, err);

	if (status)
		return status;
	if (!d->crops)
		copy_images(s->pinned + d->images_at, images, bytes);
	else if ((status = copy_crops(p, s, images, &bytes, err)))
		return status;
	if (targets)
		copy_targets(p, s, targets);
	s->has_mixup = targets && targets->pair_labels;
	if ((status = gn_cuda_stream_after(d->upload, s->taken, err)) ||
	    (status = gn_cuda_copy(d->upload, s->device, s->pinned, d->images_at + bytes, err)) ||
	    (status = gn_cuda_event_record(s->uploaded, d->upload, err)))
		return status;
	d->staged = d->next_slot;
	d->next_slot = (d->next_slot + 1) % GN_PLAN_SLOTS;
	return GN_OK;
}

static enum gn_status make_samples(struct gn_plan *p, const struct gn_plan_slot *s, void *images, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const struct gn_layout *l = &p->tensors[0].layout;
	struct gn_cuda_image_args a = {
		.type = l->element_bytes == sizeof(float) ? GN_CUDA_F32 : d->type, .n = l->n, .h = l->h, .w = l->w,
		.channels = l->c, .crops = (const struct gn_crop *)(const void *)(s->device + d->crops_at), .out = images,
	};

	memcpy(a.mean, d->pixels.mean, sizeof a.mean);
	memcpy(a.deviation, d->pixels.deviation, sizeof a.deviation);
	return gn_cuda_crop_resize_normalise(d->stream, &a, err);
}

static enum gn_status take_images(struct gn_plan *p, const struct gn_plan_slot *s, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	void *images = gn_plan_address(p, p->tensors[0].data);

	return d->crops ? make_samples(p, s, images, err) :
			    gn_cuda_copy(d->stream, images, s->device + d->images_at, d->image_bytes, err);
}

enum gn_status gn_plan_cuda_take(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_plan_slot *s;
	enum gn_status status;

	if (d->staged < 0)
		return gn_err_set(err, GN_ERR_USAGE, "a step without a batch that was staged");
	s = &d->slots[d->staged];
	d->staged = -1;
	d->has_mixup = s->has_mixup;
	if ((status = gn_cuda_stream_after(d->stream, s->uploaded, err)) ||
	    (status = take_images(p, s, err)) ||
	    (status = gn_cuda_copy(d->stream, d->labels, s->device, gn_plan_cuda_target_elements(p) * 4, err)))
		return status;
	return gn_cuda_event_record(s->taken, d->stream, err);
}
