/* The part of a session that trains: loader and plan, made anew when the side of the images changes. */
#include "src/train/loop/session.h"

#include "src/train/loop/augment_options.h"
#include "src/train/loop/input.h"
#include "src/train/loop/sample_log.h"
#include "src/train/model/weights.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <stdio.h>
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
		if (!status && strcmp(hex, s->checkpoint.info.layout_digest))
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
	gn_plan_destroy(s->replica.plan);
	gn_loader_destroy(s->data.loader);
	gn_model_destroy(s->train_model);
	s->replica.plan = NULL;
	s->data.loader = NULL;
	s->train_model = m;
	return GN_OK;
}

static void decoded(void *trace, int thread, uint32_t samples, uint64_t began_ns, uint64_t ended_ns)
{
	gn_trace_add(trace, GN_SPAN_DECODE, GN_TRACE_DECODE + thread, samples, began_ns, ended_ns);
}

static enum gn_status next_batch(void *context, const void **images, struct gn_targets *targets, struct gn_err *err)
{
	struct gn_session *s = context;
	struct gn_batch batch;
	enum gn_status status = gn_loader_next(s->data.loader, &batch, err);

	if (status)
		return status;
	gn_sample_log_batch(s->metrics.samples, s->data.began_step + s->data.batches++ / (uint64_t)s->schedule.own_batches + 1, s->data.epoch,
			    batch.indices, batch.count);
	*images = gn_batch_input(&batch);
	*targets = (struct gn_targets){.labels = batch.labels, .pair_labels = batch.pair_labels, .lambdas = batch.lambdas};
	return GN_OK;
}

enum gn_status gn_session_make_loader(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int full = gn_model_side(s->model);
	struct gn_loader_options lo = {
		.rank = (uint32_t)s->worker, .ranks = (uint32_t)s->workers, .batch = (uint32_t)o->batch,
		.step_batches = (uint32_t)s->schedule.batches,
		.profiler = s->metrics.trace ? decoded : NULL, .profiler_context = s->metrics.trace,
		.balance = s->data.balance, .threads = gn_loader_threads_most(s), .prefetch_bytes = (size_t)o->prefetch,
	};
	enum gn_status status = gn_input_train_options(o, &s->checkpoint.info.input, gn_model_channels(s->model),
						       gn_model_side(train_model(s)), full, &lo, err);

	if (status)
		return status;
	if (!gn_session_reads_images(s))
		lo.prefetch_bytes = 0; /* it counts steps, and is not started */
	lo.crops = !gn_loader_needs_floats(&lo) && gn_input_is_crops(&s->checkpoint.info.input, gn_model_channels(s->model), &s->device, NULL);
	s->replica.next = next_batch;
	s->replica.next_context = s;
	s->replica.trace = s->metrics.trace;
	status = gn_loader_create(s->data.train, &lo, &s->data.loader, err);
	if (!status)
		gn_loader_threads_begin(s);
	return status;
}

/* Collective. All ranks compute alike: a rank that lacks what the others have would round otherwise, in each step. is_kept: the run had it
 * until now. */
static enum gn_status choose_convolution(struct gn_session *s, enum gn_convolution wanted, int is_kept, struct gn_err *err)
{
	int32_t all = gn_backend_has_winograd(s->device.backend), any = all;
	enum gn_status status;

	if (s->device.backend != GN_BACKEND_HOST)
		return GN_OK;
	status = gn_comm_allreduce(s->comm, &all, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);
	if (!status)
		status = gn_comm_allreduce(s->comm, &any, 1, GN_I32, gn_reduce_of(GN_I32, GN_MAX), err);
	s->device.convolution = all ? wanted : GN_CONVOLUTION_DIRECT;
	snprintf(s->checkpoint.info.convolution, sizeof s->checkpoint.info.convolution, "%s", gn_convolution_name(s->device.convolution));
	/* nobody has asked for more than such processors can */
	if (status || s->device.convolution == wanted || !(any || is_kept || wanted == GN_CONVOLUTION_WINOGRAD))
		return status;
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "convolutions are direct, not %s: %s processors have AVX2 or AVX-512", gn_convolution_name(wanted),
			    any ? "not all" : "none of the");
	return GN_OK;
}

enum gn_status gn_session_choose_device(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	enum gn_status status;

	s->device.any_order = o->any_order;
	status = gn_replica_choose_device(s->comm, o->device, o->precision ? o->precision : "fp32", o->comm, &s->device, err);
	return status ? status : choose_convolution(s, gn_convolution_of(o->convolution), 0, err);
}

