#include "transport/nccl/coll_backend_cuda.h"

#include "transport/coll/agree.h"
#include "transport/nccl/gpu_call.h"

#include <string.h>

/* The memory that gn_coll_backend_choose() needs. */
#define MEASURE_BYTES (16u << 20)

static enum gn_status create_staged(struct gn_comm *comm, int ordinal, struct gn_coll_backend **out, struct gn_err *err)
{
	struct gn_copy_engine *copy_engine = NULL;
	struct gn_err why;
	enum gn_status own = gn_copy_engine_cuda_create(ordinal, &copy_engine, &why), status = gn_agree_status(comm, own, &why);

	if (!status)
		return gn_coll_backend_staged_create(comm, copy_engine, NULL, out, err);
	if (!own)
		gn_copy_engine_destroy(copy_engine);
	if (err)
		*err = why;
	return status;
}

/* Directly from GPU memory if UCX supports it. Takes ownership of memory. */
static enum gn_status create_ucx(struct gn_comm *comm, int ordinal, struct gn_reduce_executor *memory, struct gn_coll_backend **out,
				 struct gn_err *err)
{
	int direct = 0;
	enum gn_status status = memory ? gn_comm_takes_gpu_memory(comm, &direct, err) : GN_OK;

	if (!status && direct)
		return gn_coll_backend_direct_create(comm, memory, out, err);
	gn_reduce_executor_destroy(memory);
	return status ? status : create_staged(comm, ordinal, out, err);
}

static enum gn_status alloc_zeroes(int ordinal, void **out, struct gn_err *err)
{
	enum gn_status status = gn_gpu_call(cudaSetDevice(ordinal), "cudaSetDevice", ordinal, err);

	if (!status)
		status = gn_gpu_call(cudaMalloc(out, MEASURE_BYTES), "cudaMalloc", ordinal, err);
	if (!status)
		status = gn_gpu_call(cudaMemset(*out, 0, MEASURE_BYTES), "cudaMemset", ordinal, err);
	return status ? status : gn_gpu_call(cudaDeviceSynchronize(), "cudaDeviceSynchronize", ordinal, err);
}

static enum gn_status choose(struct gn_comm *comm, int ordinal, struct gn_coll_backend *const *both, struct gn_log *log, int *best,
			     struct gn_err *err)
{
	void *memory = NULL;
	struct gn_err why;
	enum gn_status status = gn_agree_status(comm, alloc_zeroes(ordinal, &memory, &why), &why);

	if (status && err)
		*err = why;
	if (!status)
		status = gn_coll_backend_choose(comm, both, 2, memory, MEASURE_BYTES, log, best, err);
	if (memory)
		(void)gn_gpu_call(cudaFree(memory), "cudaFree", ordinal, NULL);
	return status;
}

/* Errors that mean that NCCL is not available; all ranks have agreed on them. */
static int is_unavailable(enum gn_status status)
{
	return status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED || status == GN_ERR_MISMATCH;
}

/* Takes ownership of memory. */
static enum gn_status create_best(struct gn_comm *comm, int ordinal, struct gn_reduce_executor *memory, struct gn_log *log,
				  struct gn_coll_backend **out, struct gn_err *err)
{
	struct gn_coll_backend *both[2] = {NULL, NULL};
	struct gn_err why;
	enum gn_status status = gn_coll_backend_nccl_create(comm, ordinal, &both[0], &why);
	int best = 1;

	if (status && !is_unavailable(status)) {
		gn_reduce_executor_destroy(memory);
		if (err)
			*err = why;
		return status;
	}
	if (status && gn_comm_rank(comm) == 0)
		gn_log_info(log, "GPU memory is reduced by ucx: %s", why.text);
	status = create_ucx(comm, ordinal, memory, &both[1], err);
	if (!status && both[0])
		status = choose(comm, ordinal, both, log, &best, err);
	if (status) {
		gn_coll_backend_destroy(both[0]);
		gn_coll_backend_destroy(both[1]);
		return status;
	}
	gn_coll_backend_destroy(both[!best]);
	*out = both[best];
	return GN_OK;
}

enum gn_status gn_coll_backend_cuda_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_reduce_executor *memory,
					   struct gn_log *log, struct gn_coll_backend **out, struct gn_err *err)
{
	struct gn_coll_backend *c = NULL;
	struct gn_strbuf text;
	enum gn_status status;

	if (!strcmp(how, "nccl")) {
		gn_reduce_executor_destroy(memory);
		status = gn_coll_backend_nccl_create(comm, ordinal, &c, err);
	} else if (!strcmp(how, "ucx")) {
		status = create_ucx(comm, ordinal, memory, &c, err);
	} else {
		status = create_best(comm, ordinal, memory, log, &c, err);
	}
	if (status)
		return status;
	gn_strbuf_init(&text);
	gn_coll_backend_describe(c, &text);
	if (gn_comm_rank(comm) == 0)
		gn_log_info(log, "GPU memory: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	*out = c;
	return GN_OK;
}
