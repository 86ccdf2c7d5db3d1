/* The part of a session that trains: loader and plan, made anew when the side of the images changes, and buckets, measured. */
#include "src/train/loop/session.h"

#include "src/train/plan/device.h"
#include "src/train/loop/input.h"
#include "src/train/loop/device_step.h"
#include "src/train/model/weights.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <omp.h>
#include <string.h>

/* The network at the side of the present epoch: the session's own, or another with the same parameters. */
static const struct gn_model *train_model(const struct gn_session *s)
{
	return s->train_model ? s->train_model : s->model;
}

static enum gn_status make_model(const struct gn_session *s, int side, struct gn_model **out, struct gn_err *err)
{
	char hex[65];
	struct gn_model *m;
	enum gn_status status = gn_model_create(gn_model_name(s->model), gn_model_classes(s->model),
						gn_model_channels(s->model), side, &m, err);

	if (!status) {
		status = gn_weights_layout_digest(m, hex, err);
		if (!status && strcmp(hex, s->info.layout_digest))
			status = gn_err_set(err, GN_ERR_USAGE,
					    "%s has other parameters for images of side %d than for %d: it cannot grow "
					    "(leave --resize-schedule out)", gn_model_name(m), side, gn_model_side(s->model));
		if (status)
			gn_model_destroy(m);
	}
	if (!status)
		*out = m;
	return status;
}

/* Another side for what is made next. */
static enum gn_status set_side(struct gn_session *s, int side, struct gn_err *err)
{
	struct gn_model *m = NULL;
	enum gn_status status = side == gn_model_side(s->model) ? GN_OK : make_model(s, side, &m, err);

	if (status)
		return status;
	gn_plan_destroy(s->plan);
	gn_loader_destroy(s->loader);
	gn_model_destroy(s->train_model);
	s->plan = NULL;
	s->loader = NULL;
	s->train_model = m;
	return GN_OK;
}

static void decoded(void *trace, int thread, uint32_t samples, uint64_t began_ns, uint64_t ended_ns)
{
	gn_trace_add(trace, GN_SPAN_DECODE, GN_TRACE_DECODE + thread, samples, began_ns, ended_ns);
}

enum gn_status gn_session_make_loader(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int full = gn_model_side(s->model);
	struct gn_loader_options lo = {
		.seed = (uint64_t)o->seed, .rank = (uint32_t)gn_comm_rank(s->comm),
		.ranks = (uint32_t)gn_comm_size(s->comm), .batch = (uint32_t)o->batch, .training = 1,
		.profiler = s->trace ? decoded : NULL, .profiler_context = s->trace,
		.mixup = o->mixup, .threads = (int)o->loader_threads, .prefetch_bytes = (size_t)o->prefetch,
	};
	struct gn_plan_options on = {0};
	enum gn_status status = gn_session_device(s, &on, err);

	if (status)
		return status;
	/* what was mixed is no crop */
	lo.crops = !(o->mixup > 0) && gn_input_is_crops(&s->info.input, s->model, &on, NULL);
	gn_input_loader_options(&s->info.input, train_model(s), &lo);
	lo.resize_shorter = (uint32_t)((uint64_t)lo.resize_shorter * lo.height / (uint64_t)full);
	lo.pad = (o->pad >= 0 ? (uint32_t)o->pad : (uint32_t)full / 14) * lo.height / (uint32_t)full;
	status = gn_input_augment_parse(o->augment, full, &lo.augment, err);
	return status ? status : gn_loader_create(s->data, &lo, &s->loader, err);
}

enum gn_status gn_session_device(const struct gn_session *s, struct gn_plan_options *po, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;

	return gn_device_choose(o->device, o->precision ? o->precision : "fp32",
				gn_world_local_rank(gn_comm_world(s->comm)), po, err);
}

enum gn_status gn_session_make_plan(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_plan_options po = {
		.batch = (int)o->batch, .training = 1,
		.label_smoothing = o->label_smoothing, .dropout = o->dropout,
		/* Every rank needs masks of its own. */
		.seed = (uint64_t)o->seed + ((uint64_t)gn_comm_rank(s->comm) << 32),
		.group = gn_sync_bn_group(s->sync_bn), .watch = s->trace ? &s->profiler : NULL,
		.weights = gn_weight_layouts_layouts(s->weight_layouts),
	};
	struct gn_plan_pixels pixels;
	enum gn_status status = gn_session_device(s, &po, err);

	if (!status && !(o->mixup > 0) && gn_input_is_crops(&s->info.input, s->model, &po, &pixels))
		po.pixels = &pixels;
	if (!status)
		status = gn_plan_create(train_model(s), &po, s->params, s->flat, s->buffers, &s->plan, err);

	/* The first plan chooses; a later one has what it was given. */
	return status ? status : gn_weight_layouts_take(s->weight_layouts, s->plan, err);
}

