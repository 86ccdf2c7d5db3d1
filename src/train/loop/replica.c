#include "src/train/loop/replica.h"

#include "src/train/parallel/gpu_backend.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1 << 16 }; /* that a thread copies at a time */

/* A copy of what this rank has of the run's state, in memory that is allocated once. On failure there is no copy. */
static enum gn_status replica_reserve_copy(const struct gn_replica *r, struct gn_state_copy *c, struct gn_err *err)
{
	size_t elements = r->shard ? gn_shard_parts(r->shard)->elements : r->params.count;

	return gn_state_copy_reserve(c, elements, r->buffers.count, gn_optim_slots(gn_optimizer_kind(r->optimizer)), gn_replica_has_average(r), err);
}

static void copy(float *to, const float *from, size_t count)
{
#pragma omp parallel for schedule(static) if (count > 4 * BLOCK)
	for (size_t at = 0; at < count; at += BLOCK)
		memcpy(to + at, from + at, (count - at < BLOCK ? count - at : BLOCK) * sizeof(float));
}

enum gn_status gn_replica_copy_state(const struct gn_replica *r, struct gn_state_copy *c, const float *buffers, const struct gn_run_state *state,
				     struct gn_err *err)
{
	enum gn_status status = replica_reserve_copy(r, c, err);

	if (status)
		return status;
	if (r->shard)
		gn_parts_pack(gn_shard_parts(r->shard), r->params.host, c->params);
	else
		copy(c->params, r->params.host, c->elements);
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		if (c->slots[k])
			copy(c->slots[k], gn_optimizer_slot(r->optimizer, k)->host, c->elements);
	if (c->average) {
		copy(c->average, r->ema.params.host, c->elements);
		copy(c->average_buffers, r->ema.buffers.host, c->buffer_count);
	}
	copy(c->buffers, buffers, c->buffer_count);
	c->state = *state;
	c->is_there = 1;
	return GN_OK;
}

static int is_queued(const struct gn_replica *r)
{
	return gn_device_is_queued(r->device.device);
}

static int is_sharded(const struct gn_replica *r)
{
	return r->options.shard != GN_SHARD_NONE && gn_comm_size(r->options.comm) > 1;
}

enum gn_status gn_replica_choose_device(struct gn_comm *comm, const char *device, const char *precision, const char *gpu_comm,
					struct gn_plan_options *out, struct gn_err *err)
{
	int rank = gn_world_local_rank(gn_comm_world(comm));
	int32_t all_gpus;
	enum gn_status status = gn_agree_status(comm, gn_device_choose(device, precision, rank, out, err), err);

	if (status)
		return status;
	all_gpus = out->backend == GN_BACKEND_CUDA;
	status = gn_comm_allreduce(comm, &all_gpus, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);
	if (status)
		return status;
	if (!all_gpus && out->backend == GN_BACKEND_CUDA)
		status = gn_device_choose("host", precision, rank, out, err);
	if (!status && !all_gpus && gpu_comm && !strcmp(gpu_comm, "nccl"))
		status = gn_err_set(err, GN_ERR_USAGE, "--comm nccl: gradients are summed in the host's memory here, because not every rank "
				    "computes on a GPU: use --comm ucx or auto");
	return status; /* alike on all ranks */
}

enum gn_status gn_replica_init(struct gn_replica *r, const struct gn_replica_options *options, struct gn_err *err)
{
	enum gn_status status = gn_plan_device_open(&options->device, &r->device, err);

	r->options = *options;
	if (!status)
		status = gn_weight_layouts_create(options->model, &r->layouts, err);
	if (!status && !is_sharded(r))
		status = gn_array_create(r->device.device, gn_model_param_elements(options->model), &r->params, err);
	return status;
}

/* Parameters in memory that neighbours reach. */
static enum gn_status alloc_shard(struct gn_replica *r, struct gn_err *err)
{
	const struct gn_replica_options *o = &r->options;
	void *memory;
	int ward = -1;
	enum gn_status status = gn_comm_alloc(o->comm, gn_model_param_elements(o->model) * sizeof(float), &memory, err);

