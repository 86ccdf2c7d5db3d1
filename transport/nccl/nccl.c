#include "transport/nccl/nccl.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"
#include "transport/nccl/nccl_api.h"
#include "transport/nccl/nccl_record.h"

#include <stdlib.h>
#include <string.h>

struct nccl_backend {
	struct gn_coll_backend base;
	struct gn_world *world;
	struct gn_nccl_api api;
	int ordinal;
	cudaStream_t stream;
	ncclComm_t native; /* NULL before initialization and when aborted */
	enum gn_status status; /* the first failure, kept */
	struct gn_err why; /* of status */
};

/* The time limit of NCCL's initialization on all ranks. */
#define START_NS 120000000000u
#define FINALIZE_NS 5000000000u
#define PAUSE_NS 20000
/* Between queries of errors of NCCL's own threads. */
#define CHECK_NS 2000000u

struct nccl_op {
	struct gn_coll_backend_op base;
	void *device;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	cudaEvent_t end;
	uint64_t checked_ns;
	int in_flight;
};

/* --- errors --- */

/* The status of a call that returned code; GN_OK for cudaSuccess. The text names the device and the call. */
static enum gn_status gpu_call(cudaError_t code, const char *call, int ordinal, struct gn_err *err)
{
	enum gn_status status = code == cudaErrorMemoryAllocation ? GN_ERR_NO_MEMORY
				: code == cudaErrorInvalidDevice  ? GN_ERR_USAGE
				: code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ? GN_ERR_UNSUPPORTED
												  : GN_ERR_FAILED;

	if (code == cudaSuccess)
		return GN_OK;
	/* reset an error that is not sticky: the next cudaGetLastError() would report it again */
	(void)cudaGetLastError();
	return gn_err_set(err, status, "cuda:%d: %s: %s (%s)", ordinal, call, cudaGetErrorString(code), cudaGetErrorName(code));
}

/* What the user can do about an error. */
static const char *advice(ncclResult_t rc)
{
	switch (rc) {
	case ncclUnhandledCudaError:
		return "; is the driver new enough (nvidia-smi)? Set NCCL_DEBUG=INFO for details, or use --comm ucx";
	case ncclSystemError:
		return "; the network, shared memory (/dev/shm) or locked memory (ulimit -l) failed: NCCL_SOCKET_IFNAME and "
		       "NCCL_IB_HCA select what NCCL may use, NCCL_DEBUG=INFO logs what it uses";
	case ncclInvalidUsage:
		return "; do all ranks have the same NCCL and a GPU each? Set NCCL_DEBUG=WARN for details";
	case ncclRemoteError:
		return "; another rank or the network has failed";
	default:
		return "; set NCCL_DEBUG=INFO for details, or use --comm ucx";
	}
}

/* An error with rank, host, GPU, NCCL's text and advice. */
static enum gn_status nccl_fail(const struct nccl_backend *c, ncclResult_t rc, const char *call, struct gn_err *err)
{
	int rank = gn_world_rank(c->world);
	const char *last = c->api.get_last_error(NULL);

	return gn_err_set(err, GN_ERR_FAILED, "rank %d on %s, cuda:%d: %s: %s%s%.200s%s", rank, gn_world_host_of(c->world, rank),
			  c->ordinal, call, c->api.get_error_string(rc), last && *last ? ": " : "", last ? last : "", advice(rc));
}

/* Aborting ends the communicator's kernels, which would wait for a dead peer forever. */
static void abort_communicator(struct nccl_backend *c)
{
	ncclComm_t native = c->native;

	c->native = NULL;
	if (native)
		(void)c->api.abort(native);
}

/* To be called with the result of every operation, including GN_OK, and its error in c->why: the first failure aborts the communicator
 * and is returned from then on. */
static enum gn_status nccl_end_operation(struct nccl_backend *c, enum gn_status status, struct gn_err *err)
{
	if (status && !c->status) {
		c->status = status;
		abort_communicator(c);
	}
	if (c->status && err)
		*err = c->why;
	return c->status;
}

/* --- waiting for NCCL --- */

static enum gn_status check_async(const struct nccl_backend *c, const char *call, int *busy, struct gn_err *err)
{
	ncclResult_t state = ncclSuccess, rc = c->api.get_async_error(c->native, &state);

	if (rc != ncclSuccess)
		return nccl_fail(c, rc, "ncclCommGetAsyncError", err);
	*busy = state == ncclInProgress;
	return state == ncclSuccess || *busy ? GN_OK : nccl_fail(c, state, call, err);
}

/* Waits for the end of a call of a non-blocking communicator that returned rc; checks the world meanwhile. GN_ERR_STALL after
 * limit_ns. */
