#include "transport/nccl/nccl_api.h"

#include "src/base/dynlib.h"

enum gn_status gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err)
{
	struct gn_nccl_api api = {0};
	const char *missing = NULL;
	char why[256];
	ncclResult_t rc;

	api.library = gn_dynlib_open("libnccl.so.2", GN_CUDA_FOLDER, why, sizeof why);
	if (!api.library)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "NCCL not found: %s; install libnccl2, or add its folder to LD_LIBRARY_PATH, or use --comm ucx",
				  why);
#define X(member, symbol) missing = gn_dynlib_find(api.library, #symbol, &api.member) ? missing : #symbol;
	GN_NCCL_FUNCTIONS(X)
#undef X
	if (missing)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this NCCL lacks %s: install 2.14 or newer", missing);
	rc = api.get_version(&api.version);
	if (rc != ncclSuccess)
		return gn_err_set(err, GN_ERR_FAILED, "ncclGetVersion: %s", api.get_error_string(rc));
	/* version codes: 22809 is 2.28.9; before 2.9, 2804 is 2.8.4 */
	if (api.version / (api.version >= 10000 ? 10000 : 1000) != NCCL_MAJOR)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this NCCL is version %d, but this build is for %d.%d", api.version,
				  NCCL_MAJOR, NCCL_MINOR);
	*out = api;
	return GN_OK;
}
