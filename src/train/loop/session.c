#include "src/train/loop/session.h"

#include "src/base/clock.h"
#include "src/base/sha256.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/class_weights.h"
#include "src/train/loop/input.h"
#include "src/train/loop/sample_log.h"
#include "src/train/model/weights.h"
#include "src/train/optim/lr.h"
#include "src/train/plan/contention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum gn_status open_data(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	enum gn_status status = gn_dataset_open(o->data, &s->data.train, err);

	if (!status)
		status = gn_dataset_unlock(s->data.train, o->key_file, err);
	if (!status)
		status = gn_input_classes_digest(s->data.train, s->checkpoint.info.classes_digest, err);
	if (!status && o->val)
		status = gn_dataset_open(o->val, &s->data.val, err);
	if (!status && o->val)
		status = gn_dataset_unlock(s->data.val, o->key_file, err);
	if (!status && o->val)
		status = gn_dataset_same_classes(s->data.train, s->data.val, err);
	return status || !o->stage ? status : gn_staging_check(&(struct gn_staging_options){o->stage, {s->data.train, s->data.val}, 0, NULL}, err);
}

/* Last, so that a run that cannot begin copies nothing. */
static enum gn_status begin_staging(struct gn_session *s, struct gn_err *err)
{
	const struct gn_staging_options o = {.directory = s->options->stage, .datasets = {s->data.train, s->data.val}, .log = s->log,
					     .tells = gn_world_local_rank(gn_comm_world(s->comm)) == 0};

	return o.directory ? gn_staging_begin(&o, &s->data.staging, err) : GN_OK;
}

static enum gn_status make_model(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	enum gn_status status = gn_model_create(o->model, (int)gn_dataset_classes(s->data.train), (int)o->channels, side,
						&s->model, err);

	if (status)
		return status;
	/* a checkpoint of an earlier version may be of any values, and is resumed with them: gn_session_restore knows whether it is */
	status = gn_input_of_train(o, gn_model_channels(s->model), !strcmp(o->resume, "none"), &s->checkpoint.info.input, err);
	if (status)
		return gn_err_prefix(err, "%s", gn_model_name(s->model)), status;
	s->checkpoint.info.input.exif_rotate = gn_dataset_exif_rotate(s->data.train);
	if (s->data.val && gn_comm_rank(s->comm) == 0)
		gn_input_compare_turned(&s->checkpoint.info.input, o->val, gn_dataset_exif_rotate(s->data.val), s->log);
	if (o->resize_schedule)
		status = gn_resize_schedule_parse(o->resize_schedule, &s->schedule.resize, err);
	if (status)
		return status;
	snprintf(s->checkpoint.info.model, sizeof s->checkpoint.info.model, "%s", gn_model_name(s->model));
	s->checkpoint.info.classes = gn_model_classes(s->model);
	s->checkpoint.info.channels = gn_model_channels(s->model);
	s->checkpoint.info.side = gn_model_side(s->model);
	s->checkpoint.info.names_of = s->data.train;
	memcpy(s->checkpoint.info.dataset_digest, gn_dataset_digest(s->data.train), 65);
	return gn_weights_layout_digest(s->model, s->checkpoint.info.layout_digest, err);
}

/* dgc applies momentum and clipping on each rank, before it selects. Weight decay, which is not compressed, stays with the optimizer, with
 * the effect that momentum gives it in the long run. */
static void move_momentum(struct gn_replica_options *o)
{
	struct gn_optimizer_options *update = &o->optimizer;

	o->compress.momentum = update->momentum;
	o->compress.clip = update->clip;
	update->weight_decay /= update->momentum < 1 ? 1 - update->momentum : 1;
	update->momentum = update->clip = 0;
}

int gn_session_batches_of(const struct gn_session *s, int worker)
{
	return s->schedule.batches / s->workers + (worker < s->schedule.batches % s->workers);
}

