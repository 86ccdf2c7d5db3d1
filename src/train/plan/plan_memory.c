/* Who needs which memory when, and every operator bound to its addresses. */
#include "src/train/plan/plan_internal.h"

#include "src/base/alloc.h"

#include <stdlib.h>

static int by_bytes(const void *a, const void *b)
{
	const struct gn_memory_planner *const *x = a, *const *y = b;

	if ((*x)->bytes != (*y)->bytes)
		return (*x)->bytes < (*y)->bytes ? 1 : -1;
	return *x < *y ? -1 : *x > *y;
}

static int by_offset(const void *a, const void *b)
{
	const struct gn_memory_planner *const *x = a, *const *y = b;

	return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* Times before the gap and after it. */
static int parts_of(const struct gn_memory_planner *s, int part[2][2])
{
	part[0][0] = s->first;
	part[0][1] = s->last;
	if (s->gap_first > s->gap_last)
		return 1;
	part[0][1] = s->gap_first - 1;
	part[1][0] = s->gap_last + 1;
	part[1][1] = s->last;
	return 2;
}

static int together(const struct gn_memory_planner *a, const struct gn_memory_planner *b)
{
	int x[2][2], y[2][2], xs = parts_of(a, x), ys = parts_of(b, y), found = 0;

	for (int i = 0; i < xs; i++)
		for (int k = 0; k < ys; k++)
			found |= x[i][0] <= y[k][1] && y[k][0] <= x[i][1];
	return found;
}

/* The lowest gap between the pieces already placed that are alive together with s. */
static void place_one(struct gn_memory_planner *s, struct gn_memory_planner **placed, int count, struct gn_memory_planner **rivals)
{
	int rival_count = 0;
	size_t at = 0;

	for (int i = 0; i < count; i++)
		if (together(placed[i], s))
			rivals[rival_count++] = placed[i];
	qsort(rivals, rival_count, sizeof *rivals, by_offset);
	for (int i = 0; i < rival_count; i++) {
		if (at + s->bytes <= rivals[i]->offset)
			break;
		if (at < rivals[i]->offset + gn_round_up(rivals[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES))
			at = rivals[i]->offset + gn_round_up(rivals[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES);
	}
	s->offset = at;
}

/* Largest first, each as low as it goes: within a few percent of the best on networks, where lifetimes nest. */
enum gn_status gn_memory_planner_place(struct gn_memory_planner *pieces, int count, size_t *total_bytes, struct gn_err *err)
{
	struct gn_memory_planner **order = calloc(2 * (size_t)count + 1, sizeof *order);
	size_t total = 0;

	if (!order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for placing %d buffers", count);
	for (int i = 0; i < count; i++)
		order[i] = &pieces[i];
	qsort(order, count, sizeof *order, by_bytes);
	for (int i = 0; i < count && order[i]->bytes; i++) {
		place_one(order[i], order, i, order + count);
		if (order[i]->offset + gn_round_up(order[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES) > total)
			total = order[i]->offset + gn_round_up(order[i]->bytes, GN_MEMORY_PLANNER_ALIGN_BYTES);
	}
	free(order);
	*total_bytes = total;
	return GN_OK;
}

void *gn_plan_address(const struct gn_plan *p, int storage)
{
	return storage < 0 ? NULL : p->arena + p->storages[storage].offset;
}

static int backward_time(const struct gn_plan *p, int op)
{
	return 2 * p->op_count - op;
}

static int forever(const struct gn_plan *p)
{
	return 2 * p->op_count + 1;
}

static int add_storage(struct gn_plan *p, size_t bytes, int first, int last)
{
	p->storages[p->storage_count] = (struct gn_memory_planner){
		.bytes = bytes, .first = first, .last = last, .gap_last = -1};
	return p->storage_count++;
}

static void extend(struct gn_plan *p, int storage, int time)
{
	if (storage >= 0 && p->storages[storage].last < time)
		p->storages[storage].last = time;
	if (storage >= 0 && p->storages[storage].first > time)
		p->storages[storage].first = time;
}

/* The output may be in the first input's memory when nothing reads that input again. */
static int can_be_in_place(const struct gn_plan *p, const struct gn_plan_op *o)
{
	const struct gn_plan_tensor *in = &p->tensors[o->in[0]], *out = &p->tensors[o->out];

	if (!o->info.in_place || in->consumers != 1 || in->producer < 0)
		return 0;
	if (o->info.backward_reads_in || p->ops[in->producer].info.backward_reads_out)
		return 0;
	return gn_layout_bytes(&in->layout) == gn_layout_bytes(&out->layout);
}

static void place_data(struct gn_plan *p)
{
	int end = p->op_count;

	p->tensors[0].data = add_storage(p, gn_layout_bytes(&p->tensors[0].layout), 0, 0);
	for (int i = 0; i < p->op_count; i++) {
		struct gn_plan_op *o = &p->ops[i];
		struct gn_plan_tensor *out = &p->tensors[o->out];
		int training = p->options.training;

		out->data = o->info.out_is_second   ? p->tensors[o->in[1]].data
			    : can_be_in_place(p, o) ? p->tensors[o->in[0]].data
						    : add_storage(p, gn_layout_bytes(&out->layout), i, i);
		extend(p, out->data, i);
		if (training && o->info.backward_reads_out)
			extend(p, out->data, backward_time(p, i));
		for (int k = 0; k < 2 && o->in[k] >= 0; k++)
			extend(p, p->tensors[o->in[k]].data,
			       training && k == 0 && o->info.backward_reads_in ? backward_time(p, i) : i);
		o->workspace = add_storage(p, o->info.workspace_bytes, i, training ? backward_time(p, i) : i);
		if (p->options.frozen && o->conv >= 0) { /* weights made for good */
			extend(p, o->workspace, 0);
			extend(p, o->workspace, forever(p));
		}
	}
	extend(p, p->tensors[p->logits_tensor].data, end);
}

/* The output of a batch norm is read by the operator after it, forward and backward. Where it is recomputed for backward, from an input
 * that is kept anyway, its memory is free for all in between: a pass over memory for a sixth of ResNet-50's arena. */
static void place_gaps(struct gn_plan *p)
{
	for (int i = 0; i < p->op_count; i++) {
		const struct gn_plan_op *o = &p->ops[i];
		const struct gn_plan_tensor *out = &p->tensors[o->out];
		int next = out->last_consumer;
		struct gn_memory_planner *s = &p->storages[out->data];

		if (!o->info.recomputes || out->consumers != 1 || p->ops[next].in[0] != o->out || s->last != backward_time(p, next) ||
		    p->tensors[p->ops[next].out].data == out->data)
			continue;
		p->ops[next].recomputes = i;
		s->gap_first = next + 1;
		s->gap_last = s->last - 1;
	}
}

/* Sums that a convolution makes are kept until the batch norm after it has run. */
static void place_statistics(struct gn_plan *p)
{
	for (int i = 0; i < p->op_count; i++) {
		struct gn_plan_op *o = &p->ops[i];
		int producer = p->tensors[o->in[0]].producer;

		if (o->info.statistics_bytes)
			o->statistics = add_storage(p, o->info.statistics_bytes, i, i);
		if (o->kind != GN_OP_BATCH_NORM || producer < 0)
			continue;
		o->statistics = p->ops[producer].statistics;
		extend(p, o->statistics, i);
	}
}

/* Operator i's gradient of its input k joins one that is there already: its producer adds the two, or it goes to temporary
 * memory and is added at once. */
static void place_second_grad(struct gn_plan *p, int i, int k)
{
	struct gn_plan_op *o = &p->ops[i];
	struct gn_plan_tensor *in = &p->tensors[o->in[k]];
	size_t bytes = gn_layout_bytes(&in->layout);
	int now = backward_time(p, i);

	if (in->producer >= 0 && p->ops[in->producer].info.sums_gradients && in->consumers == 2) {
		o->gives_more[k] = 1;
		in->more_grad = add_storage(p, bytes, now, now);
		return;
	}
	o->adds[k] = 1;
	if (p->storages[p->temporary].bytes < bytes)
		p->storages[p->temporary].bytes = bytes;
}

/* Gradients from the loss backwards. The last operator that reads a tensor is the first to write its gradient. */
static void place_grads(struct gn_plan *p)
{
	struct gn_plan_tensor *logits = &p->tensors[p->logits_tensor];

	logits->grad = add_storage(p, gn_layout_bytes(&logits->layout), p->op_count, p->op_count);
	for (int i = p->op_count - 1; i >= 0; i--) {
		struct gn_plan_op *o = &p->ops[i];
		int now = backward_time(p, i);

		extend(p, p->tensors[o->out].grad, now);
		extend(p, p->tensors[o->out].more_grad, now);
		for (int k = 0; k < 2 && o->in[k] >= 0; k++) {
			struct gn_plan_tensor *in = &p->tensors[o->in[k]];

			if (gn_plan_is_images(p, in))
				continue;
			if (in->grad >= 0)
				place_second_grad(p, i, k);
			else if (k == 0 ? o->info.in_place && in->consumers == 1 : o->info.second_gradient_in_place)
				in->grad = p->tensors[o->out].grad;
			else
				in->grad = add_storage(p, gn_layout_bytes(&in->layout), now, now);
			extend(p, in->grad, now);
		}
	}
}

/* Of a frozen plan beside the host: copies of parameters, buffers, and weights with batch norm folded in. */
static size_t weight_bytes(const struct gn_plan *p)
{
	if (!p->options.frozen || !gn_plan_is_queued(p))
		return 0;
	return (gn_plan_aligned(gn_model_param_elements(p->model) * sizeof(float)) + gn_plan_aligned(gn_model_buffer_elements(p->model) * sizeof(float)) +
		gn_plan_aligned(p->own_elements * sizeof(float)));
}

/* Activations grow with the batch, weights do not. */
static enum gn_status too_large(const struct gn_plan *p, size_t unused, size_t total, struct gn_err *err)
{
	const struct gn_device *d = p->device.device;
	size_t fixed = weight_bytes(p), each = (p->arena_bytes + gn_plan_batch_bytes(p)) / (size_t)p->options.batch + 1;
	size_t fits = unused > fixed ? (unused - fixed) / each : 0;

	if (!gn_plan_is_queued(p))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s with batch %d and images of side %d needs %.1f GB of memory and this "
				  "machine has %.1f: use a smaller batch", gn_model_name(p->model), p->options.batch,
				  gn_model_side(p->model), (double)p->arena_bytes / 1e9, (double)total / 1e9);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: %s with batch %d and images of side %d needs %zu MiB, and %zu of %s's %zu MiB are free: "
			  "%s%.0zu%s", gn_device_name(d), gn_model_name(p->model), p->options.batch, gn_model_side(p->model),
			  (p->arena_bytes + gn_plan_batch_bytes(p) + fixed) >> 20, unused >> 20, gn_device_model(d), total >> 20,
			  fits ? "a batch of about " : "not even one image fits", fits, fits ? " fits" : "");
}

/* What operators are bound to. */
static enum gn_status place_weights(struct gn_plan *p, struct gn_err *err)
{
	size_t params = gn_plan_aligned(gn_model_param_elements(p->model) * sizeof(float));
	size_t buffers = gn_plan_aligned(gn_model_buffer_elements(p->model) * sizeof(float));
	enum gn_status s;

	p->bound.params = p->params;
	p->bound.grads = p->grads;
	p->bound.buffers = p->buffers;
	p->bound.own = p->own;
	if (!weight_bytes(p))
		return GN_OK;
	s = gn_buffer_alloc(p->device.device, weight_bytes(p), &p->weight_buffer, err);
	if (s)
		return s;
	p->bound.params = p->weight_buffer.address;
	p->bound.buffers = p->bound.params + params / sizeof(float);
	p->bound.own = p->bound.buffers + buffers / sizeof(float);
	return GN_OK;
}

static enum gn_status place_loss(struct gn_plan *p, struct gn_err *err)
{
	size_t count = p->options.batches > 1 ? (size_t)p->options.batches : 1, rows = gn_plan_is_queued(p) ? 2 * (size_t)p->options.batch : 0;
	const struct gn_class_slice classes = gn_plan_classes(p);
	void *losses;
	enum gn_status s = gn_buffer_alloc(p->device.device, gn_plan_aligned(sizeof *p->loss) + rows * sizeof(float), &p->loss_buffer, err);

	if (!s)
		s = gn_pinned_alloc(p->device.device, count * sizeof *p->losses, &losses, err);
	if (s)
		return s;
	p->loss = p->loss_buffer.address;
	p->loss_rows = rows ? (float *)(void *)((char *)p->loss_buffer.address + gn_plan_aligned(sizeof *p->loss)) : NULL;
	p->losses = losses;
	if (classes.count && classes.count < classes.classes)
		s = gn_buffer_alloc(p->device.device, (size_t)p->options.batch * (p->options.training ? (size_t)classes.ranks * GN_SLICED_LOSS_NUMBERS
								      : (size_t)classes.classes) * sizeof(double), &p->numbers_buffer, err);
	p->loss_numbers = p->numbers_buffer.address;
	return s;
}

static enum gn_status allocate(struct gn_plan *p, struct gn_err *err)
{
	size_t unused, total;
	enum gn_status s = gn_device_memory(p->device.device, &unused, &total, err);

	if (s)
		return s;
	if (!gn_plan_is_queued(p))
		unused = total; /* what others use now is swapped, or freed */
	if (p->arena_bytes > unused || gn_plan_batch_bytes(p) + weight_bytes(p) > unused - p->arena_bytes)
		return too_large(p, unused, total, err);
	s = gn_buffer_alloc(p->device.device, p->arena_bytes, &p->arena_buffer, err);
	if (s)
		return s == GN_ERR_NO_MEMORY ? too_large(p, unused, total, err) : s;
	p->arena = p->arena_buffer.address;
	p->logits = calloc((size_t)p->options.batch * gn_model_classes(p->model), sizeof *p->logits);
	if (!p->logits)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for logits");
	s = place_weights(p, err);
	if (!s)
		s = place_loss(p, err);
	return s ? s : gn_plan_batches_init(p, err);
}

static void bind_params(const struct gn_plan *p, const struct gn_plan_op *o, struct gn_op_buffers *b)
{
	size_t weight = o->param[0] < 0 ? 0 : gn_model_param(p->model, o->param[0])->offset;
	size_t bias = o->param[1] < 0 ? 0 : gn_model_param(p->model, o->param[1])->offset;

	b->weight = o->param[0] < 0 ? NULL : p->bound.params + weight;
	b->bias = o->param[1] < 0 ? NULL : p->bound.params + bias;
	b->dweight = o->param[0] < 0 || !p->bound.grads ? NULL : p->bound.grads + weight;
	b->dbias = o->param[1] < 0 || !p->bound.grads ? NULL : p->bound.grads + bias;
	if (o->conv >= 0) {
		b->weight = p->bound.own + o->own_weight;
		b->bias = p->bound.own + o->own_bias;
	}
	if (o->buffer >= 0) {
		b->running_mean = p->bound.buffers + gn_model_buffer(p->model, o->buffer)->offset;
		b->running_var = p->bound.buffers + gn_model_buffer(p->model, o->buffer + 1)->offset;
	}
}

static enum gn_status bind(struct gn_plan *p, struct gn_plan_op *o, struct gn_err *err)
{
	struct gn_op_buffers b = {0};

	for (int k = 0; k < 2 && o->in[k] >= 0; k++) {
		const struct gn_plan_tensor *in = &p->tensors[o->in[k]];

		b.in[k] = gn_plan_address(p, in->data);
		b.din[k] = gn_plan_address(p, o->gives_more[k] ? in->more_grad : o->adds[k] ? p->temporary : in->grad);
	}
	b.out = gn_plan_address(p, p->tensors[o->out].data);
	b.dout = gn_plan_address(p, p->tensors[o->out].grad);
	b.more_dout = gn_plan_address(p, p->tensors[o->out].more_grad);
	b.statistics = gn_plan_address(p, o->statistics);
	b.workspace = gn_plan_address(p, o->workspace);
	b.scratch = gn_plan_address(p, p->scratch);
	bind_params(p, o, &b);
	return gn_op_bind(o->op, &b, err);
}

enum gn_status gn_plan_place(struct gn_plan *p, struct gn_err *err)
{
	size_t scratch_bytes = 0;
	enum gn_status s;

	p->storages = calloc(7 * (size_t)p->op_count + 8, sizeof *p->storages);
	if (!p->storages)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
	for (int i = 0; i < p->op_count; i++)
		if (scratch_bytes < p->ops[i].info.scratch_bytes)
			scratch_bytes = p->ops[i].info.scratch_bytes;
	/* without backward, the gradient that the loss gives goes there, too */
	if (scratch_bytes < gn_layout_bytes(&p->tensors[p->logits_tensor].layout))
		scratch_bytes = gn_layout_bytes(&p->tensors[p->logits_tensor].layout);
	p->scratch = add_storage(p, scratch_bytes, 0, forever(p));
	p->temporary = add_storage(p, 0, p->op_count, forever(p));
	place_data(p);
	if (p->options.training && !p->options.keep)
		place_gaps(p);
	place_statistics(p);
	if (p->options.training)
		place_grads(p);
	s = gn_memory_planner_place(p->storages, p->storage_count, &p->arena_bytes, err);
	if (s || p->options.no_memory)
		return s;
	s = allocate(p, err);
	for (int i = 0; !s && i < p->op_count; i++)
		s = bind(p, &p->ops[i], err);
	return s;
}
