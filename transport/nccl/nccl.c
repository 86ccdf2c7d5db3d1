#include "src/base/clock.h"
#include "transport/nccl/nccl_internal.h"
#include "transport/health/recorder.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define END_NS 5000000000u
#define CHECK_NS 2000000u
/* A GPU that takes longer for what is to be summed hangs. */
#define MAKING_NS 600000000000u
/* NCCL does not say how far it has come: it moves as long as a network of 10 MB/s would have work. */
#define SLOW_NS_PER_BYTE 100
#define LOOKS 64
#define PAUSE_NS 20000

struct nccl_op {
	struct gn_coll_backend_op base;
	void *device;
	void *after; /* what it sums is there when this event has happened; NULL: it is */
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	cudaEvent_t end;
	uint64_t started_ns, made_ns; /* made_ns: what it sums was there, as far as it is known */
	uint64_t slow_ns;	      /* see SLOW_NS_PER_BYTE */
	uint32_t kind; /* for the recorder */
	uint64_t number;
	int in_flight;
};

/* --- errors --- */

/* What to do about it, where that is known. */
static const char *advice(ncclResult_t rc)
{
	switch (rc) {
	case ncclUnhandledCudaError:
		return "; is the driver new enough (nvidia-smi)? NCCL_DEBUG=INFO tells more, and --comm ucx does without";
	case ncclSystemError:
		return "; the network, shared memory (/dev/shm) or locked memory (ulimit -l) failed it: NCCL_SOCKET_IFNAME "
		       "and NCCL_IB_HCA say what it may use, NCCL_DEBUG=INFO what it uses";
	case ncclInvalidUsage:
		return "; do all ranks have the same NCCL and a GPU each? NCCL_DEBUG=WARN tells more";
	case ncclRemoteError:
		return "; another rank has failed, or the network";
	default:
		return "; NCCL_DEBUG=INFO tells more, and --comm ucx does without";
	}
}

enum gn_status gn_nccl_fail(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, struct gn_err *err)
{
	int rank = gn_world_rank(c->world);
	const char *last = c->api.get_last_error(NULL);

	return gn_err_set(err, GN_ERR_FAILED, "rank %d on %s, cuda:%d: %s: %s%s%.200s%s", rank, gn_world_host_of(c->world, rank),
			  c->ordinal, call, c->api.get_error_string(rc), last && *last ? ": " : "", last ? last : "", advice(rc));
}

/* Ends its kernels, which would wait for a dead peer for ever. */
static void let_go(struct gn_nccl_backend *c)
{
	ncclComm_t native = c->native;

	c->native = NULL;
	if (native)
		(void)c->api.abort(native);
}

/* The world knows who was lost, NCCL only that something broke; *err holds what it said. */
static enum gn_status diagnose(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	struct timespec pause = {0, 5000000};
	struct gn_err lost;

	let_go(c);
	do {
		enum gn_status verdict;

		/* this is no stall, and none may be found while it is looked for what it is */
		gn_recorder_waiting(gn_world_recorder(c->world), 1);
		verdict = gn_world_check_wait(c->world, started, &lost);

		if (verdict) {
			*err = lost;
			return verdict;
		}
		nanosleep(&pause, NULL);
	} while (gn_clock_ns() - started < gn_world_failure_reason_ns(c->world));
	/* the others would wait for this rank, which does not go on */
	gn_world_give_up(c->world, err->text);
	return status;
}

enum gn_status gn_nccl_settle(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err)
{
	if (status && !c->status)
		c->status = diagnose(c, status, &c->why);
	if (c->status && err)
		*err = c->why;
	return c->status;
}

/* --- waiting for NCCL --- */

static enum gn_status look(const struct gn_nccl_backend *c, const char *call, int *busy, struct gn_err *err)
{
	ncclResult_t state = ncclSuccess, rc = c->api.get_async_error(c->native, &state);

	if (rc != ncclSuccess)
		return gn_nccl_fail(c, rc, "ncclCommGetAsyncError", err);
	*busy = state == ncclInProgress;
	return state == ncclSuccess || *busy ? GN_OK : gn_nccl_fail(c, state, call, err);
}