static enum gn_status divide_batches(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	const int64_t batches = o->global_batch ? o->global_batch / o->batch : o->accumulate * s->workers;

	if (batches < s->workers)
		return gn_err_set(err, GN_ERR_USAGE, "--global-batch %" PRId64 " is %" PRId64 " batch%s of %" PRId64 ", fewer than %d ranks: start fewer "
				  "ranks, or give a smaller --batch", o->global_batch, batches, batches == 1 ? "" : "es", o->batch, s->workers);
	s->schedule.batches = (int)batches;
	s->schedule.own_batches = gn_session_batches_of(s, s->worker);
	s->schedule.global_batch = (uint64_t)o->batch * (uint64_t)batches;
	return GN_OK;
}

static enum gn_status init_replica(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	const int is_async = s->pipeline && s->pipeline->stage && gn_pipe_kind_is_async(gn_pipe_stage_schedule(s->pipeline->stage)->kind);
	struct gn_replica_options ro = {
		.comm = gn_session_data_comm(s), .model = gn_session_own_model(s), .pipe = s->pipeline ? s->pipeline->stage : NULL,
		.recomputes = o->recompute, .tensor = s->pipeline ? s->pipeline->tensor : NULL, .log = s->log,
		.device = s->device,
		.optimizer = gn_session_optimizer_options(o), .servers = o->served,
		.ema = o->ema, .class_weights = s->data.class_weights, .algo = o->algo, .gpu_comm = o->comm,
		.batches = is_async ? 1 : s->schedule.own_batches, .async_batches = is_async ? s->schedule.own_batches : 0,
		.step_batches = o->served ? 0 : is_async ? s->workers : s->schedule.batches,
		.compress = {.spec = s->compress, .seed = (uint64_t)o->seed},
		.local = {.every = (uint64_t)o->local_steps, .from_epoch = (uint64_t)o->local_from},
		.shard = gn_shard_mode_of(o->shard),
		.has_copies = o->redundancy > 0 && gn_comm_size(s->comm) > 1 && !s->pipeline,
		.undoes = o->carried && (s->pipeline || (o->redundancy > 0 && gn_comm_size(s->comm) > 1)),
	};
	struct gn_reducer_config config;
	enum gn_status status = gn_optimizer_check(&ro.optimizer, &s->checkpoint.info.optimizer, err);

	if (!status)
		status = gn_lr_scale_match(&o->lr_scale, s->model, gn_comm_rank(s->comm) ? NULL : s->log, err);
	gn_session_reducer_config(s, &config);
	ro.shard_bucket_bytes = config.bucket_bytes;
	if (s->compress.method == GN_COMPRESS_DGC && gn_comm_size(s->comm) > 1)
		move_momentum(&ro);
	return status ? status : gn_replica_init(&s->replica, &ro, err);
}

static enum gn_status make_loaders(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	const int in_groups = s->pipeline && s->pipeline->tensor, alone = s->pipeline && s->pipeline->stage;
	struct gn_loader_options lo = {
		.seed = (uint64_t)o->seed, .rank = (uint32_t)(in_groups ? s->worker : gn_comm_rank(s->comm)),
		.ranks = (uint32_t)(in_groups ? s->workers : gn_comm_size(s->comm)), .batch = (uint32_t)o->batch, .augment = GN_AUGMENT_NONE,
		.threads = gn_loader_threads_most(s), .prefetch_bytes = (size_t)o->prefetch,
	};
	enum gn_status status = gn_input_sampling(o->sampling, s->data.train, (uint64_t)o->seed, &s->data.balance, err);

	if (!status && s->data.balance && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "balanced sampling: of each of %u classes %.1f images an epoch, of which the smallest has %" PRIu64,
			    gn_balance_classes(s->data.balance),
			    (double)gn_dataset_count(s->data.train) / gn_balance_classes(s->data.balance), gn_balance_smallest(s->data.balance));
	if (!status)
		status = gn_session_make_loader(s, err);
	if (status || !s->data.val)
		return status;
	lo.rank = alone ? (uint32_t)gn_comm_rank(s->comm) : lo.rank; /* each rank evaluates the whole network */
	lo.ranks = alone ? (uint32_t)gn_comm_size(s->comm) : lo.ranks;
	gn_input_loader_options(&s->checkpoint.info.input, gn_model_channels(s->model), gn_model_side(s->model), &lo);
	return gn_loader_create(s->data.val, &lo, &s->data.val_loader, err);
}

