/* NCCL, loaded when it is wanted: a build with it runs where there is none. Only in builds with CUDA and NCCL.
 *
 * Thread safety: no state but the library's.
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

/* From where the loader looks, else from the CUDA folder that this was built with. GN_ERR_UNSUPPORTED when there is none, when
 * it is another major version, or lacks a function. Never unloaded: NCCL leaves threads. */
enum gn_status gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err);

#endif