	if (status)
		return gn_err_prefix(err, "parameters of %s", gn_model_name(o->model));
	r->shared_params = memory;
	status = gn_array_wrap(r->device.device, memory, gn_model_param_elements(o->model), &r->params, err);
	if (!status && o->has_copies)
		status = gn_redundancy_ward(o->comm, &ward, err);
	if (!status)
		status = gn_shard_create(o->comm, o->model, o->shard_bucket_bytes, ward, r->device.stream, &r->shard, err);
	return status || !o->has_copies ? status : gn_redundancy_create(o->comm, r->shard, r->flat, &r->redundancy, err);
}

/* On the host in memory that neighbours reach. */
static enum gn_status alloc_flat(struct gn_replica *r, struct gn_err *err)
{
	size_t params = gn_model_param_elements(r->options.model), buffers = gn_model_buffer_elements(r->options.model);
	size_t bytes = (params + buffers + GN_PIGGYBACK_COUNT) * sizeof(float);
	void *memory = NULL;
	enum gn_status status = is_queued(r) ? gn_buffer_alloc(r->device.device, bytes, &r->flat_buffer, err)
					     : gn_comm_alloc(r->options.comm, bytes, &memory, err);

	if (status)
		return gn_err_prefix(err, "gradients of %zu parameters", params);
	r->flat = is_queued(r) ? r->flat_buffer.address : memory;
	r->piggyback = r->flat + params + buffers;
	return gn_array_wrap(r->device.device, r->flat + params, buffers, &r->buffers, err);
}

static enum gn_status alloc_step(struct gn_replica *r, struct gn_err *err)
{
	size_t buffers = (gn_model_buffer_elements(r->options.model) + 63) / 64 * 64;
	size_t held = r->divides ? gn_shard_own_parts(r->shard)->elements : gn_model_param_elements(r->options.model);
	size_t params = r->options.batches > 1 ? held : 0;
	void *results;
	enum gn_status status = gn_buffer_alloc(r->device.device, (buffers + params) * sizeof(float), &r->step_buffer, err);

	if (!status)
		status = gn_pinned_alloc(r->device.device, GN_PIGGYBACK_COUNT * sizeof(float), &results, err);
	if (status)
		return status;
	r->results = results;
	r->kept_buffers = r->step_buffer.address;
	r->accumulated = params ? r->kept_buffers + buffers : NULL;
	return GN_OK;
}

double gn_replica_mean_batches(const struct gn_replica *r)
{
	const struct gn_replica_options *o = &r->options;

	return o->step_batches ? (double)o->step_batches / gn_comm_size(o->comm) : o->batches;
}

int gn_replica_most_batches(const struct gn_replica *r)
{
	return (int)ceil(gn_replica_mean_batches(r));
}

/* What of the parameters is updated here, and over which ranks norms are summed. */
static void set_groups(const struct gn_replica *r, struct gn_optimizer_arrays *arrays)
{
	const struct gn_replica_options *o = &r->options;
	struct gn_update_group *slices = o->tensor ? gn_tensor_group_updates(o->tensor) : NULL;
	struct gn_update_group *network = o->pipe && !o->async_batches ? gn_pipe_stage_group(o->pipe) : slices;

	arrays->parts = o->tensor ? gn_tensor_group_parts(o->tensor) : NULL;
	arrays->group = network;
	arrays->parts_group = slices;
	if (!r->shard)
		return;
	gn_shard_set_beyond(r->shard, network, slices);
	arrays->parts = gn_shard_parts(r->shard);
	arrays->group = gn_shard_group(r->shard);
	arrays->parts_group = gn_shard_pieces_group(r->shard);
}

enum gn_status gn_replica_share(struct gn_replica *r, struct gn_err *err)
{
	const struct gn_replica_options *o = &r->options;
	struct gn_optimizer_arrays arrays = {.ranks = gn_comm_size(o->comm)};
	enum gn_status status = alloc_flat(r, err);

	if (!status && is_sharded(r))
		status = alloc_shard(r, err);
	set_groups(r, &arrays);
	arrays.elsewhere = o->servers != NULL;
	arrays.no_slots = o->servers && gn_server_client_worker(o->servers) > 0;
	/* sums of each batch are collective: all ranks need as many batches */
	r->divides = r->shard && o->shard == GN_SHARD_GRADIENTS && o->batches > 1 && o->step_batches % gn_comm_size(o->comm) == 0;
	if (!status)
		status = alloc_step(r, err);
	if (!status && o->ema > 0)
		status = gn_ema_init(&r->ema, o->model, o->ema, arrays.parts, r->device.device, err);
	if (status)
		return status;
	arrays.params = r->params.device;
	arrays.grads = r->flat;
	arrays.buffers = r->buffers.device;
	arrays.finite = r->piggyback + GN_PIGGYBACK_LOSS;
	arrays.ema = o->ema > 0 ? &r->ema : NULL;
	status = gn_optimizer_create(o->model, &o->optimizer, &arrays, r->device.compute, &r->optimizer, err);
	return status || !o->undoes ? status : replica_reserve_copy(r, &r->undo, err);
}