static enum gn_status make_val_plan(struct gn_session *s, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;
	struct gn_plan_options po = s->device;
	const struct gn_checkpoint_arrays whole = gn_session_arrays(s);

	po.batch = (int)s->options->batch;
	po.device = &r->device;
	if (r->options.tensor && !r->options.pipe && s->data.val) {
		po.weights = gn_weight_layouts_layouts(r->layouts);
		po.tensor = gn_tensor_group_plans(r->options.tensor);
		return gn_plan_create(r->options.model, &po, r->params.device, NULL, r->buffers.device, &s->val_plan, err);
	}
	po.frozen = 1;
	po.weights = gn_weight_layouts_layouts(s->pipeline ? s->pipeline->plain : r->layouts);
	return s->data.val ? gn_plan_create(s->model, &po, whole.params, NULL, whole.buffers, &s->val_plan, err) : GN_OK;
}

static enum gn_status make_train_plans(struct gn_session *s, struct gn_err *err)
{
	return s->schedule.resize.count ? gn_session_try_sides(s, err) : gn_session_make_plan(s, err);
}

enum gn_status gn_session_remake_plans(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = make_train_plans(s, err);

	gn_plan_destroy(s->val_plan);
	s->val_plan = NULL;
	return status ? status : make_val_plan(s, err);
}

/* *same: all ranks want the weights in the same layouts. */
static enum gn_status compare_layouts(struct gn_session *s, int *same, struct gn_err *err)
{
	struct gn_comm *comm = gn_session_data_comm(s);
	struct {
		char hex[65];
	} mine, *all = calloc((size_t)gn_comm_size(comm), sizeof *all);
	int32_t alike = 1;
	enum gn_status status = all ? gn_weight_layouts_digest(s->replica.layouts, mine.hex, err)
				    : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for digests");

	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, all, err);
	for (int r = 0; !status && r < gn_comm_size(comm); r++)
		alike &= !strcmp(all[r].hex, mine.hex);
	free(all);
	if (!status && s->pipeline)
		status = gn_comm_allreduce(s->comm, &alike, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);
	*same = alike;
	return status;
}

/* Collective. Gradients are summed over ranks element by element, so all need the same layouts: torch's order on a cluster whose
 * processors want different ones. */
static enum gn_status make_plans(struct gn_session *s, struct gn_err *err)
{
	int same;
	enum gn_status status;

	/* whose matrices have a low rank in torch's order */
	if (s->compress.method == GN_COMPRESS_POWERSGD && gn_comm_size(s->comm) > 1)
		gn_weight_layouts_plain(s->replica.layouts);
	status = gn_agree_status(s->comm, make_train_plans(s, err), err);
	if (!status)
		status = compare_layouts(s, &same, err);
	if (!status && !same) {
		gn_log_warn(s->log, "ranks want weights in different layouts: torch's order is used, which is slower");
		gn_weight_layouts_plain(s->replica.layouts);
		status = gn_agree_status(s->comm, make_train_plans(s, err), err);
	}
	if (!status)
		status = gn_agree_status(s->comm, make_val_plan(s, err), err);
	if (!status)
		status = gn_session_check_exchanges(s, s->replica.plan, err);
	return status ? status : gn_session_check_exchanges(s, s->val_plan, err);
}

static void trace_op(void *context, const struct gn_plan_mark *mark)
{
	struct gn_session *s = context;
	const struct gn_model *own = gn_session_own_model(s);
	const uint64_t now = gn_clock_ns();
	int node = mark->node;

	if (mark->ended && node >= 0) {
		node = gn_model_tensor(own).ranks ? gn_model_node(own, node)->number : node + gn_model_origin(own).node;
		gn_trace_add(s->metrics.trace, mark->backward ? GN_SPAN_OP_BACKWARD : GN_SPAN_OP_FORWARD, GN_TRACE_MAIN, (uint32_t)node,
			     s->metrics.op_began_ns, now);
	}
	s->metrics.op_began_ns = now;
}

