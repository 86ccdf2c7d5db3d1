/* Batches on their way to the device: on the host they are read where they are; to a GPU each waits in pinned memory and is copied by a
 * stream of its own while a step runs. */
#include "src/train/plan/plan_internal.h"

#include <string.h>

enum { COPIED_AT_ONCE = 1 << 18 };

/* Of labels, pair labels and lambdas together, 4 bytes each. */
static size_t target_bytes(const struct gn_plan *p)
{
	return 3 * (size_t)p->options.batch * 4;
}

/* Also sets where things are in a slot. */
static size_t slot_bytes(const struct gn_plan *p, struct gn_plan_batches *b)
{
	const struct gn_layout *l = &p->tensors[0].layout;
	size_t batch = (size_t)p->options.batch;

	b->crops_at = gn_plan_aligned(target_bytes(p));
	b->images_at = b->crops_at + (b->crops ? gn_plan_aligned(batch * sizeof(struct gn_crop)) : 0);
	b->image_bytes = b->crops ? batch * gn_crop_room_bytes((uint32_t)l->h, (uint32_t)l->w) : gn_layout_elements(l) * sizeof(float);
	return gn_plan_aligned(b->images_at + b->image_bytes);
}

size_t gn_plan_batch_bytes(const struct gn_plan *p)
{
	struct gn_plan_batches b = p->batches;

	return gn_plan_is_queued(p) ? GN_PLAN_SLOTS * slot_bytes(p, &b) + gn_plan_aligned(target_bytes(p)) : 0;
}

static enum gn_status create_slot(struct gn_plan *p, struct gn_plan_slot *s, size_t bytes, struct gn_err *err)
{
	void *pinned;
	enum gn_status status = gn_pinned_alloc(p->device.device, bytes, &pinned, err);

	if (status)
		return status;
	s->pinned = pinned;
	status = gn_event_create(p->device.device, &s->uploaded, err);
	return status ? status : gn_event_create(p->device.device, &s->taken, err);
}

enum gn_status gn_plan_batches_init(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	size_t each;
	enum gn_status status;

	if (!gn_plan_is_queued(p))
		return GN_OK;
	each = slot_bytes(p, b);
	status = gn_stream_create(p->device.device, &b->upload, err);
	if (!status)
		status = gn_buffer_alloc(p->device.device, gn_plan_batch_bytes(p), &b->buffer, err);
	for (int i = 0; i < GN_PLAN_SLOTS && !status; i++) {
		b->slots[i].device = (char *)b->buffer.address + (size_t)i * each;
		status = create_slot(p, &b->slots[i], each, err);
	}
	if (!status)
		b->labels = (int32_t *)(void *)((char *)b->buffer.address + GN_PLAN_SLOTS * each);
	return status;
}

void gn_plan_batches_release(struct gn_plan *p)
{
	struct gn_plan_batches *b = &p->batches;

	gn_stream_destroy(b->upload); /* waits for its copies */
	for (int i = 0; i < GN_PLAN_SLOTS; i++) {
		gn_event_destroy(b->slots[i].uploaded);
		gn_event_destroy(b->slots[i].taken);
		gn_pinned_free(p->device.device, b->slots[i].pinned);
	}
	gn_buffer_free(&b->buffer);
}

/* --- staging --- */

static void copy_images(char *to, const char *from, size_t bytes)
{
#pragma omp parallel for schedule(static)
	for (size_t begin = 0; begin < bytes; begin += COPIED_AT_ONCE)
		memcpy(to + begin, from + begin, bytes - begin < COPIED_AT_ONCE ? bytes - begin : COPIED_AT_ONCE);
}

