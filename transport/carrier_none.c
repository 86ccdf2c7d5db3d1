#include "transport/carrier_cuda.h"

enum gn_status gn_carrier_cuda_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_memory *memory,
				      struct gn_log *log, struct gn_carrier **out, struct gn_err *err)
{
	(void)comm;
	(void)how;
	(void)ordinal;
	gn_memory_destroy(memory);
	(void)log;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}
