/* Makes data that a network device has written to GPU memory visible to the GPU. For threads whose current CUDA context is that of
 * the memory, as NCCL's; blocks for microseconds. GN_ERR_FAILED: no CUDA driver, or it does not support this. Never run on a GPU
 * yet. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_FLUSH_H
#define GN_TRANSPORT_NCCL_PLUGIN_FLUSH_H

#include "src/base/status.h"

enum gn_status gn_flush_gpu(struct gn_err *err);

#endif