enum gn_status gn_session_take_convolution(struct gn_session *s, enum gn_convolution was, struct gn_err *err)
{
	enum gn_status status;

	if (s->device.backend != GN_BACKEND_HOST || was == s->device.convolution)
		return GN_OK;
	if (s->options->convolution) {
		if (gn_comm_rank(s->comm) == 0)
			gn_log_warn(s->log, "convolutions were %s until now, and are %s from here on", gn_convolution_name(was),
				    gn_convolution_name(s->device.convolution));
		return GN_OK;
	}
	status = choose_convolution(s, was, 1, err);
	if (gn_comm_rank(s->comm) == 0 && s->device.convolution == was)
		gn_log_info(s->log, "convolutions go on as before: %s", gn_convolution_name(was));
	return status ? status : gn_agree_status(s->comm, gn_session_remake_plans(s, err), err);
}

void gn_session_reducer_config(const struct gn_session *s, struct gn_reducer_config *out)
{
	const struct gn_train_options *o = s->options;

	gn_bucket_autotune_default((size_t)o->bucket, (enum gn_overlap)o->overlap, s->model, out);
	/* the norm by which a rank clips is that of all its gradients */
	if (s->compress.method == GN_COMPRESS_DGC && o->clip > 0)
		out->overlap = 0;
	/* a bucket that starts as soon as its event is done would, from rank to rank, come before or after a batch norm's sums */
	if (!s->sync_bn || s->device.backend != GN_BACKEND_CUDA)
		return;
	out->overlap = 0;
	if (o->overlap == GN_OVERLAP_YES && gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "--overlap: on GPUs, and with --sync-bn, gradients are summed after backward");
}

enum gn_status gn_session_make_plan(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_plan_options po = s->device;
	struct gn_loader_options lo = {0};
	struct gn_plan_pixels pixels;
	enum gn_status status;

	po.batch = (int)o->batch;
	po.training = 1;
	po.label_smoothing = o->label_smoothing;
	po.dropout = o->dropout;
	po.drop_path = o->drop_path < 0 ? gn_model_drop_path(train_model(s)) : o->drop_path;
	/* Every rank needs masks of its own. */
	po.seed = (uint64_t)o->seed + ((uint64_t)s->worker << 32);
	po.group = gn_sync_bn_group(s->sync_bn);
	/* On a GPU the host's clock has the times of queueing, and a profiler keeps steps from being replayed. */
	po.profiler = s->metrics.trace && s->device.backend != GN_BACKEND_CUDA ? &s->metrics.profiler : NULL;
	status = gn_augment_options_parse(o, &lo, err);
	if (!gn_loader_needs_floats(&lo) && gn_input_is_crops(&s->checkpoint.info.input, gn_model_channels(s->model), &po, &pixels))
		po.pixels = &pixels;
	return status ? status : gn_replica_set_plan(&s->replica, s->pipeline ? gn_session_own_model(s) : train_model(s), &po, err);
}

/* A side that is too small, or too large for this machine, must not come to light after days: every one is tried now. */
enum gn_status gn_session_try_sides(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = s->schedule.resize.count; i-- > 0 && !status;) {
		status = set_side(s, s->schedule.resize.stages[i].side, err);
		if (!status)
			status = gn_session_make_plan(s, err);
		if (status)
			gn_err_prefix(err, "images of side %d", s->schedule.resize.stages[i].side);
	}
	return status;
}

static enum gn_status change_side(struct gn_session *s, int side, struct gn_err *err)
{
	enum gn_status status = set_side(s, side, err);

	if (!status)
		status = gn_session_make_loader(s, err);
	if (!status)
		status = gn_session_make_plan(s, err);
	return status ? gn_err_prefix(err, "images of side %d", side) : GN_OK;
}

enum gn_status gn_session_begin_epoch(struct gn_session *s, struct gn_err *err)
{
	int side = gn_resize_schedule_side(&s->schedule.resize, s->state.epoch, gn_model_side(s->model));
	enum gn_status status = GN_OK;

	if (side != gn_model_side(train_model(s)) || !s->data.loader || !s->replica.plan) {
		status = gn_agree_status(s->comm, change_side(s, side, err), err);
		if (!status && gn_comm_rank(s->comm) == 0)
			gn_log_info(s->log, "epoch %" PRIu64 ": images of side %d", s->state.epoch, side);
	}
	s->replica.staged = 0;
	s->data.began_step = s->state.step;
	s->data.epoch = s->state.epoch;
	s->data.batches = 0;
	return status || !gn_session_reads_images(s) ? status : gn_loader_start(s->data.loader, (uint32_t)s->state.epoch, s->state.sample, err);
}
