#include "transport/nccl/coll_backend_cuda.h"
#include "transport/nccl/gpu_call.h"

#include <stdlib.h>

struct copy_engine_cuda {
	struct gn_copy_engine base;
	int ordinal;
	cudaStream_t to_host, to_device;
	cudaEvent_t ends[GN_COPY_ENGINE_SLOTS_MAX]; /* [slot]: the end of its last copy */
};

static enum gn_status check(const struct copy_engine_cuda *c, cudaError_t code, const char *call, struct gn_err *err)
{
	return gn_gpu_call(code, call, c->ordinal, err);
}

/* Makes the GPU the current device of the calling thread. */
static enum gn_status enter(const struct copy_engine_cuda *c, struct gn_err *err)
{
	return check(c, cudaSetDevice(c->ordinal), "cudaSetDevice", err);
}

static enum gn_status pin(struct gn_copy_engine *base, void *host, size_t bytes, struct gn_err *err)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;
	enum gn_status status = enter(c, err);

	if (!status)
		status = check(c, cudaHostRegister(host, bytes, cudaHostRegisterPortable), "cudaHostRegister", err);
	return status ? GN_ERR_UNSUPPORTED : GN_OK;
}

static void unpin(struct gn_copy_engine *base, void *host)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;

	if (!enter(c, NULL))
		(void)check(c, cudaHostUnregister(host), "cudaHostUnregister", NULL);
}

static enum gn_status copy(struct copy_engine_cuda *c, int slot, void *to, const void *from, size_t bytes,
			   enum cudaMemcpyKind kind, cudaStream_t stream, struct gn_err *err)
{
	enum gn_status status = check(c, cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync", err);

	return status ? status : check(c, cudaEventRecord(c->ends[slot], stream), "cudaEventRecord", err);
}

static enum gn_status to_host(struct gn_copy_engine *base, int slot, void *host, const void *device, size_t bytes, void *after,
			      struct gn_err *err)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;
	enum gn_status status = enter(c, err);

	if (!status && after)
		status = check(c, cudaStreamWaitEvent(c->to_host, (cudaEvent_t)after, 0), "cudaStreamWaitEvent", err);
	return status ? status : copy(c, slot, host, device, bytes, cudaMemcpyDeviceToHost, c->to_host, err);
}

static enum gn_status to_device(struct gn_copy_engine *base, int slot, void *device, const void *host, size_t bytes,
				struct gn_err *err)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;
	enum gn_status status = enter(c, err);

	return status ? status : copy(c, slot, device, host, bytes, cudaMemcpyHostToDevice, c->to_device, err);
}

static enum gn_status poll(struct gn_copy_engine *base, int slot, int *done, struct gn_err *err)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;
	cudaError_t code = cudaEventQuery(c->ends[slot]);
	enum gn_status status = code == cudaErrorNotReady ? GN_OK : check(c, code, "a copy between GPU and host", err);

	if (code == cudaErrorNotReady)
		(void)cudaGetLastError();
	if (!status)
		*done = code == cudaSuccess;
	return status;
}

static void destroy(struct gn_copy_engine *base)
{
	struct copy_engine_cuda *c = (struct copy_engine_cuda *)base;

	if (!enter(c, NULL)) {
		for (int i = 0; i < GN_COPY_ENGINE_SLOTS_MAX; i++)
			if (c->ends[i])
				(void)check(c, cudaEventDestroy(c->ends[i]), "cudaEventDestroy", NULL);
		if (c->to_host)
			(void)check(c, cudaStreamDestroy(c->to_host), "cudaStreamDestroy", NULL);
		if (c->to_device)
			(void)check(c, cudaStreamDestroy(c->to_device), "cudaStreamDestroy", NULL);
	}
	free(c);
}

static enum gn_status make_streams(struct copy_engine_cuda *c, struct gn_err *err)
{
	enum gn_status status = enter(c, err);

	if (!status)
		status = check(c, cudaStreamCreateWithFlags(&c->to_host, cudaStreamNonBlocking), "cudaStreamCreate", err);
	if (!status)
		status = check(c, cudaStreamCreateWithFlags(&c->to_device, cudaStreamNonBlocking), "cudaStreamCreate", err);
	for (int i = 0; i < GN_COPY_ENGINE_SLOTS_MAX && !status; i++)
		status = check(c, cudaEventCreateWithFlags(&c->ends[i], cudaEventDisableTiming), "cudaEventCreate", err);
	return status;
}

enum gn_status gn_copy_engine_cuda_create(int ordinal, struct gn_copy_engine **out, struct gn_err *err)
{
	static const struct gn_copy_engine_ops ops = {pin, unpin, to_host, to_device, poll, destroy};
	struct copy_engine_cuda *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy engine");
	c->base.ops = &ops;
	c->ordinal = ordinal;
	status = make_streams(c, err);
	if (status) {
		destroy(&c->base);
		return status;
	}
	*out = &c->base;
	return GN_OK;
}
