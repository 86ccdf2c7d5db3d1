/* The plans of a replica: one, or of a stage of a pipeline one for each micro-batch in flight, or one and their inputs. */
#include "src/train/loop/replica.h"

#include "src/base/alloc.h"

#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
	return (bytes + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
}

/* input_bytes for so many images; buffers: floats. On failure there are none. */
static enum gn_status kept_inputs_init(struct gn_kept_inputs *k, int count, size_t input_bytes, int images, size_t buffers,
				       struct gn_err *err)
{
	size_t column = (size_t)images * 4, place = aligned(sizeof(struct gn_targets)) + aligned(input_bytes) + aligned(3 * column);

	*k = (struct gn_kept_inputs){.count = count, .input_bytes = input_bytes, .column_bytes = column, .place_bytes = place,
				     .bytes = (size_t)count * place + buffers * sizeof(float)};
	k->places = gn_alloc_aligned(k->bytes);
	if (k->places) {
		k->buffers = (float *)(void *)(k->places + (size_t)count * place);
		return GN_OK;
	}
	*k = (struct gn_kept_inputs){.count = 0};
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the inputs of %d micro-batches", count);
}

static void kept_inputs_release(struct gn_kept_inputs *k)
{
	free(k->places);
	*k = (struct gn_kept_inputs){.count = 0};
}

/* A place: the targets, the input, the targets' columns. */
static char *place_of(const struct gn_kept_inputs *k, int number, char **input, char **columns)
{
	char *place = k->places + (size_t)(number % k->count) * k->place_bytes;

	*input = place + aligned(sizeof(struct gn_targets));
	*columns = *input + aligned(k->input_bytes);
	return place;
}

void gn_kept_inputs_put(struct gn_kept_inputs *k, int number, const void *input, const struct gn_targets *targets)
{
	char *kept, *columns, *place = place_of(k, number, &kept, &columns), *pairs = columns + k->column_bytes, *lambdas = pairs + k->column_bytes;
	struct gn_targets own = {.labels = (const int32_t *)(const void *)columns};

	memcpy(kept, input, k->input_bytes);
	memcpy(columns, targets->labels, k->column_bytes);
	if (targets->pair_labels) {
		memcpy(pairs, targets->pair_labels, k->column_bytes);
		memcpy(lambdas, targets->lambdas, k->column_bytes);
		own.pair_labels = (const int32_t *)(const void *)pairs;
		own.lambdas = (const float *)(const void *)lambdas;
	}
	memcpy(place, &own, sizeof own);
}

const void *gn_kept_inputs_get(const struct gn_kept_inputs *k, int number, struct gn_targets *targets)
{
	char *input, *columns;

	memcpy(targets, place_of(k, number, &input, &columns), sizeof *targets);
	return input;
}

struct gn_plan *gn_replica_plan_of(const struct gn_replica *r, int k)
{
	return k % r->plan_count ? r->more_plans[k % r->plan_count - 1] : r->plan;
}

size_t gn_replica_plan_bytes(const struct gn_replica *r)
{
	size_t bytes = r->kept.bytes;

	for (int k = 0; k < r->plan_count; k++)
		bytes += gn_plan_bytes(gn_replica_plan_of(r, k));
	return bytes;
}

void gn_replica_destroy_plans(struct gn_replica *r)
{
	gn_plan_destroy(r->plan);
	for (int k = 0; r->more_plans && k + 1 < r->plan_count; k++)
		gn_plan_destroy(r->more_plans[k]);
	free(r->more_plans);
	kept_inputs_release(&r->kept);
	gn_buffer_free(&r->version_buffer);
	r->versions = NULL;
	r->plan = NULL;
	r->more_plans = NULL;
	r->plan_count = 1;
}

/* pipedream: plan number k reads parameters of its own, those of its forward. */
static float *params_of(const struct gn_replica *r, int k)
{
	return r->versions ? r->versions + (size_t)k * r->params.count : r->params.device;
}

static enum gn_status alloc_versions(struct gn_replica *r, struct gn_err *err)
{
	const struct gn_pipe_schedule *s = gn_pipe_stage_schedule(r->options.pipe);
	int count = gn_pipe_schedule_in_flight(s);
	enum gn_status status;

