/* The carrier of a GPU that is emulated: UCX, staged by threads that copy as a GPU's engines do, or with GANNET_EMULATED_DIRECT
 * straight from its memory. */
#include "tests/transport/copier_host.h"
#include "transport/carrier_cuda.h"

#include <stdlib.h>
#include <string.h>

enum gn_status gn_carrier_cuda_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_memory *memory,
				      struct gn_log *log, struct gn_carrier **out, struct gn_err *err)
{
	struct copier_host_options options = {.seed = (uint64_t)ordinal + 1};
	struct gn_copier *copier;
	enum gn_status status;

	(void)log;
	/* UCX reaches what is emulated, for it is the host's */
	if (getenv("GANNET_EMULATED_DIRECT"))
		return gn_carrier_direct_create(comm, memory, out, err);
	gn_memory_destroy(memory);
	if (!strcmp(how, "nccl"))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the emulation has no NCCL");
	status = copier_host_create(&options, &copier, err);
	return status ? status : gn_carrier_staged_create(comm, copier, NULL, out, err);
}
