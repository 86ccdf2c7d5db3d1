/* Training steps as a list of parts: cut where a gradient has to be complete, replayed where the device can. */
#include "src/train/plan/plan_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gradients in half precision are this much larger, until they overflow. */
#define LOSS_SCALE_MAX 65536.0
enum { GOOD_STEPS = 1000 };

/* --- cutting --- */

static void release_parts(struct gn_plan_parts *parts)
{
	for (int i = 0; i < parts->count; i++) {
		gn_replay_destroy(parts->list[i].replay);
		gn_event_destroy(parts->list[i].event);
	}
	free(parts->list);
	*parts = (struct gn_plan_parts){NULL, 0};
}

void gn_plan_parts_release(struct gn_plan *p)
{
	release_parts(&p->parts);
	release_parts(&p->whole);
}

static int last_position(const struct gn_plan *p)
{
	return 2 * p->op_count;
}

/* The operator whose forward is there; NULL: it is the loss or backward. */
static const struct gn_plan_op *forward_at(const struct gn_plan *p, int position)
{
	return position < p->op_count ? &p->ops[position] : NULL;
}

/* The operator whose backward is there; NULL: it is forward or the loss. */
static const struct gn_plan_op *backward_at(const struct gn_plan *p, int position)
{
	return position > p->op_count ? &p->ops[last_position(p) - position] : NULL;
}

/* The end of positions that are complete after a range. */
static int complete_end(const struct gn_plan_range *r)
{
	return r->is_suspended ? r->end - 1 : r->end;
}

static enum gn_status add_compute(struct gn_plan *p, struct gn_plan_parts *parts, const struct gn_plan_range *range, struct gn_err *err)
{
	struct gn_plan_part *part = &parts->list[parts->count++];
	int completes = 0;

	part->range = *range;
	part->replay = gn_replay_create();
	if (!part->replay)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parts of a step");
	for (int at = range->first; at < complete_end(range); at++)
		completes |= backward_at(p, at) && backward_at(p, at)->param[0] >= 0;
	return completes ? gn_event_create(p->device.device, &part->event, err) : GN_OK;
}

/* Of the operator or the loss at that position; group NULL: none. */
static struct gn_plan_part collective_at(const struct gn_plan *p, int at)
{
	const struct gn_plan_op *o = forward_at(p, at) ? forward_at(p, at) : backward_at(p, at); /* NULL: the loss */
	const struct gn_plan_options *options = &p->options;

	if (!o && p->loss_numbers)
		return (struct gn_plan_part){options->tensor, {GN_EXCHANGE_GATHER, (size_t)options->batch * GN_SLICED_LOSS_NUMBERS, sizeof(double)},
					     p->loss_numbers, .replay = NULL};
	if (o && o->info.sum_count)
		return (struct gn_plan_part){options->group, {GN_EXCHANGE_SUM, o->info.sum_count, sizeof(double)}, gn_op_sums(o->op), .replay = NULL};
	if (o && o->info.exchange[at > p->op_count].kind)
		return (struct gn_plan_part){options->tensor, o->info.exchange[at > p->op_count], gn_op_values(o->op), .replay = NULL};
	return (struct gn_plan_part){.group = NULL};
}

/* Whether a part ends after this position. A device that records nothing is cut everywhere, so that each gradient is reported at once, and
 * each parameter of forward is asked for when it is needed. */
static int ends_part(const struct gn_plan *p, int at, int (*cuts)(void *context, int param), void *context)
{
	const struct gn_plan_op *o = backward_at(p, at), *next = forward_at(p, at + 1);
	int cut = 0;

	if (at == last_position(p))
		return 1;
	if (!gn_plan_is_queued(p))
		return at == p->op_count || (o && o->param[0] >= 0) || (next && next->param[0] >= 0);
	for (int k = 1; k >= 0 && o && cuts; k--)
		cut |= o->param[k] >= 0 && cuts(context, o->param[k]);
	return cut;
}

/* One list of parts. is_whole: compute parts end only at sums over ranks. */
static enum gn_status cut(struct gn_plan *p, struct gn_plan_parts *parts, int is_whole, int (*cuts)(void *context, int param),
			  void *context, struct gn_err *err)
{
	struct gn_plan_range range = {0};
	enum gn_status status = GN_OK;
	int positions = last_position(p) + 1;

	parts->list = calloc(3 * (size_t)positions, sizeof *parts->list);
	if (!parts->list)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parts of a step");
	for (int at = 0; at < positions && !status; at++) {
		struct gn_plan_part collective = collective_at(p, at);

		range.end = at + 1;
		if (collective.group) {
			range.is_suspended = 1;
			status = add_compute(p, parts, &range, err);
			collective.range = range; /* it is of forward or backward as that is */
			parts->list[parts->count++] = collective;
			range = (struct gn_plan_range){.first = at, .end = at + 1, .resumes = 1};
		}
		if (status || !(is_whole ? at == last_position(p) : ends_part(p, at, cuts, context)))
			continue;
		status = add_compute(p, parts, &range, err);
		range = (struct gn_plan_range){.first = at + 1};
	}
	return status;
}