	if (s->kind != GN_PIPE_PIPEDREAM || count == 1)
		return GN_OK;
	status = gn_buffer_alloc(r->device.device, (size_t)count * r->params.count * sizeof(float), &r->version_buffer, err);
	r->versions = r->version_buffer.address;
	return status ? gn_err_prefix(err, "%d versions of a stage's parameters", count), status : GN_OK;
}

/* Of the other micro-batches in flight, in the layouts of the first; or their inputs. */
static enum gn_status create_more_plans(struct gn_replica *r, const struct gn_model *model, const struct gn_plan_options *o, struct gn_err *err)
{
	int count = gn_pipe_schedule_in_flight(gn_pipe_stage_schedule(r->options.pipe));
	enum gn_status status = GN_OK;

	if (r->options.recomputes && count > 1)
		return kept_inputs_init(&r->kept, count, gn_plan_input_bytes(r->plan), o->batch, r->buffers.count, err);
	r->more_plans = calloc((size_t)count, sizeof(struct gn_plan *));
	if (!r->more_plans)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the plans of %d micro-batches", count);
	r->plan_count = count;
	for (int k = 0; k + 1 < count && !status; k++)
		status = gn_plan_create(model, o, params_of(r, k + 1), r->flat, r->buffers.device, &r->more_plans[k], err);
	return status;
}

/* The first plan chooses weight layouts; a later one has what it was given. */
static enum gn_status create_plan(struct gn_replica *r, const struct gn_model *model, const struct gn_plan_options *o, struct gn_err *err)
{
	enum gn_status status = gn_plan_create(model, o, params_of(r, 0), r->flat, r->buffers.device, &r->plan, err);

	return status ? status : gn_weight_layouts_take(r->layouts, r->plan, err);
}

/* The input has the layout in which the stage before computes it. */
static enum gn_status create_stage(struct gn_replica *r, const struct gn_model *model, struct gn_plan_options *o, struct gn_err *err)
{
	struct gn_pipe_stage *pipe = r->options.pipe;
	struct gn_layout input;
	struct gn_err told;
	enum gn_status status = gn_pipe_stage_get_layout(pipe, &input, err), connected;

	o->input = gn_pipe_stage_is_first(pipe) ? NULL : &input;
	if (!status)
		status = alloc_versions(r, err);
	if (!status)
		status = create_plan(r, model, o, err);
	if (!status)
		status = create_more_plans(r, model, o, err);
	if (!status && gn_pipe_stage_schedule(pipe)->kind == GN_PIPE_DECOUPLED && !gn_pipe_stage_is_last(pipe)) {
		gn_pipe_predictor_destroy(r->predictor);
		r->predictor = NULL;
		status = gn_pipe_predictor_create(gn_plan_output_layout(r->plan), gn_model_classes(model), &r->predictor, err);
	}
	if (status == GN_ERR_PEER_LOST)
		return status;
	connected = gn_pipe_stage_connect(pipe, o->input, status ? NULL : gn_plan_output_layout(r->plan), o->batch, status ? &told : err);
	return status ? status : connected;
}

enum gn_status gn_replica_set_plan(struct gn_replica *r, const struct gn_model *model, const struct gn_plan_options *po, struct gn_err *err)
{
	struct gn_plan_options o = *po;
	enum gn_status status;

	gn_replica_destroy_plans(r); /* before the next one allocates its memory */
	r->staged = 0;
	o.device = &r->device;
	o.weights = gn_weight_layouts_layouts(r->layouts);
	o.batches = r->options.batches;
	o.share = 1 / gn_replica_mean_batches(r);
	o.mean_loss = r->piggyback + GN_PIGGYBACK_LOSS;
	o.correct = r->piggyback + GN_PIGGYBACK_CORRECT;
	o.class_weights = r->options.class_weights;
	o.tensor = r->options.tensor ? gn_tensor_group_plans(r->options.tensor) : NULL;
	o.mean_weight = o.class_weights ? r->piggyback + GN_PIGGYBACK_WEIGHT : NULL;
	status = r->options.pipe ? create_stage(r, model, &o, err) : create_plan(r, model, &o, err);
	return status || !r->reducer ? status : gn_replica_cut(r, err);
}

