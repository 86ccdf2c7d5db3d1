#include "src/train/plan/gpu_memory.h"
#include "src/train/plan/plan_internal.h"

enum gn_status gn_plan_cuda_create(const struct gn_plan *p, struct gn_plan_device **out, struct gn_err *err)
{
	(void)p;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda, or use --device host");
}

enum gn_status gn_gpu_carrier_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
				     struct gn_coll_backend **out, struct gn_err *err)
{
	(void)comm;
	(void)how;
	(void)ordinal;
	(void)log;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}
