/* Steps of a run that stays on its GPU, as graphs: recorded when they have run once, for the first time libraries load kernels, which a
 * recording cannot. Of several ranks gradients leave while backward runs: what lies between two such moments is a graph, and the
 * update waits for the ranks' sums. */
#include "src/train/plan/plan_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void drop_parts(struct gn_plan_cuda *d)
{
	for (int k = 0; k < d->part_count; k++)
		gn_cuda_graph_destroy(d->parts[k].graph);
	free(d->parts);
	free(d->told);
	d->parts = NULL;
	d->told = NULL;
	d->part_count = d->told_count = 0;
}

void gn_plan_cuda_drop_recordings(struct gn_plan_cuda *d)
{
	drop_parts(d);
	gn_cuda_graph_destroy(d->gathering);
	d->gathering = NULL;
}

/* --- recording: nothing runs --- */

static enum gn_status end_part(struct gn_plan_cuda *d, struct gn_cuda_event *event, struct gn_err *err)
{
	struct gn_plan_part *part = &d->parts[d->part_count];
	size_t nodes = 0;
	enum gn_status status = gn_cuda_graph_end(d->stream, &part->graph, &nodes, err);

	d->recording = 0;
	if (status)
		return status;
	if (!nodes && d->part_count && d->told_count == part[-1].told_end) {
		/* the first layer's gradient was the last */
		gn_cuda_graph_destroy(part->graph);
		part->graph = NULL;
		return GN_OK;
	}
	part->event = event;
	part->told_end = d->told_count;
	d->part_count++;
	d->nodes += nodes;
	return GN_OK;
}

static enum gn_status begin_part(struct gn_plan_cuda *d, struct gn_err *err)
{
	enum gn_status status = gn_cuda_graph_begin(d->stream, err);

	d->recording = !status;
	return status;
}

static enum gn_status note(struct gn_plan *p, int i, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	int cut = 0;
	enum gn_status status;

	for (int k = 1; k >= 0; k--) {
		int param = p->ops[i].param[k];

		if (param < 0)
			continue;
		d->told[d->told_count++] = param;
		cut |= d->update.cuts(d->update.context, param);
	}
	d->last = d->complete[i];
	if (!cut)
		return GN_OK;
	status = end_part(d, d->complete[i], err);
	return status ? status : begin_part(d, err);
}

/* As many parts as there are gradients, at most, and one behind the last. */
static enum gn_status make_room(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t params = (size_t)gn_model_param_count(p->model);

	d->parts = calloc(params + 1, sizeof *d->parts);
	d->told = calloc(params + 1, sizeof *d->told);
	d->nodes = 0;
	return d->parts && d->told ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to record a step");
}

/* All of a step but the batch's arrival and the update's numbers; of several ranks up to their sums. */
static enum gn_status queue_step(struct gn_plan *p, uint64_t step, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_plan_cuda_queue_gradients(p, step, err);

	if (status || d->update.ranks > 1)
		return status;
	status = gn_plan_cuda_join(p, 0, gn_model_param_elements(p->model), err);
	return status ? status : gn_plan_cuda_queue_update(p, err);
}

static enum gn_status queue_gathering(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	enum gn_status status = gn_plan_cuda_queue_gradients(p, number, err);

	return status ? status : gn_plan_cuda_put_aside(p, err);
}

static void say_graphs(struct gn_plan *p)
{
	const struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const char *what = d->gathered ? "a step's last batch" : "a step";

	if (d->update.ranks > 1)
		gn_plan_cuda_say(p, "%s as %d graph%s of %zu nodes between the ranks' sums", what, d->part_count,
				 d->part_count > 1 ? "s" : "", d->nodes);
	else
		gn_plan_cuda_say(p, "%s as one graph of %zu nodes", what, d->nodes);
}

void gn_plan_cuda_run_eagerly(struct gn_plan *p, const char *why)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	d->eager = 1;
	gn_plan_cuda_say(p, "call by call%s (no graph: %.60s)", d->update.ranks > 1 ? " between the ranks' sums" : "", why);
}