/* A run's state from the device to the host's copies and back; for checkpoints on a stream of its own, beside the next step. */

/* All that changes in an update. Returns how many. */
static int updated(const struct gn_replica *r, const struct gn_array *arrays[3 + GN_OPTIM_SLOTS_MAX])
{
	int count = 0;

	arrays[count++] = &r->params;
	arrays[count++] = &r->ema.params;
	arrays[count++] = &r->ema.buffers;
	for (int k = 0; k < gn_optim_slots(gn_optimizer_kind(r->optimizer)); k++)
		arrays[count++] = gn_optimizer_slot(r->optimizer, k);
	return count;
}

/* All that a run's state is made of, by move: what an update changes on stream, batch norm's buffers on the compute stream. */
static enum gn_status move_all(const struct gn_replica *r, struct gn_stream *stream,
			       enum gn_status (*move)(const struct gn_array *a, struct gn_stream *s, struct gn_err *err), struct gn_err *err)
{
	const struct gn_array *arrays[3 + GN_OPTIM_SLOTS_MAX];
	int count = updated(r, arrays);
	enum gn_status status = r->buffers.count ? move(&r->buffers, r->device.stream, err) : GN_OK;

	for (int i = 0; i < count && !status; i++)
		if (arrays[i]->count)
			status = move(arrays[i], stream, err);
	return status;
}

enum gn_status gn_replica_fetch(struct gn_replica *r, struct gn_err *err)
{
	enum gn_status status = r->reducer ? gn_reducer_need_all(r->reducer, err) : GN_OK;

	if (!status)
		status = move_all(r, r->device.stream, gn_array_fetch, err);
	return status ? status : gn_stream_wait(r->device.stream, err);
}

enum gn_status gn_replica_send(struct gn_replica *r, struct gn_err *err)
{
	enum gn_status status = move_all(r, r->device.stream, gn_array_send, err);

	return status ? status : gn_stream_wait(r->device.stream, err);
}

/* --- beside the next step --- */

int gn_replica_fetches_beside(const struct gn_replica *r)
{
	const struct gn_replica_options *o = &r->options;

	return gn_device_is_queued(r->device.device) && !r->shard && !r->compressor && !o->servers && !o->pipe && !o->tensor && o->local.every <= 1;
}

static enum gn_status open(struct gn_replica *r, struct gn_err *err)
{
	struct gn_replica_fetch *f = &r->fetch;
	enum gn_status status = f->stream ? GN_OK : gn_stream_create(r->device.device, &f->stream, err);

	if (!status && !f->begun)
		status = gn_event_create(r->device.device, &f->begun, err);
	if (!status && !f->done)
		status = gn_event_create(r->device.device, &f->done, err);
	return status;
}

enum gn_status gn_replica_fetch_begin(struct gn_replica *r, struct gn_err *err)
{
	struct gn_replica_fetch *f = &r->fetch;
	enum gn_status status = open(r, err);

	/* after the last update */
	if (!status)
		status = gn_event_record(f->begun, r->device.stream, err);
	if (!status)
		status = gn_stream_after(f->stream, f->begun, err);
	if (!status)
		status = move_all(r, f->stream, gn_array_fetch, err);
	/* the buffers, too, which the next forward changes: their copy is before it */
	if (!status)
		status = gn_event_record(f->begun, r->device.stream, err);
	if (!status)
		status = gn_stream_after(f->stream, f->begun, err);
	if (!status)
		status = gn_event_record(f->done, f->stream, err);
	f->is_open = !status;
	return status;
}

enum gn_status gn_replica_fetch_guard(struct gn_replica *r, struct gn_err *err)
{
	return r->fetch.is_open ? gn_stream_after(r->device.stream, r->fetch.done, err) : GN_OK;
}

enum gn_status gn_replica_fetch_end(struct gn_replica *r, struct gn_err *err)
{
	r->fetch.is_open = 0;
	return gn_event_wait(r->fetch.done, err);
}

void gn_replica_fetch_close(struct gn_replica *r)
{
	gn_stream_destroy(r->fetch.stream);
	gn_event_destroy(r->fetch.begun);
	gn_event_destroy(r->fetch.done);
	r->fetch = (struct gn_replica_fetch){0};
}