/* A side that is too small, or too large for this machine, must not come to light after days: every one is tried now. */
enum gn_status gn_session_try_sides(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = s->resize_schedule.count; i-- > 0 && !status;) {
		status = set_side(s, s->resize_schedule.stages[i].side, err);
		if (!status)
			status = gn_session_make_plan(s, err);
		if (status)
			gn_err_prefix(err, "images of side %d", s->resize_schedule.stages[i].side);
	}
	return status;
}

static enum gn_status change_side(struct gn_session *s, int side, struct gn_err *err)
{
	enum gn_status status = gn_device_step_end(s, err);

	if (!status)
		status = set_side(s, side, err);
	if (!status)
		status = gn_session_make_loader(s, err);
	if (!status)
		status = gn_session_make_plan(s, err);
	return status ? gn_err_prefix(err, "images of side %d", side) : GN_OK;
}

enum gn_status gn_session_begin_epoch(struct gn_session *s, struct gn_err *err)
{
	int side = gn_resize_schedule_side(&s->resize_schedule, s->state.epoch, gn_model_side(s->model));
	enum gn_status status = GN_OK;

	if (side != gn_model_side(train_model(s)) || !s->loader || !s->plan) {
		status = gn_agree_status(s->comm, change_side(s, side, err), err);
		if (!status && gn_comm_rank(s->comm) == 0)
			gn_log_info(s->log, "epoch %" PRIu64 ": images of side %d", s->state.epoch, side);
	}
	s->staged = 0;
	if (!status && !s->resident)
		status = gn_device_step_begin(s, err);
	return status ? status : gn_loader_start(s->loader, (uint32_t)s->state.epoch, s->state.sample, err);
}

/* Under other conditions the bucket size and overlap that were measured say nothing. */
static void describe_conditions(const struct gn_session *s, struct gn_strbuf *out)
{
	const struct gn_train_options *o = s->options;

	gn_strbuf_printf(out, "%s of %zu parameters, %d ranks on %d nodes, %" PRId64 " x %" PRId64 " images, transport %s, algo %s, "
			 "progress %s, threads %" PRId64 ", bucket %" PRId64 ", overlap %d%s, side %" PRId64 ", %s", gn_model_name(s->model),
			 gn_model_param_elements(s->model), gn_comm_size(s->comm), gn_world_nodes(gn_comm_world(s->comm)),
			 o->accumulate, o->batch, o->transport ? o->transport : "auto", o->algo ? o->algo : "auto",
			 o->progress ? o->progress : "caller", o->threads, o->bucket, o->overlap, o->any_order ? ", any order" : "", o->side,
			 o->precision ? o->precision : "fp32");
}

static enum gn_status begin_autotune(struct gn_session *s, uint64_t steps_left, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_strbuf conditions;
	struct gn_bucket_autotune_options ao = {
		.comm = s->comm, .model = s->model, .flat = s->flat,
		.tail_elements = gn_model_buffer_elements(s->model) + GN_PIGGYBACK_COUNT, .algo = o->algo,
		.bucket_bytes = (size_t)o->bucket, .overlap = o->overlap, .any_order = o->any_order, .folder = o->checkpoint,
		.log = s->log, .metrics_log = s->metrics_log,
	};
	enum gn_status status;

	gn_strbuf_init(&conditions);
	describe_conditions(s, &conditions);
	ao.conditions = gn_strbuf_text(&conditions);
	status = gn_bucket_autotune_begin(&ao, steps_left, &s->reducer, &s->autotune, err);
	gn_strbuf_release(&conditions);
	return status;
}

static void predict_sums(struct gn_session *s)
{
	if (!s->autotune && !s->device_reducer.reducer)
		gn_step_forecast_sums(&s->forecast, s->comm, s->reducer, s->log);
}

enum gn_status gn_session_begin_autotune(struct gn_session *s, uint64_t steps_left, struct gn_err *err)
{
	const char *progress = s->options->progress;
	struct gn_plan_options po = {0};
	enum gn_status status = s->device_reducer.reducer ? GN_OK : begin_autotune(s, steps_left, err);

	if (!status)
		status = gn_agree_status(s->comm, gn_session_device(s, &po, err), err);
	/* A rank whose GPU computes has one thread that feeds it. */
	if (!status)
		status = gn_step_forecast_init(&s->forecast, s->comm, po.backend == GN_BACKEND_CUDA ? 1 : omp_get_max_threads(),
					       progress && !strcmp(progress, "thread"), err);
	if (!status)
		predict_sums(s);
	return status;
}

enum gn_status gn_session_note_step(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status;

	if (!s->autotune)
		return GN_OK;
	status = gn_session_alone(s, gn_bucket_autotune_note(&s->autotune, s->step_s, s->state.step, &s->reducer, err));
	if (!status)
		predict_sums(s);
	return status;
}
