#include "src/base/clock.h"
#include "transport/nccl/nccl_internal.h"
#include "transport/health/recorder.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FINALIZE_NS 5000000000u
#define CHECK_NS 2000000u
/* A GPU that takes longer to produce the input of an allreduce is regarded as hung. */
#define READY_NS 600000000000u
/* NCCL does not report progress: an operation counts as progressing for as long as it would take at 10 MB/s. */
#define SLOW_NS_PER_BYTE 100
#define POLLS 64
#define PAUSE_NS 20000

struct nccl_op {
	struct gn_coll_backend_op base;
	void *device;
	void *after; /* the CUDA event after which the input is ready; NULL: it is ready */
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	cudaEvent_t end;
	uint64_t started_ns, ready_ns; /* ready_ns: when the input was first seen ready */
	uint64_t slow_ns;	      /* see SLOW_NS_PER_BYTE */
	uint32_t kind; /* for the recorder */
	uint64_t number;
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

/* NCCL reports that something failed, in *err; the world knows which rank was lost, a moment later. Replaces *err in that case. */
static enum gn_status find_reason(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	struct timespec pause = {0, 5000000};
	struct gn_err lost;

	abort_communicator(c);
	do {
		enum gn_status failure;

		/* count as progress, so that no stall is detected during this wait */
		gn_recorder_waiting(gn_world_recorder(c->world), 1);
		failure = gn_world_check_wait(c->world, started, &lost);

		if (failure) {
			*err = lost;
			return failure;
		}
		nanosleep(&pause, NULL);
	} while (gn_clock_ns() - started < gn_world_failure_reason_ns(c->world));
	/* this rank fails by itself: without a report the others would wait for it */
	gn_world_abort(c->world, err->text);
	return status;
}

enum gn_status gn_nccl_end_operation(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err)
{
	if (status && !c->status)
		c->status = find_reason(c, status, &c->why);
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
	struct timespec pause = {0, PAUSE_NS};
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
			nanosleep(&pause, NULL);
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

static enum gn_status prepare(struct gn_coll_backend *base, void *device, size_t count, enum gn_dtype type,
			      enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err)
{
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base;
	struct gn_recorder_op record;
	struct nccl_op *op;
	ncclDataType_t native;
	enum gn_status status;

	if (!find_type(type, &native))
		return gn_err_set(err, GN_ERR_USAGE, "NCCL has no %s of %s", gn_reduction_name(reduction), gn_dtype_name(type));
	op = calloc(1, sizeof *op);
	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	*op = (struct nccl_op){.base = {base}, .device = device, .count = count, .type = native,
			       .reduction = reduction_of(reduction),
			       .slow_ns = count * gn_dtype_bytes(type) * SLOW_NS_PER_BYTE};
	record = (struct gn_recorder_op){.name = "allreduce", .algorithm = "nccl", .type = gn_dtype_name(type),
					 .reduction = gn_reduction_name(reduction), .count = count,
					 .bytes = count * gn_dtype_bytes(type), .root = -1};
	op->kind = gn_recorder_kind(gn_world_recorder(c->world), &record);
	status = gn_nccl_enter(c, err);
	if (!status)
		status = gn_gpu_call(cudaEventCreateWithFlags(&op->end, cudaEventDisableTiming), "cudaEventCreate", c->ordinal,
				     err);
	if (status) {
		free(op);
		return status;
	}
	*out = &op->base;
	return GN_OK;
}

static enum gn_status launch(struct gn_nccl_backend *c, struct nccl_op *op, void *after, struct gn_err *err)
{
	enum gn_status status = gn_nccl_enter(c, err);
	ncclResult_t rc;

	if (!status && after)
		status = gn_gpu_call(cudaStreamWaitEvent(c->stream, (cudaEvent_t)after, 0), "cudaStreamWaitEvent", c->ordinal, err);
	if (status)
		return status;
	rc = c->api.all_reduce(op->device, op->device, op->count, op->type, op->reduction, c->native, c->stream);
	status = gn_nccl_wait(c, rc, "ncclAllReduce", GN_NCCL_START_NS, err);
	return status ? status : gn_gpu_call(cudaEventRecord(op->end, c->stream), "cudaEventRecord", c->ordinal, err);
}

static enum gn_status start(struct gn_coll_backend_op *base, void *after, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;

	if (op->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "an allreduce was started again before it was complete");
	if (c->status)
		return gn_nccl_end_operation(c, c->status, err);
	op->number = gn_recorder_start(gn_world_recorder(c->world), op->kind);
	op->in_flight = 1;
	op->after = after;
	op->started_ns = op->ready_ns = gn_clock_ns();
	return gn_nccl_end_operation(c, launch(c, op, after, &c->why), err);
}

/* check_errors: also query errors of NCCL's own threads, which is done only now and then. */
static enum gn_status poll_end(struct gn_nccl_backend *c, struct nccl_op *op, int check_errors, struct gn_err *err)
{
	cudaError_t code = cudaEventQuery(op->end);
	enum gn_status status = GN_OK;
	int busy;

	if (code == cudaErrorNotReady) {
		(void)cudaGetLastError();
		status = gn_world_check(c->world, err);
		return status || !check_errors ? status : check_async(c, "ncclAllReduce", &busy, err);
	}
	status = gn_gpu_call(code, "ncclAllReduce", c->ordinal, err);
	if (!status) {
		op->in_flight = 0;
		gn_recorder_done(gn_world_recorder(c->world), op->number);
	}
	return status;
}

static enum gn_status test(struct gn_coll_backend_op *base, int *done, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;
	enum gn_status status = GN_OK;

	if (op->in_flight)
		status = gn_nccl_end_operation(c, c->status ? c->status : poll_end(c, op, 1, &c->why), err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

/* Records whether the rank waits for peers: not while the GPU still computes the input of the allreduce. */
static void record_wait(struct gn_nccl_backend *c, struct nccl_op *op)
{
	struct gn_recorder *recorder = gn_world_recorder(c->world);
	uint64_t since_ns;

	if (op->after && cudaEventQuery((cudaEvent_t)op->after) != cudaErrorNotReady) {
		op->after = NULL;
		op->ready_ns = gn_clock_ns();
	}
	(void)cudaGetLastError();
	since_ns = gn_clock_ns() - (op->after ? op->started_ns : op->ready_ns);
	if (since_ns < (op->after ? READY_NS : op->slow_ns))
		gn_recorder_moved(recorder);
	else
		gn_recorder_waiting(recorder, 0);
}

static enum gn_status wait(struct gn_coll_backend_op *base, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;
	struct timespec pause = {0, PAUSE_NS};
	uint64_t checked_ns = gn_clock_ns(), now;
	enum gn_status status = c->status;

	for (unsigned idle = 1; op->in_flight && !status; idle++) {
		now = gn_clock_ns();
		status = poll_end(c, op, now - checked_ns > CHECK_NS, &c->why);
		if (now - checked_ns > CHECK_NS) {
			checked_ns = now;
			record_wait(c, op);
		}
		if (idle % POLLS == 0 && idle > 16 * POLLS)
			nanosleep(&pause, NULL);
		else if (idle % POLLS == 0)
			sched_yield();
	}
	return gn_nccl_end_operation(c, status, err);
}

static void free_op(struct gn_coll_backend_op *base)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;

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

const struct gn_coll_backend_ops gn_nccl_ops = {"nccl", prepare, start, test, wait, free_op, describe, destroy};