static enum gn_status make_trace(struct gn_session *s, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	uint64_t batches = (uint64_t)s->schedule.own_batches, nodes = (uint64_t)gn_model_node_count(s->model);
	struct gn_trace_options to = {
		.path = o->trace, .steps = o->trace_steps,
		/* Operators both ways, samples decoded one by one at most, buckets and what moved them. */
		.step_spans = batches * (2 * nodes + (uint64_t)o->batch + 8) + nodes + 128,
	};

	s->metrics.profiler = (struct gn_plan_profiler){trace_op, s};
	return gn_trace_create(&to, s->comm, &s->metrics.trace, err);
}

/* Data and network. */
static enum gn_status open_all(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status;

	gn_input_threads(s->options->threads, gn_comm_world(s->comm), s->log);
	status = gn_compress_parse(s->options->compress, &s->compress, err);
	if (!status && s->options->checkpoint_key) {
		status = gn_data_key_read(s->options->checkpoint_key, &s->checkpoint.key, err);
		s->checkpoint.info.key = &s->checkpoint.key;
	}
	if (!status)
		status = open_data(s, err);
	if (!status)
		status = make_model(s, err);
	if (!status && s->options->class_weights)
		status = gn_class_weights_load(s->options->class_weights, s->data.train, &s->data.class_weights, err);
	return status;
}

static enum gn_status prepare(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = init_replica(s, err);

	if (!status)
		status = gn_session_alloc_whole(s, err);
	if (!status && s->options->sync_bn)
		status = gn_sync_bn_create(s->options->sync_bn, gn_session_data_comm(s), &s->sync_bn, err);
	if (!status && s->options->trace)
		status = make_trace(s, err);
	if (!status)
		status = make_loaders(s, err);
	if (!status)
		status = gn_session_make_schedule(s, err);
	if (!status && s->options->log_samples && (!s->pipeline || !s->pipeline->group || !gn_comm_rank(s->pipeline->group)))
		status = gn_sample_log_open(s->options->log_samples, s->options->carried ? s->options->carried->world : 1,
					    gn_world_rank(gn_comm_world(s->comm)), s->log, &s->metrics.samples, err);
	if (!status && s->options->log && gn_comm_rank(s->comm) == 0)
		status = gn_metrics_log_open(s->options->log, s->options->carried && s->options->carried->why, s->log, &s->metrics.log, err);
	if (s->options->regroup)
		gn_metrics_log_set_guard(s->metrics.log, gn_carried_may_write, s);
	return status;
}

/* Files of one checkpoint have one key. The digest tells nothing about it. */
static enum gn_status key_digest(const struct gn_session *s, char digest[GN_SHA256_HEX], struct gn_err *err)
{
	static const uint8_t no_salt[GN_DATA_SALT_BYTES];
	struct gn_data_key made;
	enum gn_status status = gn_data_key_derive(&s->checkpoint.key, no_salt, "gannet checkpoint ranks 1", &made, err);

	return status ? status : gn_sha256_buffer(made.bytes, sizeof made.bytes, digest, err);
}

static enum gn_status compare_ranks(struct gn_session *s, const char *agreed_text, struct gn_err *err)
{
	struct gn_agree_item items[5] = {gn_agree_program(), {.what = "parameter layout"}, {.what = "dataset"}, {.what = "checkpoint key"},
					 {.what = "class weights"}};
	enum gn_status status = key_digest(s, items[3].digest, err);

	memcpy(items[1].digest, s->checkpoint.info.layout_digest, 65);
	memcpy(items[2].digest, s->checkpoint.info.dataset_digest, 65);
	if (!status && s->data.class_weights)
		status = gn_sha256_buffer(s->data.class_weights, gn_dataset_classes(s->data.train) * sizeof(double), items[4].digest, err);
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_agree_digests(s->comm, items, 1, err);
	if (!status)
		status = gn_agree_options(s->comm, agreed_text, err);
	return status ? status : gn_agree_digests(s->comm, items + 1, s->data.class_weights ? 4 : 3, err);
}

