#include "transport/nccl/coll_backend_cuda.h"
#include "transport/nccl/gpu_call.h"

#include <stdlib.h>

struct copier_cuda {
	struct gn_copy_engine base;
	int ordinal;
	cudaStream_t down, up;
	cudaEvent_t ends[GN_COPY_ENGINE_SLOTS_MAX]; /* of each slot's last copy */
};

static enum gn_status check(const struct copier_cuda *c, cudaError_t code, const char *call, struct gn_err *err)
{
	return gn_gpu_call(code, call, c->ordinal, err);
}

/* The current device belongs to the thread. */
static enum gn_status enter(const struct copier_cuda *c, struct gn_err *err)
{
	return check(c, cudaSetDevice(c->ordinal), "cudaSetDevice", err);
}

static enum gn_status pin(struct gn_copy_engine *base, void *host, size_t bytes, struct gn_err *err)
{
	struct copier_cuda *c = (struct copier_cuda *)base;
	enum gn_status status = enter(c, err);

	if (!status)
		status = check(c, cudaHostRegister(host, bytes, cudaHostRegisterPortable), "cudaHostRegister", err);
	return status ? GN_ERR_UNSUPPORTED : GN_OK;
}

static void unpin(struct gn_copy_engine *base, void *host)
{
	struct copier_cuda *c = (struct copier_cuda *)base;

	if (!enter(c, NULL))
		(void)check(c, cudaHostUnregister(host), "cudaHostUnregister", NULL);
}

static enum gn_status copy(struct copier_cuda *c, int slot, void *to, const void *from, size_t bytes,
			   enum cudaMemcpyKind kind, cudaStream_t stream, struct gn_err *err)
{
	enum gn_status status = check(c, cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync", err);

	return status ? status : check(c, cudaEventRecord(c->ends[slot], stream), "cudaEventRecord", err);
}

static enum gn_status down(struct gn_copy_engine *base, int slot, void *host, const void *device, size_t bytes, void *after,
			   struct gn_err *err)
{
	struct copier_cuda *c = (struct copier_cuda *)base;
	enum gn_status status = enter(c, err);

	if (!status && after)
		status = check(c, cudaStreamWaitEvent(c->down, (cudaEvent_t)after, 0), "cudaStreamWaitEvent", err);
	return status ? status : copy(c, slot, host, device, bytes, cudaMemcpyDeviceToHost, c->down, err);
}

static enum gn_status up(struct gn_copy_engine *base, int slot, void *device, const void *host, size_t bytes, struct gn_err *err)
{
	struct copier_cuda *c = (struct copier_cuda *)base;
	enum gn_status status = enter(c, err);

	return status ? status : copy(c, slot, device, host, bytes, cudaMemcpyHostToDevice, c->up, err);
}

static enum gn_status poll(struct gn_copy_engine *base, int slot, int *done, struct gn_err *err)
{
	struct copier_cuda *c = (struct copier_cuda *)base;
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
	struct copier_cuda *c = (struct copier_cuda *)base;

	if (!enter(c, NULL)) {
		for (int i = 0; i < GN_COPY_ENGINE_SLOTS_MAX; i++)
			if (c->ends[i])
				(void)check(c, cudaEventDestroy(c->ends[i]), "cudaEventDestroy", NULL);
		if (c->down)
			(void)check(c, cudaStreamDestroy(c->down), "cudaStreamDestroy", NULL);
		if (c->up)
			(void)check(c, cudaStreamDestroy(c->up), "cudaStreamDestroy", NULL);
	}
	free(c);
}

static enum gn_status make_streams(struct copier_cuda *c, struct gn_err *err)
{
	enum gn_status status = enter(c, err);

	if (!status)
		status = check(c, cudaStreamCreateWithFlags(&c->down, cudaStreamNonBlocking), "cudaStreamCreate", err);
	if (!status)
		status = check(c, cudaStreamCreateWithFlags(&c->up, cudaStreamNonBlocking), "cudaStreamCreate", err);
	for (int i = 0; i < GN_COPY_ENGINE_SLOTS_MAX && !status; i++)
		status = check(c, cudaEventCreateWithFlags(&c->ends[i], cudaEventDisableTiming), "cudaEventCreate", err);
	return status;
}

enum gn_status gn_copy_engine_cuda_create(int ordinal, struct gn_copy_engine **out, struct gn_err *err)
{
	static const struct gn_copy_engine_ops ops = {pin, unpin, down, up, poll, destroy};
	struct copier_cuda *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copier");
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