enum gn_status gn_plan_cut(struct gn_plan *p, int (*cuts)(void *context, int param), void *context, struct gn_err *err)
{
	enum gn_status status;

	gn_plan_parts_release(p);
	p->is_cut = cuts != NULL;
	status = cut(p, &p->parts, 0, cuts, context, err);
	return status ? status : cut(p, &p->whole, 1, NULL, NULL, err);
}

/* --- running --- */

struct part_run {
	struct gn_plan *p;
	const struct gn_plan_part *part;
	uint64_t number;
	const float *accumulated;
};

static enum gn_status queue_part(void *context, struct gn_err *err)
{
	const struct part_run *r = context;

	return gn_plan_queue(r->p, &r->part->range, r->number, r->accumulated, err);
}

/* What the part will read. */
static enum gn_status ask(struct gn_plan *p, const struct gn_plan_part *part, const struct gn_plan_observer *o, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int at = part->range.first; o->needs && at < part->range.end && !status; at++)
		for (int k = 0; k < 2 && forward_at(p, at) && !status; k++)
			if (forward_at(p, at)->param[k] >= 0)
				status = o->needs(o->context, forward_at(p, at)->param[k], err);
	return status;
}

/* What the part has completed. */
static enum gn_status report(struct gn_plan *p, const struct gn_plan_part *part, const struct gn_plan_observer *o, struct gn_err *err)
{
	const struct gn_plan_range *range = &part->range;
	enum gn_status status = GN_OK;

	if (o->loss && range->first <= p->op_count && complete_end(range) > p->op_count)
		o->loss(o->context);
	if (!o->ready || !part->event)
		return GN_OK;
	status = gn_event_record(part->event, p->device.stream, err);
	for (int at = range->first; at < complete_end(range) && !status; at++) {
		const struct gn_plan_op *done = backward_at(p, at);

		for (int k = 1; done && k >= 0; k--)
			if (done->param[k] >= 0)
				o->ready(o->context, done->param[k], part->event);
	}
	return status;
}

static enum gn_status run_part(struct gn_plan *p, const struct gn_plan_part *part, uint64_t number, const struct gn_plan_observer *o,
			       const float *accumulated, struct gn_err *err)
{
	/* whatever a recording holds besides addresses that never change */
	const uint64_t key = (uint64_t)p->loss_scale * 4 + (accumulated != NULL) * 2u + (p->batches.targets.pair_labels != NULL);
	struct part_run r = {p, part, number, accumulated};
	enum gn_status status;

	if (part->group)
		return part->group->exchange(part->group, p->device.stream, &part->exchange, part->values, err);
	status = ask(p, part, o, err);
	if (!status && p->options.profiler)
		status = queue_part(&r, err);
	else if (!status)
		status = gn_replay_run(part->replay, p->device.stream, key, queue_part, &r, err);
	return status ? status : report(p, part, o, err);
}

/* Parts in forward and the loss, or those in backward. */
static enum gn_status run_parts(struct gn_plan *p, const struct gn_plan_parts *parts, int is_backward, uint64_t number,
				const struct gn_plan_observer *o, const float *accumulated, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int i = 0; i < parts->count && !status; i++)
		if ((parts->list[i].range.first > p->op_count) == is_backward)
			status = run_part(p, &parts->list[i], number, o, accumulated, err);
	return status;
}

enum gn_status gn_plan_queue_forward(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	struct gn_plan_range range = {.end = p->op_count};
	enum gn_status status = GN_OK;

	for (int at = 0; at < p->op_count && !status; at++) {
		const struct gn_plan_part c = collective_at(p, at);

		if (!c.group)
			continue;
		range.end = at + 1;
		range.is_suspended = 1;
		status = gn_plan_queue(p, &range, number, NULL, err);
		if (!status)
			status = c.group->exchange(c.group, p->device.stream, &c.exchange, c.values, err);
		range = (struct gn_plan_range){.first = at, .end = p->op_count, .resumes = 1};
	}
	return status ? status : gn_plan_queue(p, &range, number, NULL, err);
}

static enum gn_status begin_run(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	int max = p->options.batches > 1 ? p->options.batches : 1;
	enum gn_status status = GN_OK;

	if (!p->options.training || p->options.no_memory || p->loss_count == max)
		return gn_err_set(err, GN_ERR_USAGE, "a step of a plan that does not train, or more batches than its %d", max);
	if (!p->parts.list)
		status = gn_plan_cut(p, NULL, NULL, err);
	if (!status)
		status = gn_plan_take_batch(p, err);
	return status ? status : gn_compute_set_number(p->device.compute, number, err);
}

enum gn_status gn_plan_run(struct gn_plan *p, uint64_t number, const struct gn_plan_observer *observer, const float *accumulated,
			   struct gn_err *err)
{
	const struct gn_plan_parts *parts = !observer->ready && gn_plan_is_queued(p) ? &p->whole : &p->parts;
	enum gn_status status = begin_run(p, number, err);

