/* NCCL's functions, loaded at run time: a build with NCCL also runs on hosts without it. Only in builds with CUDA and NCCL.
 *
 * Thread safety: any thread; the only state is NCCL's.
 */
#ifndef GN_TRANSPORT_NCCL_NCCL_API_H
#define GN_TRANSPORT_NCCL_NCCL_API_H

#include "src/base/status.h"

#include <nccl.h>

/* X(member, symbol) */
#define GN_NCCL_FUNCTIONS(X)                                                                                           \
	X(get_version, ncclGetVersion)                                                                                 \
	X(get_unique_id, ncclGetUniqueId)                                                                              \
	X(init_rank_config, ncclCommInitRankConfig)                                                                    \
	X(finalize, ncclCommFinalize)                                                                                  \
	X(destroy, ncclCommDestroy)                                                                                    \
	X(abort, ncclCommAbort)                                                                                        \
	X(get_async_error, ncclCommGetAsyncError)                                                                      \
	X(get_error_string, ncclGetErrorString)                                                                        \
	X(get_last_error, ncclGetLastError)                                                                            \
	X(all_reduce, ncclAllReduce)

struct gn_nccl_api {
	void *library;
#define X(member, symbol) __typeof__(symbol) *member;
	GN_NCCL_FUNCTIONS(X)
#undef X
	int version;
};

/* Loads NCCL from the loader's search path, else from the CUDA folder of the build. GN_ERR_UNSUPPORTED when it is not found, has
 * another major version, or lacks a function. It is never unloaded, because it leaves threads. */
enum gn_status gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err);

#endif