enum gn_status gn_session_create(const struct gn_train_options *options, const char *agreed_text, struct gn_comm *comm,
				 struct gn_log *log, struct gn_session **out, struct gn_err *err)
{
	struct gn_session *s = calloc(1, sizeof *s);
	struct gn_reducer_config config;
	enum gn_status status;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a training run");
	s->options = options;
	s->comm = comm;
	s->worker = options->served ? gn_server_client_worker(options->served) : gn_comm_rank(comm);
	s->workers = options->served ? gn_server_client_workers(options->served) : gn_comm_size(comm);
	s->log = log;
	s->checkpoint.saved_step = UINT64_MAX;
	s->checkpoint.info.options = options->options_text;
	status = gn_session_choose_device(s, err);
	if (!status)
		status = gn_agree_status(comm, open_all(s, err), err);
	if (!status)
		status = gn_session_open_mesh(s, err);
	if (!status)
		status = gn_agree_status(comm, divide_batches(s, err), err);
	if (!status)
		status = gn_session_cut(s, err);
	if (!status)
		status = gn_agree_status(comm, prepare(s, err), err);
	if (!status)
		status = compare_ranks(s, agreed_text, err);
	if (!status)
		status = gn_agree_status(comm, gn_replica_share(&s->replica, err), err);
	if (!status)
		status = make_plans(s, err);
	if (!status) {
		gn_session_reducer_config(s, &config);
		status = gn_replica_connect(&s->replica, &config, err);
		if (s->pipeline)
			status = gn_agree_status(comm, status, err);
	}
	if (!status)
		status = gn_agree_status(comm, begin_staging(s, err), err);
	if (status) {
		gn_session_destroy(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

void gn_session_destroy(struct gn_session *s)
{
	if (!s)
		return;
	gn_contention_watch(1, NULL);
	gn_staging_end(s->data.staging);
	gn_checkpoint_writer_destroy(s->checkpoint.writer); /* first: its thread may be writing */
	free(s->checkpoint.local);
	gn_bucket_autotune_destroy(s->autotune, s->replica.reducer);
	gn_step_forecast_release(&s->forecast);
	gn_plan_destroy(s->val_plan);
	gn_replica_release(&s->replica);
	gn_sync_bn_destroy(s->sync_bn); /* before the communicators, as its own may be of a stage's */
	gn_session_pipeline_destroy(s->pipeline);
	gn_loader_destroy(s->data.val_loader);
	gn_loader_destroy(s->data.loader); /* before the trace: its threads write there */
	gn_model_destroy(s->train_model);
	gn_model_destroy(s->model);
	gn_balance_destroy(s->data.balance);
	free(s->data.class_weights);
	gn_dataset_close(s->data.val);
	gn_dataset_close(s->data.train);
	gn_metrics_log_close(s->metrics.log);
	gn_sample_log_close(s->metrics.samples);
	gn_status_files_destroy(s->status.files);
	gn_usage_destroy(s->status.usage);
	if (s->checkpoint.leaves_owner)
		gn_owner_leave(s->checkpoint.owner);
	else
		gn_owner_release(s->checkpoint.owner);
	gn_trace_destroy(s->metrics.trace);
	free(s->is_lost);
	free(s->slow.steps);
	free(s->slow.is_named);
	gn_data_key_wipe(&s->checkpoint.key);
	free(s);
}

enum gn_status gn_session_alone(struct gn_session *s, enum gn_status status)
{
	const struct gn_world *world = gn_comm_world(s->comm);

	/* what the world has found is known everywhere, but for what it finds because this rank gave up */
	if (status && status != GN_ERR_PEER_LOST)
		s->failed_alone |= gn_world_aborted(world) || !gn_world_check(world, NULL);
	return status;
}

int gn_session_has_batch(const struct gn_session *s, uint64_t samples_done)
{
	return samples_done + s->schedule.global_batch <= gn_dataset_count(s->data.train);
}

int gn_session_is_done(const struct gn_session *s)
{
	return s->options->steps ? s->state.step >= (uint64_t)s->options->steps
				 : s->state.epoch >= (uint64_t)s->options->epochs;
}

double gn_session_epoch(const struct gn_session *s)
{
	return (double)s->state.epoch + (double)s->state.sample / (double)s->schedule.epoch_samples;
}
