/* A rank that sums GPU memory with others: by what is named, several sums in flight, each checked.
 * usage: comm_probe nccl|ucx|auto [RANK [STALL_MS]]    RANK ends without a word before its second round (-1: nobody); waiting for
 * others so long is a stall
 * Without a GPU all ranks end with the same error. Exit codes as gannet's; 99: a wrong sum. */
#include "src/base/log.h"
#include "tests/transport/exit_code.h"
#include "transport/nccl/coll_backend_cuda.h"
#include "transport/nccl/gpu_call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define ROUNDS 3
#define OPS 4
static const size_t counts[OPS] = {1, 1000, 300001, 5000000};

struct run {
	struct gn_comm *comm;
	struct gn_coll_backend *carrier;
	struct gn_coll_backend_op *ops[OPS];
	int ordinal;
	cudaStream_t stream;
	cudaEvent_t uploaded;
	float *device[OPS], *host;
};

static enum gn_status call(const struct run *r, cudaError_t code, const char *name, struct gn_err *err)
{
	return gn_gpu_call(code, name, r->ordinal, err);
}

static enum gn_status make_buffers(struct run *r, struct gn_err *err)
{
	enum gn_status status = call(r, cudaSetDevice(r->ordinal), "cudaSetDevice", err);

	r->host = malloc(counts[OPS - 1] * sizeof *r->host);
	if (!status && !r->host)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	if (!status)
		status = call(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "cudaStreamCreate", err);
	if (!status)
		status = call(r, cudaEventCreateWithFlags(&r->uploaded, cudaEventDisableTiming), "cudaEventCreate", err);
	for (int i = 0; i < OPS && !status; i++) {
		status = call(r, cudaMalloc((void **)&r->device[i], counts[i] * sizeof(float)), "cudaMalloc", err);
		if (!status)
			status = gn_coll_backend_prepare(r->carrier, r->device[i], counts[i], GN_F32, GN_SUM, &r->ops[i], err);
	}
	return status;
}

static float given(int rank, size_t i, int op)
{
	return (float)((i * 7 + (size_t)rank * 13 + (size_t)op * 5) % 101) - 50;
}

/* The sum may begin when the upload is over, which nobody waits for. */
static enum gn_status upload_and_start(struct run *r, int op, struct gn_err *err)
{
	size_t bytes = counts[op] * sizeof *r->host;
	enum gn_status status;

	for (size_t i = 0; i < counts[op]; i++)
		r->host[i] = given(gn_comm_rank(r->comm), i, op);
	/* it is not pinned: the call reads it */
	status = call(r, cudaMemcpyAsync(r->device[op], r->host, bytes, cudaMemcpyHostToDevice, r->stream), "cudaMemcpyAsync", err);
	if (!status)
		status = call(r, cudaEventRecord(r->uploaded, r->stream), "cudaEventRecord", err);
	return status ? status : gn_coll_backend_start(r->ops[op], r->uploaded, err);
}

static enum gn_status finish_and_check(struct run *r, int op, struct gn_err *err)
{
	enum gn_status status = gn_coll_backend_wait(r->ops[op], err);
	int size = gn_comm_size(r->comm);

	if (!status)
		status = call(r, cudaMemcpy(r->host, r->device[op], counts[op] * sizeof *r->host, cudaMemcpyDeviceToHost),
			      "cudaMemcpy", err);
	for (size_t i = 0; !status && i < counts[op]; i++) {
		float sum = 0;

		for (int q = 0; q < size; q++)
			sum += given(q, i, op);
		if (r->host[i] == sum)
			continue;
		fprintf(stderr, "WRONG: element %zu of %zu is %g, not %g\n", i, counts[op], (double)r->host[i], (double)sum);
		_exit(WRONG);
	}
	return status;
}

static enum gn_status run(struct run *r, const char *how, int lost, struct gn_log *log, struct gn_err *err)
{
	int count = 0, local = gn_world_local_rank(gn_comm_world(r->comm));
	enum gn_status status;

	/* none: the carrier finds that out, too, and tells the others */
	if (cudaGetDeviceCount(&count) != cudaSuccess || !count)
		count = 1;
	r->ordinal = local % count;
	status = gn_coll_backend_cuda_create(r->comm, how, r->ordinal, NULL, log, &r->carrier, err);
	if (!status)
		status = make_buffers(r, err);
	for (int round = 0; round < ROUNDS && !status; round++) {
		if (round == 1 && lost == gn_comm_rank(r->comm))
			_exit(0);
		for (int i = 0; i < OPS && !status; i++)
			status = upload_and_start(r, i, err);
		for (int i = 0; i < OPS && !status; i++)
			status = finish_and_check(r, i, err);
	}
	if (!status)
		printf("rank %d: %d sums of GPU memory by %s are right\n", gn_comm_rank(r->comm), ROUNDS * OPS,
		       gn_coll_backend_name(r->carrier));
	return status;
}

static void release(struct run *r)
{
	for (int i = 0; i < OPS; i++) {
		gn_coll_backend_free(r->ops[i]);
		if (r->device[i])
			(void)cudaFree(r->device[i]);
	}
	gn_coll_backend_destroy(r->carrier);
	if (r->uploaded)
		(void)cudaEventDestroy(r->uploaded);
	if (r->stream)
		(void)cudaStreamDestroy(r->stream);
	free(r->host);
	gn_comm_destroy(r->comm);
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = "auto"};
	struct gn_world_options world_options = {.limits = {.stall_s = argc > 3 ? atoi(argv[3]) / 1e3 : 0}};
	struct gn_world *world = NULL;
	struct gn_log *log = NULL;
	struct run r = {0};
	struct gn_err err;
	enum gn_status status;

	if (argc < 2)
		return 2;
	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	status = gn_world_create(&world_options, log, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, log, &r.comm, &err);
	if (!status)
		gn_world_set_phase(world, "probing", 600000);
	if (!status)
		status = run(&r, argv[1], argc > 2 ? atoi(argv[2]) : -1, log, &err);
	release(&r);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return status ? exit_code(&err) : 0;
}