static enum gn_status nccl_wait(const struct nccl_backend *c, ncclResult_t rc, const char *call, uint64_t limit_ns,
			    struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + limit_ns;
	enum gn_status status = GN_OK;
	int busy = rc == ncclInProgress;

	if (rc != ncclSuccess && !busy)
		return nccl_fail(c, rc, call, err);
	while (!status && busy) {
		status = check_async(c, call, &busy, err);
		if (!status && busy)
			status = gn_world_check(c->world, err);
		if (!status && busy && gn_clock_ns() > until)
			status = gn_err_set(err, GN_ERR_STALL, "rank %d on %s: %s did not complete in %.0f s; set "
					    "NCCL_DEBUG=INFO for details",
					    gn_world_rank(c->world), gn_world_host_of(c->world, gn_world_rank(c->world)), call,
					    (double)limit_ns * 1e-9);
		if (!status && busy)
			gn_clock_sleep_ns(PAUSE_NS);
	}
	return status;
}

/* --- operations --- */

static int find_type(enum gn_dtype type, ncclDataType_t *out)
{
	switch (type) {
	case GN_F32:
		*out = ncclFloat32;
		return 1;
	case GN_F64:
		*out = ncclFloat64;
		return 1;
	case GN_I32:
		*out = ncclInt32;
		return 1;
	case GN_I64:
		*out = ncclInt64;
		return 1;
	case GN_F16:
		*out = ncclFloat16;
		return 1;
	case GN_BF16:
		*out = ncclBfloat16;
		return 1;
	default:
		return 0;
	}
}

static ncclRedOp_t reduction_of(enum gn_reduction r)
{
	return r == GN_MAX ? ncclMax : r == GN_MIN ? ncclMin : r == GN_AVERAGE ? ncclAvg : ncclSum;
}

/* Makes the GPU the current device of the calling thread. */
static enum gn_status nccl_enter(const struct nccl_backend *c, struct gn_err *err)
{
	return gpu_call(cudaSetDevice(c->ordinal), "cudaSetDevice", c->ordinal, err);
}

static enum gn_status prepare(struct gn_coll_backend *base, const struct gn_coll_args *args, struct gn_coll_backend_op **out,
			      struct gn_err *err)
{
	struct nccl_backend *c = (struct nccl_backend *)base;
	struct nccl_op *op;
	ncclDataType_t native;
	enum gn_status status;

	if (!find_type(args->type, &native))
		return gn_err_set(err, GN_ERR_USAGE, "NCCL has no %s of %s", gn_reduction_name(args->reduction),
				  gn_dtype_name(args->type));
	op = calloc(1, sizeof *op);
	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	*op = (struct nccl_op){.base = {base}, .device = args->out, .count = args->count, .type = native,
			       .reduction = reduction_of(args->reduction)};
	status = nccl_enter(c, err);
	if (!status)
		status = gpu_call(cudaEventCreateWithFlags(&op->end, cudaEventDisableTiming), "cudaEventCreate", c->ordinal,
				     err);
	if (status)
		free(op);
	else
		*out = &op->base;
	return status;
}

static enum gn_status launch(struct nccl_backend *c, struct nccl_op *op, cudaEvent_t before, struct gn_err *err)
{
	enum gn_status status = nccl_enter(c, err);
	ncclResult_t rc;

	if (!status && before)
		status = gpu_call(cudaStreamWaitEvent(c->stream, before, 0), "cudaStreamWaitEvent", c->ordinal, err);
	if (status)
		return status;
	rc = c->api.all_reduce(op->device, op->device, op->count, op->type, op->reduction, c->native, c->stream);
	status = nccl_wait(c, rc, "ncclAllReduce", START_NS, err);
	return status ? status : gpu_call(cudaEventRecord(op->end, c->stream), "cudaEventRecord", c->ordinal, err);
}

static enum gn_status start(struct gn_coll_backend_op *base, const struct gn_event *before, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct nccl_backend *c = (struct nccl_backend *)base->backend;

	if (c->status)
		return nccl_end_operation(c, c->status, err);
	op->in_flight = 1;
	op->checked_ns = gn_clock_ns();
	return nccl_end_operation(c, launch(c, op, before ? (cudaEvent_t)gn_event_native(before) : NULL, &c->why), err);
}

static enum gn_status poll_end(struct nccl_backend *c, struct nccl_op *op, struct gn_err *err)
{
	cudaError_t code = cudaEventQuery(op->end);
	enum gn_status status;
	uint64_t now;
	int busy;

	if (code == cudaErrorNotReady) {
		(void)cudaGetLastError();
		status = gn_world_check(c->world, err);
		now = gn_clock_ns();
		if (status || now - op->checked_ns < CHECK_NS)
			return status;
		op->checked_ns = now;
		return check_async(c, "ncclAllReduce", &busy, err);
	}
	status = gpu_call(code, "ncclAllReduce", c->ordinal, err);
	op->in_flight = status != GN_OK;
	return status;
}