	for (int i = 0; i < parts->count && !status; i++)
		status = run_part(p, &parts->list[i], number, observer, accumulated, err);
	if (!status && gn_plan_is_queued(p))
		status = gn_stream_copy(p->device.stream, &p->losses[p->loss_count++], p->loss, sizeof *p->loss, err);
	p->phase = GN_PHASE_NEW;
	return status;
}

enum gn_status gn_plan_run_forward(struct gn_plan *p, uint64_t number, const struct gn_plan_observer *observer, struct gn_err *err)
{
	enum gn_status status;

	if (gn_plan_is_queued(p))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "parts of a network are run on hosts");
	status = begin_run(p, number, err);
	return status ? status : run_parts(p, &p->parts, 0, number, observer, NULL, err);
}

enum gn_status gn_plan_run_backward(struct gn_plan *p, const void *gradient, const struct gn_plan_observer *observer, const float *accumulated,
				    struct gn_err *err)
{
	const struct gn_plan_tensor *out = &p->tensors[p->logits_tensor];
	enum gn_status status = GN_OK;

	if (!gn_model_is_end(p->model))
		status = gn_stream_copy(p->device.stream, gn_plan_address(p, out->grad), gradient, gn_layout_bytes(&out->layout), err);
	return status ? status : run_parts(p, &p->parts, 1, 0, observer, accumulated, err);
}

enum gn_status gn_plan_check_labels(struct gn_plan *p, struct gn_err *err)
{
	int bad = 0;

	for (int i = 0; i < p->loss_count; i++)
		bad = p->losses[i].bad ? p->losses[i].bad : bad;
	p->loss_count = 0;
	if (!bad)
		return GN_OK;
	return gn_err_set(err, GN_ERR_DATA, "labels of %d images of the batch are none: there are only %d classes", bad,
			  gn_model_classes(p->model));
}

double gn_plan_loss_scale(const struct gn_plan *p)
{
	return p->loss_scale;
}

void gn_plan_adjust_loss_scale(struct gn_plan *p, int finite)
{
	if (!p->options.fp16)
		return;
	p->good_steps = finite ? p->good_steps + 1 : 0;
	if (!finite && p->loss_scale > 1)
		p->loss_scale /= 2;
	if (p->good_steps >= GOOD_STEPS && p->loss_scale < LOSS_SCALE_MAX) {
		p->loss_scale *= 2;
		p->good_steps = 0;
	}
}

/* --- for people --- */

__attribute__((format(printf, 2, 3))) static void say(struct gn_plan *p, const char *format, ...)
{
	size_t len = strlen(p->mode);
	va_list args;

	va_start(args, format);
	vsnprintf(p->mode + len, sizeof p->mode - len, format, args);
	va_end(args);
}

struct gn_plan_graphs gn_plan_graphs(const struct gn_plan *p)
{
	struct gn_plan_graphs g = {0, 0, ""};

	for (int i = 0; i < p->parts.count; i++) {
		const struct gn_replay *r = p->parts.list[i].replay;

		if (!r)
			continue; /* collective */
		g.nodes += gn_replay_nodes(r);
		g.graphs += gn_replay_nodes(r) > 0;
		if (gn_replay_obstacle(r)[0])
			g.obstacle = gn_replay_obstacle(r);
	}
	return g;
}

static void say_parts(struct gn_plan *p)
{
	const char *where = p->is_cut ? " between the ranks' sums" : "";
	const char *what = p->options.batches > 1 ? "a step's last batch" : "a step";
	const struct gn_plan_graphs g = gn_plan_graphs(p);

	if (g.obstacle[0])
		say(p, "call by call%s (no graph: %.60s)", where, g.obstacle);
	else if (!g.graphs)
		say(p, "%s", gn_device_precision(&p->options));
	else if (!p->is_cut)
		say(p, "%s as one graph of %zu nodes", what, g.nodes);
	else
		say(p, "%s as %d graph%s of %zu nodes%s", what, g.graphs, g.graphs > 1 ? "s" : "", g.nodes, where);
}

const char *gn_plan_mode(struct gn_plan *p)
{
	int norms = 0, deferred = 0, summed = 0;

	p->mode[0] = 0;
	if (!gn_plan_is_queued(p))
		return p->mode;
	say(p, "on %.40s, ", gn_device_model(p->device.device));
	say_parts(p);
	for (int i = 0; i < p->op_count; i++) {
		norms += p->ops[i].kind == GN_OP_BATCH_NORM;
		deferred += p->ops[i].conv_bn && p->ops[i].conv_bn->defers;
		summed += p->ops[i].conv_bn && p->ops[i].conv_bn->sums;
	}
	if (deferred + summed)
		say(p, "; of %d batch norms %d forward and %d backward within convolutions", norms, deferred, summed);
	return p->mode;
}
