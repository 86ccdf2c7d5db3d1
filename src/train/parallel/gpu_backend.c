#include "src/train/parallel/gpu_backend.h"

#include "src/config.h"

#ifdef HAVE_CUDA

#include "kernels/cuda/kernels.h"
#include "transport/nccl/nccl.h"

static enum gn_status add(struct gn_stream *s, enum gn_dtype type, enum gn_reduction reduction, void *to, const void *from, size_t count,
			  struct gn_err *err)
{
	enum gn_cuda_type found = type == GN_F32 ? GN_CUDA_F32 : type == GN_F16 ? GN_CUDA_F16 : GN_CUDA_BF16;

	if ((type != GN_F32 && type != GN_F16 && type != GN_BF16) || reduction != GN_SUM)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "UCX in GPU memory has no %s of %s, sums of f32, f16 and bf16 alone",
				  gn_reduction_name(reduction), gn_dtype_name(type));
	return gn_cuda_add(gn_cuda_stream_of(s), found, to, from, 0, to, count, err);
}

enum gn_status gn_gpu_attach(struct gn_comm *comm, struct gn_device *gpu, const char *how, struct gn_log *log, struct gn_err *err)
{
	struct gn_comm_device d = {.device = gpu, .how = how, .reduce = add, .library = gn_nccl_create};

	return gn_comm_attach(comm, &d, log, err);
}

#else

enum gn_status gn_gpu_attach(struct gn_comm *comm, struct gn_device *gpu, const char *how, struct gn_log *log, struct gn_err *err)
{
	(void)comm;
	(void)gpu;
	(void)how;
	(void)log;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}

#endif
