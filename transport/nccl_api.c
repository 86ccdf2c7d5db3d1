#include "transport/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Of 22809 (2.28.9) and, before 2.9, of 2804 (2.8.4). */
static int major_of(int version)
{
	return version >= 10000 ? version / 10000 : version / 1000;
}

static void *open_library(struct gn_err *err)
{
	static const char *const places[] = {"libnccl.so.2", GN_CUDA_FOLDER "/lib/libnccl.so.2",
					     GN_CUDA_FOLDER "/lib64/libnccl.so.2"};
	char first[256] = "";

	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		void *library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
		const char *why = library ? NULL : dlerror();

		if (library)
			return library;
		if (!i && why)
			snprintf(first, sizeof first, "%s", why);
	}
	gn_err_set(err, GN_ERR_NOT_FOUND, 
		   "no NCCL: %s; install libnccl2, or name its folder in LD_LIBRARY_PATH, or use --comm ucx", first);
	return NULL;
}

static enum gn_status find(void *library, const char *symbol, void *function, struct gn_err *err)
{
	void *at = dlsym(library, symbol);

	if (!at)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this NCCL has no %s: install 2.14 or newer", symbol);
	/* POSIX lets an object pointer hold a function's */
	memcpy(function, &at, sizeof at);
	return GN_OK;
}

enum gn_status gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err)
{
	struct gn_nccl_api api = {.library = open_library(err)};
	enum gn_status status = GN_OK;
	ncclResult_t rc;

	if (!api.library)
		return GN_ERR_NOT_FOUND;
#define X(member, symbol)                                                                                              \
	if (!status)                                                                                                   \
		status = find(api.library, #symbol, &api.member, err);
	GN_NCCL_FUNCTIONS(X)
#undef X
	if (status)
		return status;
	rc = api.get_version(&api.version);
	if (rc != ncclSuccess)
		return gn_err_set(err, GN_ERR_FAILED, "ncclGetVersion: %s", api.get_error_string(rc));
	if (major_of(api.version) != NCCL_MAJOR)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this NCCL is version %d, this build was made for %d.%d", api.version,
				  NCCL_MAJOR, NCCL_MINOR);
	*out = api;
	return GN_OK;
}