enum gn_status gn_nccl_finish(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, uint64_t limit_ns,
				  struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + limit_ns;
	struct timespec pause = {0, PAUSE_NS};
	enum gn_status status = GN_OK;
	int busy = rc == ncclInProgress;

	if (rc != ncclSuccess && !busy)
		return gn_nccl_fail(c, rc, call, err);
	while (!status && busy) {
		status = look(c, call, &busy, err);
		if (!status && busy)
			status = gn_world_check(c->world, err);
		if (!status && busy && gn_clock_ns() > until)
			status = gn_err_set(err, GN_ERR_STALL, "rank %d on %s: %s has not come to an end in %.0f s; "
					    "NCCL_DEBUG=INFO tells more",
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
	status = gn_nccl_finish(c, rc, "ncclAllReduce", GN_NCCL_START_NS, err);
	return status ? status : gn_gpu_call(cudaEventRecord(op->end, c->stream), "cudaEventRecord", c->ordinal, err);
}

static enum gn_status start(struct gn_coll_backend_op *base, void *after, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;

	if (op->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "an allreduce was started again before it was complete");
	if (c->status)
		return gn_nccl_settle(c, c->status, err);
	op->number = gn_recorder_start(gn_world_recorder(c->world), op->kind);
	op->in_flight = 1;
	op->after = after;
	op->started_ns = op->made_ns = gn_clock_ns();
	return gn_nccl_settle(c, launch(c, op, after, &c->why), err);
}

/* Errors of NCCL's own threads are looked for only now and then. */
static enum gn_status poll_end(struct gn_nccl_backend *c, struct nccl_op *op, int look_closer, struct gn_err *err)
{
	cudaError_t code = cudaEventQuery(op->end);
	enum gn_status status = GN_OK;
	int busy;

	if (code == cudaErrorNotReady) {
		(void)cudaGetLastError();
		status = gn_world_check(c->world, err);
		return status || !look_closer ? status : look(c, "ncclAllReduce", &busy, err);
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
		status = gn_nccl_settle(c, c->status ? c->status : poll_end(c, op, 1, &c->why), err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

/* NCCL has it from the start, but while the GPU makes what is to be summed nobody waits for peers. */
static void note_wait(struct gn_nccl_backend *c, struct nccl_op *op)
{
	struct gn_recorder *recorder = gn_world_recorder(c->world);
	uint64_t since_ns;

	if (op->after && cudaEventQuery((cudaEvent_t)op->after) != cudaErrorNotReady) {
		op->after = NULL;
		op->made_ns = gn_clock_ns();
	}
	(void)cudaGetLastError();
	since_ns = gn_clock_ns() - (op->after ? op->started_ns : op->made_ns);
	if (since_ns < (op->after ? MAKING_NS : op->slow_ns))
		gn_recorder_moved(recorder);
	else
		gn_recorder_waiting(recorder, 0);
}

static enum gn_status wait(struct gn_coll_backend_op *base, struct gn_err *err)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;
	struct timespec pause = {0, PAUSE_NS};
	uint64_t looked = gn_clock_ns(), now;
	enum gn_status status = c->status;

	for (unsigned idle = 1; op->in_flight && !status; idle++) {
		now = gn_clock_ns();
		status = poll_end(c, op, now - looked > CHECK_NS, &c->why);
		if (now - looked > CHECK_NS) {
			looked = now;
			note_wait(c, op);
		}
		if (idle % LOOKS == 0 && idle > 16 * LOOKS)
			nanosleep(&pause, NULL);
		else if (idle % LOOKS == 0)
			sched_yield();
	}
	return gn_nccl_settle(c, status, err);
}

static void free_op(struct gn_coll_backend_op *base)
{
	struct nccl_op *op = (struct nccl_op *)base;
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base->carrier;

	if (op->in_flight && !c->status) {
		c->status = gn_err_set(&c->why, GN_ERR_FAILED, "an allreduce was freed before it was complete");
		let_go(c);
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

/* In good order only when nothing is wrong: everything else might wait. */
static void destroy(struct gn_coll_backend *base)
{
	struct gn_nccl_backend *c = (struct gn_nccl_backend *)base;
	int entered = !gn_nccl_enter(c, NULL);

	if (c->native && entered && !c->status && !gn_world_check(c->world, NULL) &&
	    !gn_nccl_finish(c, c->api.finalize(c->native), "ncclCommFinalize", END_NS, NULL)) {
		(void)c->api.destroy(c->native);
		c->native = NULL;
	}
	let_go(c);
	if (c->stream && entered)
		(void)gn_gpu_call(cudaStreamDestroy(c->stream), "cudaStreamDestroy", c->ordinal, NULL);
	free(c);
}

const struct gn_coll_backend_ops gn_nccl_ops = {"nccl", prepare, start, test, wait, free_op, describe, destroy};