/* Pixels without gaps; the copies of the crops point to where those will be on the device. *bytes: of all pixels. */
static enum gn_status copy_crops(const struct gn_plan *p, struct gn_plan_slot *s, const struct gn_crop *from, size_t *bytes,
				   struct gn_err *err)
{
	const struct gn_plan_batches *b = &p->batches;
	struct gn_crop *to = (struct gn_crop *)(void *)(s->pinned + b->crops_at);
	uint8_t *device = (uint8_t *)s->device + b->images_at;
	int batch = p->options.batch;
	size_t room = b->image_bytes / (size_t)batch, used = 0;

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
			memcpy(s->pinned + b->images_at + (to[i].pixels - device), from[i].pixels, gn_crop_bytes(&from[i]));
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

static enum gn_status stage_slot(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	struct gn_plan_slot *s = &b->slots[b->next];
	size_t bytes = b->image_bytes;
	/* what was copied from here two batches ago has long arrived */
	enum gn_status status = gn_event_wait(s->uploaded, err);

	if (status)
		return status;
	if (!b->crops)
		copy_images(s->pinned + b->images_at, images, bytes);
	else if ((status = copy_crops(p, s, images, &bytes, err)))
		return status;
	if (targets)
		copy_targets(p, s, targets);
	s->has_mixup = targets && targets->pair_labels;
	if ((status = gn_stream_after(b->upload, s->taken, err)) ||
	    (status = gn_stream_copy(b->upload, s->device, s->pinned, b->images_at + bytes, err)) ||
	    (status = gn_event_record(s->uploaded, b->upload, err)))
		return status;
	b->next = (b->next + 1) % GN_PLAN_SLOTS;
	return GN_OK;
}

enum gn_status gn_plan_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	enum gn_status status = GN_OK;

	if (gn_plan_is_queued(p)) {
		status = stage_slot(p, images, targets, err);
	} else {
		b->images = images;
		b->targets = targets ? *targets : (struct gn_targets){.labels = NULL};
	}
	b->staged = !status;
	return status;
}

/* --- taking --- */

/* Where the three columns of targets begin on the device. */
static struct gn_targets targets_at(const struct gn_plan *p, int has_mixup)
{
	int32_t *labels = p->batches.labels;
	size_t batch = (size_t)p->options.batch;

	return (struct gn_targets){.labels = labels, .pair_labels = has_mixup ? labels + batch : NULL,
				   .lambdas = has_mixup ? (const float *)(labels + 2 * batch) : NULL};
}

static enum gn_status take_images(struct gn_plan *p, const char *from, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	const struct gn_layout *l = &p->tensors[0].layout;
	void *to = gn_plan_address(p, p->tensors[0].data);

	if (!b->crops)
		return gn_compute_load(p->device.compute, l, from + b->images_at, to, err);
	return gn_compute_load_crops(p->device.compute, l, b->pixels.mean, b->pixels.deviation,
				       (const struct gn_crop *)(const void *)(from + b->crops_at), to, err);
}

enum gn_status gn_plan_take_batch(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	struct gn_plan_slot *s = &b->slots[(b->next + GN_PLAN_SLOTS - 1) % GN_PLAN_SLOTS];
	enum gn_status status;

	if (!b->staged)
		return gn_err_set(err, GN_ERR_USAGE, "a step without a batch that was staged");
	b->staged = 0;
	if (gn_model_origin(p->model).node)
		return gn_stream_copy(p->device.stream, gn_plan_address(p, p->tensors[0].data), b->images, gn_layout_bytes(&p->tensors[0].layout), err);
	if (!gn_plan_is_queued(p))
		return gn_compute_load(p->device.compute, &p->tensors[0].layout, b->images, gn_plan_address(p, p->tensors[0].data), err);
	b->targets = targets_at(p, s->has_mixup);
	if ((status = gn_stream_after(p->device.stream, s->uploaded, err)) || (status = take_images(p, s->device, err)) ||
	    (status = gn_stream_copy(p->device.stream, b->labels, s->device, target_bytes(p), err)))
		return status;
	return gn_event_record(s->taken, p->device.stream, err);
}

enum gn_status gn_plan_set_targets(struct gn_plan *p, const struct gn_targets *targets, struct gn_err *err)
{
	struct gn_plan_batches *b = &p->batches;
	size_t column = (size_t)p->options.batch * 4;
	char *to = (char *)b->labels;
	enum gn_status status;

	if (!gn_plan_is_queued(p)) {
		b->targets = *targets;
		return GN_OK;
	}
	b->targets = targets_at(p, targets->pair_labels != NULL);
	status = gn_stream_copy(p->device.stream, to, targets->labels, column, err);
	if (!status && targets->pair_labels)
		status = gn_stream_copy(p->device.stream, to + column, targets->pair_labels, column, err);
	if (!status && targets->pair_labels)
		status = gn_stream_copy(p->device.stream, to + 2 * column, targets->lambdas, column, err);
	return status;
}