static enum gn_status test(struct gn_coll_backend_op *base, int *done, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct nccl_backend *c = (struct nccl_backend *)base->backend;
	enum gn_status status = GN_OK;

	if (op->in_flight)
		status = nccl_end_operation(c, c->status ? c->status : poll_end(c, op, &c->why), err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

static void free_op(struct gn_coll_backend_op *base)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct nccl_backend *c = (struct nccl_backend *)base->backend;

	if (op->in_flight && !c->status) {
		c->status = gn_err_set(&c->why, GN_ERR_FAILED, "an allreduce was freed before it was complete");
		abort_communicator(c);
	}
	if (!nccl_enter(c, NULL))
		(void)gpu_call(cudaEventDestroy(op->end), "cudaEventDestroy", c->ordinal, NULL);
	free(op);
}

static void describe(const struct gn_coll_backend *base, struct gn_strbuf *out)
{
	int version = ((const struct nccl_backend *)base)->api.version;

	gn_strbuf_printf(out, "nccl %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* Finalizes the communicator only when nothing has failed; otherwise that could block, and the communicator is aborted. */
static void destroy(struct gn_coll_backend *base)
{
	struct nccl_backend *c = (struct nccl_backend *)base;
	int entered = !nccl_enter(c, NULL);

	if (c->native && entered && !c->status && !gn_world_check(c->world, NULL) &&
	    !nccl_wait(c, c->api.finalize(c->native), "ncclCommFinalize", FINALIZE_NS, NULL)) {
		(void)c->api.destroy(c->native);
		c->native = NULL;
	}
	abort_communicator(c);
	if (c->stream && entered)
		(void)gpu_call(cudaStreamDestroy(c->stream), "cudaStreamDestroy", c->ordinal, NULL);
	free(c);
}

static const struct gn_coll_backend_ops nccl_ops = {"nccl", prepare, start, test, free_op, describe, destroy};

/* --- creation --- */

static enum gn_status create_stream(struct nccl_backend *c, struct gn_err *err)
{
	int least = 0, greatest = 0;
	enum gn_status status = nccl_enter(c, err);

	if (!status)
		status = gpu_call(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange",
				     c->ordinal, err);
	/* the highest priority: ahead of the kernels of backward, which keep the GPU busy */
	return status ? status
		      : gpu_call(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest),
				    "cudaStreamCreateWithPriority", c->ordinal, err);
}

static void fill_record(struct nccl_backend *c, const struct gn_comm *comm, struct gn_nccl_record *record)
{
	ncclUniqueId id;
	struct gn_err why;
	enum gn_status status = gn_nccl_api_load(&c->api, &why);

	_Static_assert(sizeof id == GN_NCCL_ID_BYTES, "NCCL's identifiers have another size");
	if (!status)
		status = create_stream(c, &why);
	if (!status)
		status = gpu_call(cudaDeviceGetPCIBusId(record->gpu, sizeof record->gpu, c->ordinal), "cudaDeviceGetPCIBusId",
				     c->ordinal, &why);
	if (!status && gn_comm_rank(comm) == 0) {
		ncclResult_t rc = c->api.get_unique_id(&id);

		if (rc == ncclSuccess)
			memcpy(record->id, &id, sizeof record->id);
		else
			status = nccl_fail(c, rc, "ncclGetUniqueId", &why);
	}
	record->version = c->api.version;
	record->status = status;
	if (status)
		memcpy(record->why, why.text, strnlen(why.text, sizeof record->why - 1));
}

static enum gn_status exchange_records(struct nccl_backend *c, struct gn_comm *comm, ncclUniqueId *id, struct gn_err *err)
{
	size_t size = (size_t)gn_comm_size(comm);
	struct gn_nccl_record mine = {0}, *records = calloc(size, sizeof *records);
	const char **hosts = calloc(size, sizeof *hosts);
	enum gn_status status = GN_OK;

	fill_record(c, comm, &mine);
	if (!records || !hosts)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, records, err);
	for (size_t r = 0; !status && r < size; r++) {
		hosts[r] = gn_world_host_of(c->world, gn_comm_world_rank(comm, (int)r));
		records[r].why[sizeof records[r].why - 1] = 0;
		records[r].gpu[sizeof records[r].gpu - 1] = 0;
	}
	if (!status)
		status = gn_nccl_records_check(records, hosts, size, err);
	if (!status)
		memcpy(id, records[0].id, sizeof *id);
	free(records);
	free(hosts);
	return status;
}

static enum gn_status join(struct nccl_backend *c, const struct gn_comm *comm, const ncclUniqueId *id, struct gn_err *err)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t rc;

	config.blocking = 0;
	rc = c->api.init_rank_config(&c->native, gn_comm_size(comm), *id, gn_comm_rank(comm), &config);
	return nccl_wait(c, rc, "ncclCommInitRankConfig", START_NS, err);
}

enum gn_status gn_nccl_create(struct gn_comm *comm, struct gn_device *device, struct gn_coll_backend **out, struct gn_err *err)
{
	struct nccl_backend *c = calloc(1, sizeof *c);
	ncclUniqueId id;
	struct gn_err why;
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for NCCL");
	c->base.ops = &nccl_ops;
	c->world = gn_comm_world(comm);
	c->ordinal = gn_device_ordinal(device);
	status = exchange_records(c, comm, &id, &why);
	if (!status)
		status = nccl_end_operation(c, join(c, comm, &id, &c->why), &why);
	if (status && c->status)
		status = gn_agree_explain(comm, gn_world_failure_reason_ns(c->world), 1, &why);
	if (status) {
		if (err)
			*err = why;
		c->base.ops->destroy(&c->base);
		return status;
	}
	*out = &c->base;
	return GN_OK;
}