int gn_replica_sums_on_gpus(const struct gn_replica *r)
{
	return is_queued(r) && gn_comm_size(r->options.comm) > 1;
}

struct gn_sharing_options gn_replica_sharing_options(struct gn_replica *r)
{
	return (struct gn_sharing_options){
		.comm = r->options.comm, .memory = is_queued(r) ? GN_MEMORY_DEVICE : GN_MEMORY_HOST, .model = r->options.model, .flat = r->flat,
		.tail_elements = gn_model_buffer_elements(r->options.model) + GN_PIGGYBACK_COUNT, .algo = r->options.algo,
		.compressor = r->compressor,
		.local = r->local.every > 1 ? &r->local : NULL,
		.shard_params = r->shared_params, .is_partial = &r->is_partial,
		.servers = r->options.servers, .served_flag = r->piggyback + GN_PIGGYBACK_LOSS,
	};
}

enum gn_status gn_replica_connect(struct gn_replica *r, const struct gn_reducer_config *config, struct gn_err *err)
{
	const struct gn_replica_options *o = &r->options;
	enum gn_status status = GN_OK;

	if (gn_replica_sums_on_gpus(r))
		status = gn_gpu_attach(o->comm, r->device.device, o->gpu_comm ? o->gpu_comm : "auto", o->log, err);
	return status ? status : gn_replica_compress(r, &o->compress.spec, config, err);
}

static enum gn_status create_compressor(struct gn_replica *r, const struct gn_compress_spec *spec, struct gn_err *err)
{
	struct gn_compress_options co = r->options.compress;

	co.comm = r->options.comm;
	co.model = r->options.model;
	co.algo = r->options.algo;
	co.batches = r->options.batches;
	co.spec = *spec;
	if (spec->method <= GN_COMPRESS_AUTO || gn_comm_size(co.comm) == 1)
		return GN_OK;
	return gn_agree_status(co.comm, gn_compressor_create(&co, &r->compressor, err), err);
}

static enum gn_status create_reducer(struct gn_replica *r, const struct gn_reducer_config *config, struct gn_err *err)
{
	struct gn_sharing_options ro = gn_replica_sharing_options(r);
	enum gn_status status = gn_reducer_create(&ro, config, &r->reducer, err);

	if (!status)
		status = gn_replica_cut(r, err);
	return gn_agree_status(r->options.comm, status, err);
}

enum gn_status gn_replica_compress(struct gn_replica *r, const struct gn_compress_spec *spec, const struct gn_reducer_config *config,
				   struct gn_err *err)
{
	enum gn_status status;

	gn_reducer_destroy(r->reducer);
	r->reducer = NULL;
	gn_compressor_destroy(r->compressor);
	r->compressor = NULL;
	if (gn_comm_size(r->options.comm) > 1)
		r->local = r->options.local;
	r->local.flag = r->piggyback + GN_PIGGYBACK_LOSS;
	status = create_compressor(r, spec, err);
	return status ? status : create_reducer(r, config, err);
}

enum gn_status gn_replica_compress_from(struct gn_replica *r, uint64_t step, uint64_t epoch, struct gn_err *err)
{
	const struct gn_reducer_config config = *gn_reducer_config(r->reducer);

	if (!r->compressor)
		return GN_OK;
	gn_compressor_begin(r->compressor, step, epoch);
	gn_reducer_destroy(r->reducer);
	r->reducer = NULL;
	return create_reducer(r, &config, err);
}

static int ends_bucket(void *context, int param)
{
	return gn_reducer_ends_bucket(context, param);
}

enum gn_status gn_replica_cut(struct gn_replica *r, struct gn_err *err)
{
	return gn_plan_cut(r->plan, gn_comm_size(r->options.comm) > 1 || r->options.servers ? ends_bucket : NULL, r->reducer, err);
}

