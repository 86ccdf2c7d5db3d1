#include "transport/nccl/plugin/flush.h"

#include <dlfcn.h>
#include <stddef.h>

/* CUDA driver API 11.3: cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
 * CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER). */
enum { TARGET_CURRENT_CONTEXT = 0, TO_OWNER = 100 };

/* A process with GPU memory has loaded the driver library already. */
enum gn_status gn_flush_gpu(struct gn_err *err)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*flush)(int target, int scope) = NULL;
	int rc = -1;

	if (driver) {
		*(void **)&flush = dlsym(driver, "cuFlushGPUDirectRDMAWrites");
		if (flush)
			rc = flush(TARGET_CURRENT_CONTEXT, TO_OWNER);
		dlclose(driver);
	}
	return rc ? gn_err_set(err, GN_ERR_FAILED, "cannot flush writes to GPU memory (cuFlushGPUDirectRDMAWrites: %d); set "
			       "NCCL_NET_GDR_LEVEL=LOC to disable GPUDirect", rc)
		  : GN_OK;
}
