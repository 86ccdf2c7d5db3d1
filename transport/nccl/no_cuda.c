/* In builds without CUDA. */
#include "transport/coll/coll_backend.h"

enum gn_status gn_coll_backend_create_gpu(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
					  struct gn_coll_backend **out, struct gn_err *err)
{
	(void)comm;
	(void)how;
	(void)ordinal;
	(void)log;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda");
}
