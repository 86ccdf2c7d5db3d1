/* Makes what a network card has written to GPU memory visible to the GPU. Any thread whose current CUDA context is that
 * memory's, as NCCL's are; blocks for microseconds. GN_ERR_FAILED: no driver, or it cannot. Never run on a GPU yet. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_FLUSH_H
#define GN_TRANSPORT_NCCL_PLUGIN_FLUSH_H

#include "src/base/status.h"

enum gn_status gn_flush_gpu(struct gn_err *err);

#endif
