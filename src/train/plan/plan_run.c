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

static void release_part(struct gn_plan_part *part)
{
	gn_replay_destroy(part->replay);
	gn_event_destroy(part->event);
	*part = (struct gn_plan_part){0, 0, NULL, NULL};
}

static void release_parts(struct gn_plan *p)
{
	for (int i = 0; i < p->part_count; i++)
		release_part(&p->parts[i]);
	free(p->parts);
	p->parts = NULL;
	p->part_count = 0;
}

void gn_plan_parts_release(struct gn_plan *p)
{
	release_parts(p);
	release_part(&p->whole);
}

static int last_position(const struct gn_plan *p)
{
	return 2 * p->op_count;
}

/* The operator whose backward is there; NULL: it is forward or the loss. */
static const struct gn_plan_op *backward_at(const struct gn_plan *p, int position)
{
	return position > p->op_count ? &p->ops[last_position(p) - position] : NULL;
}

static enum gn_status init_part(struct gn_plan *p, struct gn_plan_part *part, int first, int end, struct gn_err *err)
{
	int completes = 0;

	*part = (struct gn_plan_part){first, end, gn_replay_create(), NULL};
	if (!part->replay)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parts of a step");
	if (p->options.group)
		gn_replay_forbid(part->replay, "batch norms are summed on the host");
	for (int at = first; at < end; at++)
		completes |= backward_at(p, at) && backward_at(p, at)->param[0] >= 0;
	return completes ? gn_event_create(p->device.device, &part->event, err) : GN_OK;
}

/* Whether a part ends after this position. A device that records nothing is cut everywhere, so that each gradient is reported at once. */
static int ends_part(const struct gn_plan *p, int at, int (*cuts)(void *context, int param), void *context)
{
	const struct gn_plan_op *o = backward_at(p, at);
	int cut = 0;

	if (at == last_position(p))
		return 1;
	if (!gn_plan_is_queued(p))
		return at == p->op_count || (o && o->param[0] >= 0);
	for (int k = 1; k >= 0 && o && cuts; k--)
		cut |= o->param[k] >= 0 && cuts(context, o->param[k]);
	return cut;
}

enum gn_status gn_plan_cut(struct gn_plan *p, int (*cuts)(void *context, int param), void *context, struct gn_err *err)
{
	int end = last_position(p) + 1, first = 0;
	enum gn_status status = GN_OK;

	gn_plan_parts_release(p);
	p->is_cut = cuts != NULL;
	p->parts = calloc((size_t)end, sizeof *p->parts);
	if (!p->parts)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parts of a step");
	for (int at = 0; at < end && !status; at++) {
		if (!ends_part(p, at, cuts, context))
			continue;
		status = init_part(p, &p->parts[p->part_count++], first, at + 1, err);
		first = at + 1;
	}
	return status ? status : init_part(p, &p->whole, 0, end, err);
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

	return gn_plan_queue(r->p, r->part->first, r->part->end, r->number, r->accumulated, err);
}

/* Whatever a recording holds besides addresses that never change. */
static uint64_t key_of(const struct gn_plan *p, const float *accumulated)
{
	return (uint64_t)p->loss_scale * 4 + (accumulated != NULL) * 2u + (p->batches.targets.pair_labels != NULL);
}

/* What the part has completed. */
static enum gn_status report(struct gn_plan *p, const struct gn_plan_part *part, const struct gn_plan_observer *o, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (o->loss && part->first <= p->op_count && part->end > p->op_count)
		o->loss(o->context);
	if (!o->ready || !part->event)
		return GN_OK;
	status = gn_event_record(part->event, p->device.stream, err);
	for (int at = part->first; at < part->end && !status; at++) {
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
	struct part_run r = {p, part, number, accumulated};
	enum gn_status status = gn_replay_run(part->replay, p->device.stream, key_of(p, accumulated), queue_part, &r, err);

	return status ? status : report(p, part, o, err);
}

enum gn_status gn_plan_run(struct gn_plan *p, uint64_t number, const struct gn_plan_observer *observer, const float *accumulated,
			   struct gn_err *err)
{
	int max = p->options.batches > 1 ? p->options.batches : 1;
	enum gn_status status = GN_OK;

	if (!p->options.training || p->options.no_memory || p->loss_count == max)
		return gn_err_set(err, GN_ERR_USAGE, "a step of a plan that does not train, or more batches than its %d", max);
	if (!p->parts)
		status = gn_plan_cut(p, NULL, NULL, err);
	if (!status)
		status = gn_plan_take_batch(p, err);
	if (!status)
		status = gn_compute_set_number(p->device.compute, number, err);
	if (!observer->ready && gn_plan_is_queued(p))
		status = status ? status : run_part(p, &p->whole, number, observer, accumulated, err);
	else
		for (int i = 0; i < p->part_count && !status; i++)
			status = run_part(p, &p->parts[i], number, observer, accumulated, err);
	if (!status && gn_plan_is_queued(p))
		status = gn_stream_copy(p->device.stream, &p->losses[p->loss_count++], p->loss, sizeof *p->loss, err);
	p->phase = GN_PHASE_NEW;
	return status;
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

static void say_parts(struct gn_plan *p)
{
	const char *where = p->is_cut ? " between the ranks' sums" : "", *obstacle = "";
	const char *what = p->options.batches > 1 ? "a step's last batch" : "a step";
	int graphs = 0;
	size_t nodes = 0;

	for (int i = 0; i < p->part_count; i++) {
		nodes += gn_replay_nodes(p->parts[i].replay);
		graphs += gn_replay_nodes(p->parts[i].replay) > 0;
		if (gn_replay_obstacle(p->parts[i].replay)[0])
			obstacle = gn_replay_obstacle(p->parts[i].replay);
	}
	if (obstacle[0])
		say(p, "call by call%s (no graph: %.60s)", where, obstacle);
	else if (!graphs)
		say(p, "%s", gn_device_precision(&p->options));
	else if (!p->is_cut)
		say(p, "%s as one graph of %zu nodes", what, nodes);
	else
		say(p, "%s as %d graph%s of %zu nodes%s", what, graphs, graphs > 1 ? "s" : "", nodes, where);
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
