/* With GANNET_EMULATED_DIRECT UCX reaches the memory of a GPU that is emulated, for it is the host's; linked with --wrap. */
#include "transport/coll/comm.h"

#include <stdlib.h>

enum gn_status __real_gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err);
enum gn_status __wrap_gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err);

enum gn_status __wrap_gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err)
{
	enum gn_status status = __real_gn_comm_takes_gpu_memory(c, yes, err);

	if (getenv("GANNET_EMULATED_DIRECT"))
		*yes = 1;
	return status;
}
