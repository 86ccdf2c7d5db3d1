/* What a plan takes of a GPU's memory, and of the host's beside it. */
#include "src/train/plan/plan_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
	return (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
}

static void lay_out_batch(struct gn_plan *p)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const struct gn_layout *l = &p->tensors[0].layout;
	size_t batch = (size_t)p->options.batch;

	d->crops_at = aligned(gn_plan_cuda_target_elements(p) * 4);
	d->images_at = d->crops_at + (d->crops ? aligned(batch * sizeof(struct gn_crop)) : 0);
	d->image_bytes = d->crops ? batch * gn_crop_room_bytes((uint32_t)l->h, (uint32_t)l->w) :
				      gn_layout_elements(l) * sizeof(float);
}

static size_t batch_bytes(const struct gn_plan *p)
{
	return gn_plan_cuda_of(p)->images_at + gn_plan_cuda_of(p)->image_bytes;
}

/* Device memory beside the arena of activations. */
static size_t other_bytes(const struct gn_plan *p)
{
	size_t params = gn_model_param_elements(p->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(p->model) * sizeof(float);

	return aligned(params) * (p->options.training ? 2 : 1) + aligned(buffers) + aligned(p->own_elements * sizeof(float)) +
	       GN_PLAN_SLOTS * aligned(batch_bytes(p)) + aligned(gn_plan_cuda_target_elements(p) * 4) +
	       aligned((size_t)p->options.batch * sizeof(float)) + 4 * GN_CUDA_ALIGN_BYTES;
}

/* Says what would fit: activations grow with the batch, parameters do not. */
static enum gn_status too_large(const struct gn_plan *p, size_t unused, struct gn_err *err)
{
	const struct gn_cuda_info *info = gn_cuda_device_info(gn_plan_cuda_of(p)->device);
	size_t fixed = other_bytes(p) - GN_PLAN_SLOTS * aligned(batch_bytes(p));
	size_t each = (p->arena_bytes + GN_PLAN_SLOTS * batch_bytes(p)) / (size_t)p->options.batch + 1;
	size_t fits = unused > fixed ? (unused - fixed) / each : 0;

	return gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: %s with batch %d and images of side %d needs %zu MiB, and %zu of %s's "
			  "%zu MiB are free: %s%.0zu%s", info->ordinal, gn_model_name(p->model), p->options.batch,
			  gn_model_side(p->model), (p->arena_bytes + other_bytes(p)) >> 20, unused >> 20, info->name,
			  info->memory_bytes >> 20, fits ? "a batch of about " : "not even one image fits", fits,
			  fits ? " fits" : "");
}

static enum gn_status take_memory(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t wanted = aligned(p->arena_bytes) + other_bytes(p), unused, total;
	enum gn_status status = gn_cuda_device_memory(d->device, &unused, &total, err);

	if (status)
		return status;
	if (wanted > unused)
		return too_large(p, unused, err);
	status = gn_cuda_arena_create(d->device, wanted, &d->arena, err);
	return status == GN_ERR_NO_MEMORY ? too_large(p, unused, err) : status;
}

/* The arena is as large as all pieces together. */
static void *piece(struct gn_plan_cuda *d, size_t bytes)
{
	return bytes ? gn_cuda_arena_take(d->arena, bytes) : NULL;
}

static void lay_out(struct gn_plan *p)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t params = gn_model_param_elements(p->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(p->model) * sizeof(float);

	p->arena = piece(d, p->arena_bytes);
	p->bound.params = piece(d, params);
	/* neighbours, for ranks sum both */
	p->bound.grads = p->options.training ? piece(d, params + buffers) : NULL;
	p->bound.buffers = p->options.training ? p->bound.grads + params / sizeof(float) : piece(d, buffers);
	p->bound.own = piece(d, p->own_elements * sizeof(float));
	for (int i = 0; i < GN_PLAN_SLOTS; i++)
		d->slots[i].device = piece(d, batch_bytes(p));
	d->labels = piece(d, gn_plan_cuda_target_elements(p) * 4);
	d->loss_rows = piece(d, (size_t)p->options.batch * sizeof(float));
	d->loss = piece(d, sizeof *d->loss);
	d->nonfinite = piece(d, sizeof *d->nonfinite);
}