void gn_replica_release(struct gn_replica *r)
{
	gn_replica_fetch_close(r);
	if (r->device.stream)
		(void)gn_stream_wait(r->device.stream, NULL);
	gn_reducer_destroy(r->reducer);
	gn_compressor_destroy(r->compressor);
	if (r->device.device && gn_replica_sums_on_gpus(r))
		gn_comm_detach(r->options.comm);
	gn_replica_destroy_plans(r);
	gn_pipe_predictor_destroy(r->predictor);
	gn_optimizer_destroy(r->optimizer);
	gn_ema_release(&r->ema);
	gn_redundancy_destroy(r->redundancy);
	gn_state_copy_release(&r->undo);
	gn_shard_destroy(r->shard);
	if (r->device.device)
		gn_pinned_free(r->device.device, r->results);
	gn_buffer_free(&r->step_buffer);
	gn_array_release(&r->buffers);
	gn_array_release(&r->params);
	if (r->shared_params)
		gn_comm_free(r->options.comm, r->shared_params);
	if (r->flat && !r->flat_buffer.device)
		gn_comm_free(r->options.comm, r->flat);
	gn_buffer_free(&r->flat_buffer);
	gn_weight_layouts_destroy(r->layouts);
	gn_plan_device_close(&r->device);
	memset(r, 0, sizeof *r);
}

int gn_replica_has_average(const struct gn_replica *r)
{
	return r->options.ema > 0;
}

enum gn_status gn_replica_whole_average(struct gn_replica *r, struct gn_ema *out, struct gn_err *err)
{
	*out = r->ema;
	if (!r->shard)
		return GN_OK;
	out->parts = NULL;
	out->params = (struct gn_array){.device = r->flat, .host = r->flat, .count = gn_model_param_elements(r->options.model)};
	return gn_shard_gather(r->shard, r->ema.params.host, r->flat, err);
}

struct gn_server_arrays gn_replica_served_arrays(const struct gn_replica *r)
{
	struct gn_server_arrays a = {.params = r->params.host, .elements = r->params.count,
				     .slot_count = gn_optim_slots(gn_optimizer_kind(r->optimizer))};

	for (int k = 0; k < a.slot_count; k++)
		a.slots[k] = gn_optimizer_slot(r->optimizer, k)->host;
	return a;
}

enum gn_status gn_replica_update(struct gn_replica *r, const struct gn_optim_update *u, int *stop, double *norm, struct gn_err *err)
{
	struct gn_server_commit commit = {.updates = u->step, .lr = u->lr, .grad_scale = u->grad_scale, .stop = *stop};
	enum gn_status status = gn_replica_fetch_guard(r, err);

	if (status || !r->options.servers)
		return status ? status : gn_optimizer_queue(r->optimizer, u, err);
	commit.skip = !isfinite(r->piggyback[GN_PIGGYBACK_LOSS]); /* in the host's memory, as servers want it */
	status = gn_server_client_commit(r->options.servers, &commit, r->params.host, r->params.count, err);
	*stop = commit.stop;
	*norm = sqrt(gn_server_client_state(r->options.servers)->norm2);
	return status ? status : gn_optimizer_queue(r->optimizer, u, err);
}

size_t gn_replica_state_bytes(const struct gn_replica *r, size_t *whole)
{
	size_t params = gn_model_param_elements(r->options.model), held = r->shard ? gn_shard_parts(r->shard)->elements : params;
	size_t arrays = (size_t)gn_optim_slots(gn_optimizer_kind(r->optimizer)) + (gn_replica_has_average(r) ? 1 : 0);

	*whole = arrays * params * sizeof(float);
	return arrays * held * sizeof(float);
}

static enum gn_status average(const struct gn_replica *r, const struct gn_array *a, struct gn_err *err)
{
	return gn_comm_run(r->options.comm, &(struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = a->device, .count = a->count,
								   .type = GN_F32, .reduction = GN_AVERAGE}, err);
}

enum gn_status gn_replica_average(struct gn_replica *r, struct gn_err *err)
{
	enum gn_status status;

	if (!r->local.has_drifted)
		return GN_OK;
	status = average(r, &r->params, err);
	for (int k = 0; k < gn_optim_slots(gn_optimizer_kind(r->optimizer)) && !status; k++)
		status = average(r, gn_optimizer_slot(r->optimizer, k), err);
	if (!status)
		r->local.has_drifted = 0;
	return status;
}
