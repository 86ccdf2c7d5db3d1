/* A reduce executor for UCX in GPU memory: scratch, additions by our own kernel on its own stream, and events. */
#include "src/train/parallel/gpu_backend.h"

#include "src/config.h"

#ifdef HAVE_CUDA

#include "kernels/cuda/kernels.h"
#include "transport/coll/agree.h"
#include "transport/nccl/coll_backend_cuda.h"

#include <stdlib.h>

/* An event is used again after so many marks: a mark that old has been reached when the newer one has. */
enum { MARKS = 256 };

/* Scratch of one collective. */
struct piece {
	struct piece *next;
	struct gn_cuda_arena *arena;
	void *memory;
};

struct gpu_executor {
	struct gn_reduce_executor base;
	struct gn_cuda_device *device;
	struct gn_cuda_stream *stream;
	struct gn_cuda_event *events[MARKS];
	uint64_t marks;
	struct piece *pieces;
};

static struct gpu_executor *of(struct gn_reduce_executor *m)
{
	return (struct gpu_executor *)m;
}

static enum gn_status take(struct gn_reduce_executor *m, size_t bytes, void **out, struct gn_err *err)
{
	struct piece *p = calloc(1, sizeof *p);
	enum gn_status status;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	status = gn_cuda_arena_create(of(m)->device, bytes + GN_CUDA_ALIGN_BYTES, &p->arena, err);
	if (status) {
		free(p);
		return status;
	}
	p->memory = gn_cuda_arena_take(p->arena, bytes);
	p->next = of(m)->pieces;
	of(m)->pieces = p;
	*out = p->memory;
	return GN_OK;
}

static void give(struct gn_reduce_executor *m, void *memory)
{
	struct piece **at = &of(m)->pieces, *p;

	while (*at && (*at)->memory != memory)
		at = &(*at)->next;
	p = *at;
	if (!p)
		return;
	/* what was queued may still work on it */
	(void)gn_cuda_stream_wait(of(m)->stream, NULL);
	*at = p->next;
	gn_cuda_arena_destroy(p->arena);
	free(p);
}

static int find_type(enum gn_dtype type, enum gn_cuda_type *out)
{
	*out = type == GN_F32 ? GN_CUDA_F32 : type == GN_F16 ? GN_CUDA_F16 : GN_CUDA_BF16;
	return type == GN_F32 || type == GN_F16 || type == GN_BF16;
}

static enum gn_status check(const struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, struct gn_err *err)
{
	enum gn_cuda_type found;

	(void)m;
	if (find_type(type, &found) && reduction == GN_SUM)
		return GN_OK;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "UCX in GPU memory has no %s of %s, sums of f32, f16 and bf16 alone",
			  gn_reduction_name(reduction), gn_dtype_name(type));
}

static enum gn_status reduce(struct gn_reduce_executor *m, enum gn_dtype type, enum gn_reduction reduction, void *to,
			     const void *from, size_t count, struct gn_err *err)
{
	enum gn_cuda_type found;
	enum gn_status status = check(m, type, reduction, err);

	if (status)
		return status;
	find_type(type, &found);
	return gn_cuda_add(of(m)->stream, found, to, from, 0, to, count, err);
}

static enum gn_status copy(struct gn_reduce_executor *m, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	return gn_cuda_copy(of(m)->stream, to, from, bytes, err);
}

static enum gn_status mark(struct gn_reduce_executor *m, uint64_t *out, struct gn_err *err)
{
	struct gpu_executor *g = of(m);
	struct gn_cuda_event **event = &g->events[g->marks % MARKS];
	enum gn_status status = *event ? GN_OK : gn_cuda_event_create(g->device, 0, event, err);

	*out = g->marks++;
	return status ? status : gn_cuda_event_record(*event, g->stream, err);
}

static enum gn_status reached(struct gn_reduce_executor *m, uint64_t mark, int *yes, struct gn_err *err)
{
	return gn_cuda_event_done(of(m)->events[mark % MARKS], yes, err);
}

static enum gn_status happened(struct gn_reduce_executor *m, void *event, int *yes, struct gn_err *err)
{
	return gn_cuda_event_native_done(of(m)->device, event, yes, err);
}

static void destroy(struct gn_reduce_executor *m)
{
	struct gpu_executor *g = of(m);

	if (g->stream)
		(void)gn_cuda_stream_wait(g->stream, NULL);
	while (g->pieces)
		give(m, g->pieces->memory);
	for (int i = 0; i < MARKS; i++)
		gn_cuda_event_destroy(g->events[i]);
	gn_cuda_stream_destroy(g->stream);
	gn_cuda_device_destroy(g->device);
	free(g);
}

static enum gn_status create_executor(int ordinal, struct gn_reduce_executor **out, struct gn_err *err)
{
	static const struct gn_reduce_executor_ops ops = {take, give, check, reduce, copy, mark, reached, happened, destroy};
	struct gpu_executor *g = calloc(1, sizeof *g);
	enum gn_status status;

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for collectives on a GPU");
	g->base.ops = &ops;
	status = gn_cuda_device_create(ordinal, &g->device, err);
	if (!status)
		status = gn_cuda_stream_create(g->device, &g->stream, err);
	if (status) {
		destroy(&g->base);
		return status;
	}
	*out = &g->base;
	return GN_OK;
}

enum gn_status gn_gpu_backend_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
				     struct gn_coll_backend **out, struct gn_err *err)
{
	struct gn_reduce_executor *memory = NULL;
	enum gn_status status = gn_agree_status(comm, create_executor(ordinal, &memory, err), err);

	if (!status)
		return gn_coll_backend_cuda_create(comm, how, ordinal, memory, log, out, err);
	gn_reduce_executor_destroy(memory);
	return status;
}

#else

enum gn_status gn_gpu_backend_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
				     struct gn_coll_backend **out, struct gn_err *err)
{
	(void)comm;
	(void)how;
	(void)ordinal;
	(void)log;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}

#endif