static enum gn_status make_slots(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = GN_OK;

	for (int i = 0; i < GN_PLAN_SLOTS && !status; i++) {
		struct gn_plan_slot *s = &d->slots[i];
		void *pinned;

		status = gn_cuda_pinned_alloc(d->device, batch_bytes(p), &pinned, err);
		if (status)
			break;
		s->pinned = pinned;
		status = gn_cuda_event_create(d->device, 0, &s->uploaded, err);
		if (!status)
			status = gn_cuda_event_create(d->device, 0, &s->taken, err);
	}
	return status;
}

static enum gn_status make_events(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = GN_OK;

	d->complete = calloc((size_t)p->op_count + 1, sizeof(struct gn_cuda_event *));
	d->home = calloc((size_t)p->op_count + 1, sizeof(struct gn_cuda_event *));
	if (!d->complete || !d->home)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for events");
	for (int i = 0; i < p->op_count && p->options.training && !status; i++) {
		status = gn_cuda_event_create(d->device, 0, &d->complete[i], err);
		if (!status)
			status = gn_cuda_event_create(d->device, 0, &d->home[i], err);
	}
	return status;
}

/* The caller's arrays, which then are copied without a stop; where that cannot be, they are copied all the same. */
static void register_arrays(struct gn_plan *p)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t params = gn_model_param_elements(p->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(p->model) * sizeof(float);
	void *arrays[3] = {p->params, p->grads, p->buffers};
	size_t bytes[3] = {params, params, buffers};

	for (int i = 0; i < 3; i++)
		if (arrays[i] && bytes[i] && !gn_cuda_register(d->device, arrays[i], bytes[i], NULL))
			d->pinned_arrays[i] = arrays[i];
}

void gn_plan_cuda_say(struct gn_plan *p, const char *format, ...)
{
	int norms = 0, deferred = 0, summed = 0;
	size_t room = sizeof p->manner, len;
	va_list args;

	for (int i = 0; i < p->op_count; i++) {
		norms += p->ops[i].kind == GN_OP_BATCH_NORM;
		deferred += p->ops[i].conv_bn && p->ops[i].conv_bn->defers;
		summed += p->ops[i].conv_bn && p->ops[i].conv_bn->sums;
	}
	snprintf(p->manner, room, "on %.40s, ", gn_cuda_device_info(gn_plan_cuda_of(p)->device)->name);
	len = strlen(p->manner);
	va_start(args, format);
	vsnprintf(p->manner + len, room - len, format, args);
	va_end(args);
	len = strlen(p->manner);
	if (deferred + summed)
		snprintf(p->manner + len, room - len, "; of %d batch norms %d forward and %d backward within convolutions", norms,
			 deferred, summed);
}

enum gn_status gn_plan_cuda_place(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	void *outcome;
	enum gn_status status;

	lay_out_batch(p);
	p->logits = calloc((size_t)p->options.batch * (size_t)gn_model_classes(p->model), sizeof *p->logits);
	if (!p->logits)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for logits");
	status = take_memory(p, err);
	if (status)
		return status;
	lay_out(p);
	status = gn_cuda_pinned_alloc(d->device, sizeof *d->outcome, &outcome, err);
	if (status)
		return status;
	d->outcome = outcome;
	status = make_slots(p, err);
	if (!status)
		status = make_events(p, err);
	if (!status)
		register_arrays(p);
	gn_plan_cuda_say(p, "%s", p->options.tf32 ? "tf32" : gn_cuda_type_name(d->type));
	return status;
}
