#include "src/train/gpu_memory.h"
#include "src/train/plan_device.h"

enum gn_status gn_plan_cuda_create(const struct gn_plan *p, struct gn_plan_device **out, struct gn_err *err)
{
	(void)p;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda, or use --device host");
}

enum gn_status gn_gpu_memory_create(int ordinal, struct gn_memory **out, struct gn_err *err)
{
	(void)ordinal;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}