/* What cannot be recorded runs call by call, for good, and the reason is kept. */
static void give_up(struct gn_plan *p, const struct gn_err *why)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	/* the stream leaves its recording */
	if (d->recording)
		(void)gn_cuda_graph_end(d->stream, NULL, NULL, NULL);
	d->recording = 0;
	gn_plan_cuda_drop_recordings(d);
	gn_plan_cuda_run_eagerly(p, why->text);
}

static void record(struct gn_plan *p, uint64_t step)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	struct gn_err err;
	enum gn_status status = make_room(p, &err);

	if (!status)
		status = begin_part(d, &err);
	if (!status)
		status = queue_step(p, step, &err);
	if (!status)
		status = end_part(d, d->last, &err);
	if (status)
		give_up(p, &err);
	else
		say_graphs(p);
}

static void record_gathering(struct gn_plan *p, uint64_t number)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t nodes;
	struct gn_err err;
	enum gn_status status = begin_part(d, &err);

	if (!status)
		status = queue_gathering(p, number, &err);
	if (!status) {
		d->recording = 0;
		status = gn_cuda_graph_end(d->stream, &d->gathering, &nodes, &err);
	}
	if (status)
		give_up(p, &err);
}

/* --- running --- */

/* Their gradients are there when the event has happened. The loss scale is taken back by the update. */
static void tell(struct gn_plan_cuda *d, const int *params, int count, const struct gn_cuda_event *event)
{
	for (int k = 0; k < count; k++)
		if (params[k] >= 0)
			d->update.ready(d->update.context, params[k], gn_cuda_event_native(event));
}

enum gn_status gn_plan_cuda_leave(struct gn_plan *p, int i, size_t offset, size_t count, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const int params[2] = {p->ops[i].param[1], p->ops[i].param[0]};
	enum gn_status status;

	/* only the last batch's leave */
	if (d->update.ranks < 2 || d->batch + 1 < d->update.batches)
		return GN_OK;
	status = gn_plan_cuda_join(p, offset, count, err);
	if (status || d->recording)
		return status ? status : note(p, i, err);
	status = gn_cuda_event_record(d->complete[i], d->stream, err);
	d->last = d->complete[i];
	if (!status)
		tell(d, params, 2, d->complete[i]);
	return status;
}

static enum gn_status launch_parts(struct gn_plan_cuda *d, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int k = 0, told = 0; k < d->part_count && !status; told = d->parts[k++].told_end) {
		const struct gn_plan_part *part = &d->parts[k];

		status = gn_cuda_graph_launch(part->graph, d->stream, err);
		if (!status && part->event)
			status = gn_cuda_event_record(part->event, d->stream, err);
		d->last = part->event;
		if (!status)
			tell(d, d->told + told, part->told_end - told, part->event);
	}
	return status;
}

enum gn_status gn_plan_cuda_run(struct gn_plan *p, uint64_t step, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	if (d->launches > 0 && !d->parts && !d->eager)
		record(p, step);
	d->launches++;
	return d->parts ? launch_parts(d, err) : queue_step(p, step, err);
}

enum gn_status gn_plan_cuda_run_gathering(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	if (d->gathers > 0 && !d->gathering && !d->eager)
		record_gathering(p, number);
	d->gathers++;
	return d->gathering ? gn_cuda_graph_launch(d->gathering, d->stream, err) : queue_gathering(p, number, err);
}

enum gn_status gn_plan_cuda_gone_back(struct gn_plan *p, int *done, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);

	*done = 1;
	return d->last ? gn_cuda_event_done(d->last, done, err) : GN_OK;
}

enum gn_status gn_plan_cuda_apply(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t buffers = gn_model_buffer_elements(p->model);
	enum gn_status status = GN_OK;

	if (!d->resident || d->update.ranks < 2)
		return gn_err_set(err, GN_ERR_USAGE, "there is nothing that ranks have summed");
	if (buffers)
		status = gn_cuda_scale(d->stream, GN_CUDA_F32, p->bound.buffers, 1.0 / d->update.ranks, buffers, err);
	if (!status)
		status = gn_plan_cuda_queue_update(p, err);
	return status ? status : gn_plan_cuda_queue_outcome(p, err);
}
