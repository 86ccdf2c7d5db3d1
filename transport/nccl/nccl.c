#include "src/base/clock.h"
#include "transport/nccl/nccl_internal.h"

#include <stdlib.h>

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

enum gn_status gn_nccl_fail(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, struct gn_err *err)
{
	int rank = gn_world_rank(c->world);
	const char *last = c->api.get_last_error(NULL);

	return gn_err_set(err, GN_ERR_FAILED, "rank %d on %s, cuda:%d: %s: %s%s%.200s%s", rank, gn_world_host_of(c->world, rank),
			  c->ordinal, call, c->api.get_error_string(rc), last && *last ? ": " : "", last ? last : "", advice(rc));
}

/* Aborting ends the communicator's kernels, which would wait for a dead peer forever. */
static void abort_communicator(struct gn_nccl_backend *c)
{
	ncclComm_t native = c->native;

	c->native = NULL;
	if (native)
		(void)c->api.abort(native);
}

enum gn_status gn_nccl_end_operation(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err)
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

static enum gn_status check_async(const struct gn_nccl_backend *c, const char *call, int *busy, struct gn_err *err)
{
	ncclResult_t state = ncclSuccess, rc = c->api.get_async_error(c->native, &state);

	if (rc != ncclSuccess)
		return gn_nccl_fail(c, rc, "ncclCommGetAsyncError", err);
	*busy = state == ncclInProgress;
	return state == ncclSuccess || *busy ? GN_OK : gn_nccl_fail(c, state, call, err);
}

enum gn_status gn_nccl_wait(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, uint64_t limit_ns,
			    struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + limit_ns;
	enum gn_status status = GN_OK;
	int busy = rc == ncclInProgress;

	if (rc != ncclSuccess && !busy)
		return gn_nccl_fail(c, rc, call, err);
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

enum gn_status gn_nccl_enter(const struct gn_nccl_backend *c, struct gn_err *err)
{
	return gn_gpu_call(cudaSetDevice(c->ordinal), "cudaSetDevice", c->ordinal, err);
}

static enum gn_status prepare(struct gn_coll_backend *base, const struct gn_coll_args *args, struct gn_coll_backend_op **out,
			      struct gn_err *err)
{
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base;
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
	status = gn_nccl_enter(c, err);
	if (!status)
		status = gn_gpu_call(cudaEventCreateWithFlags(&op->end, cudaEventDisableTiming), "cudaEventCreate", c->ordinal,
				     err);
	if (status)
		free(op);
	else
		*out = &op->base;
	return status;
}

static enum gn_status launch(struct gn_nccl_backend *c, struct nccl_op *op, cudaEvent_t before, struct gn_err *err)
{
	enum gn_status status = gn_nccl_enter(c, err);
	ncclResult_t rc;

	if (!status && before)
		status = gn_gpu_call(cudaStreamWaitEvent(c->stream, before, 0), "cudaStreamWaitEvent", c->ordinal, err);
	if (status)
		return status;
	rc = c->api.all_reduce(op->device, op->device, op->count, op->type, op->reduction, c->native, c->stream);
	status = gn_nccl_wait(c, rc, "ncclAllReduce", GN_NCCL_START_NS, err);
	return status ? status : gn_gpu_call(cudaEventRecord(op->end, c->stream), "cudaEventRecord", c->ordinal, err);
}

static enum gn_status start(struct gn_coll_backend_op *base, const struct gn_event *before, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->backend;

	if (c->status)
		return gn_nccl_end_operation(c, c->status, err);
	op->in_flight = 1;
	op->checked_ns = gn_clock_ns();
	return gn_nccl_end_operation(c, launch(c, op, before ? (cudaEvent_t)gn_event_native(before) : NULL, &c->why), err);
}

static enum gn_status poll_end(struct gn_nccl_backend *c, struct nccl_op *op, struct gn_err *err)
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
	status = gn_gpu_call(code, "ncclAllReduce", c->ordinal, err);
	op->in_flight = status != GN_OK;
	return status;
}

static enum gn_status test(struct gn_coll_backend_op *base, int *done, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->backend;
	enum gn_status status = GN_OK;

	if (op->in_flight)
		status = gn_nccl_end_operation(c, c->status ? c->status : poll_end(c, op, &c->why), err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

static void free_op(struct gn_coll_backend_op *base)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->backend;

	if (op->in_flight && !c->status) {
		c->status = gn_err_set(&c->why, GN_ERR_FAILED, "an allreduce was freed before it was complete");
		abort_communicator(c);
	}
	if (!gn_nccl_enter(c, NULL))
		(void)gn_gpu_call(cudaEventDestroy(op->end), "cudaEventDestroy", c->ordinal, NULL);
	free(op);
}

static void describe(const struct gn_coll_backend *base, struct gn_strbuf *out)
{
	int version = ((const struct gn_nccl_backend *)base)->api.version;

	gn_strbuf_printf(out, "nccl %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* Finalizes the communicator only when nothing has failed; otherwise that could block, and the communicator is aborted. */
static void destroy(struct gn_coll_backend *base)
{
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base;
	int entered = !gn_nccl_enter(c, NULL);

	if (c->native && entered && !c->status && !gn_world_check(c->world, NULL) &&
	    !gn_nccl_wait(c, c->api.finalize(c->native), "ncclCommFinalize", FINALIZE_NS, NULL)) {
		(void)c->api.destroy(c->native);
		c->native = NULL;
	}
	abort_communicator(c);
	if (c->stream && entered)
		(void)gn_gpu_call(cudaStreamDestroy(c->stream), "cudaStreamDestroy", c->ordinal, NULL);
	free(c);
}

const struct gn_coll_backend_ops gn_nccl_ops = {"nccl", prepare, start, test, free_op, describe, destroy};
