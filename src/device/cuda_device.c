#include "src/device/cuda_native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum gn_status status_of(cudaError_t code)
{
	switch (code) {
	case cudaErrorMemoryAllocation:
		return GN_ERR_NO_MEMORY;
	case cudaErrorNoDevice:
		return GN_ERR_NOT_FOUND;
	case cudaErrorInsufficientDriver:
	case cudaErrorNoKernelImageForDevice:
	case cudaErrorUnsupportedPtxVersion:
	case cudaErrorSystemDriverMismatch:
		return GN_ERR_UNSUPPORTED;
	case cudaErrorInvalidDevice:
		return GN_ERR_USAGE;
	default:
		return GN_ERR_FAILED;
	}
}

/* What to do about it, where that is known. */
static const char *advice(cudaError_t code)
{
	switch (code) {
	case cudaErrorNoDevice:
		return "; look at nvidia-smi, at CUDA_VISIBLE_DEVICES and whether the job asked for a GPU (--gres=gpu:1)";
	case cudaErrorInsufficientDriver:
	case cudaErrorUnsupportedPtxVersion:
	case cudaErrorSystemDriverMismatch:
		return "; the driver is older than this build's CUDA: update it, or build with an older toolkit";
	case cudaErrorNoKernelImageForDevice:
		return "; this build has no code for this GPU: configure with --with-cuda-arch=native";
	case cudaErrorMemoryAllocation:
		return "; use a smaller batch, or free the GPU of other processes (nvidia-smi)";
	case cudaErrorIllegalAddress:
	case cudaErrorMisalignedAddress:
	case cudaErrorLaunchFailure:
		return "; nothing more runs on this GPU in this process; compute-sanitizer names the kernel";
	default:
		return "";
	}
}

enum gn_status gn_cuda_check(cudaError_t code, const char *call, int ordinal, struct gn_err *err)
{
	char where[32] = "cuda";

	if (code == cudaSuccess)
		return GN_OK;
	/* what is not sticky would be reported once more by the next look at the last error */
	(void)cudaGetLastError();
	if (ordinal >= 0)
		snprintf(where, sizeof where, "cuda:%d", ordinal);
	return gn_err_set(err, status_of(code), "%s: %s: %s (%s)%s", where, call, cudaGetErrorString(code),
			  cudaGetErrorName(code), advice(code));
}

enum gn_status gn_cuda_enter(const struct gn_cuda_device *d, struct gn_err *err)
{
	return gn_cuda_check(cudaSetDevice(d->info.ordinal), "cudaSetDevice", d->info.ordinal, err);
}

enum gn_status gn_cuda_device_count(int *out, struct gn_err *err)
{
	int driver = 0, runtime = 0, count = 0;
	cudaError_t code;
	enum gn_status status;

	if ((status = gn_cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", -1, err)))
		return status;
	if (driver == 0)
		return gn_err_set(err, GN_ERR_NOT_FOUND,
				  "cuda: there is no NVIDIA driver here (libcuda.so.1); "
				  "install it, or use --device host");
	if ((status = gn_cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", -1, err)))
		return status;
	code = cudaGetDeviceCount(&count);
	if (code == cudaErrorInsufficientDriver) {
		(void)cudaGetLastError();
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "cuda: the driver knows CUDA up to %d.%d, this build needs %d.%d: "
				  "update the driver, or build with an older toolkit",
				  driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	}
	if (code == cudaSuccess && count == 0)
		code = cudaErrorNoDevice;
	if ((status = gn_cuda_check(code, "cudaGetDeviceCount", -1, err)))
		return status;
	*out = count;
	return GN_OK;
}

static enum gn_status attribute(enum cudaDeviceAttr which, const char *name, int ordinal, int *out, struct gn_err *err)
{
	char call[96];

	snprintf(call, sizeof call, "cudaDeviceGetAttribute(%s)", name);
	return gn_cuda_check(cudaDeviceGetAttribute(out, which, ordinal), call, ordinal, err);
}

static enum gn_status read_info(int ordinal, struct gn_cuda_info *info, struct gn_err *err)
{
	struct cudaDeviceProp properties;
	enum gn_status status;
	int l2 = 0;

	memset(&properties, 0, sizeof properties);
	info->ordinal = ordinal;
	if ((status = gn_cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties", ordinal,
				    err)) ||
	    (status = attribute(cudaDevAttrComputeCapabilityMajor, "major", ordinal, &info->major, err)) ||
	    (status = attribute(cudaDevAttrComputeCapabilityMinor, "minor", ordinal, &info->minor, err)) ||
	    (status = attribute(cudaDevAttrMultiProcessorCount, "multiprocessors", ordinal, &info->multiprocessors,
				err)) ||
	    (status = attribute(cudaDevAttrL2CacheSize, "L2 size", ordinal, &l2, err)) ||
	    (status = gn_cuda_check(cudaDeviceGetPCIBusId(info->pci, sizeof info->pci, ordinal),
				    "cudaDeviceGetPCIBusId", ordinal, err)) ||
	    (status = gn_cuda_check(cudaDriverGetVersion(&info->driver), "cudaDriverGetVersion", ordinal, err)) ||
	    (status = gn_cuda_check(cudaRuntimeGetVersion(&info->runtime), "cudaRuntimeGetVersion", ordinal, err)))
		return status;
	snprintf(info->name, sizeof info->name, "%s", properties.name);
	info->l2_bytes = (size_t)l2;
	info->memory_bytes = properties.totalGlobalMem;
	return GN_OK;
}

enum gn_status gn_cuda_device_create(int ordinal, struct gn_cuda_device **out, struct gn_err *err)
{
	struct gn_cuda_device *d;
	enum gn_status status;
	int count;

	if ((status = gn_cuda_device_count(&count, err)))
		return status;
	if (ordinal < 0 || ordinal >= count)
		return gn_err_set(err, GN_ERR_USAGE, "cuda:%d: this process sees %d GPU%s, cuda:0 to cuda:%d", ordinal,
				  count, count == 1 ? "" : "s", count - 1);
	if (!(d = calloc(1, sizeof *d)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: no memory for a device", ordinal);
	d->base.kind = &gn_cuda_device_kind;
	d->base.ordinal = ordinal;
	snprintf(d->base.name, sizeof d->base.name, "cuda:%d", ordinal);
	if ((status = read_info(ordinal, &d->info, err)) || (status = gn_cuda_enter(d, err)) ||
	    (status = gn_cuda_kernels_probe(ordinal, err)))
		goto fail;
	snprintf(d->base.address, sizeof d->base.address, "%s", d->info.pci);
	snprintf(d->base.model, sizeof d->base.model, "%s", d->info.name);
	*out = d;
	return GN_OK;
fail:
	free(d);
	return status;
}

void gn_cuda_device_destroy(struct gn_cuda_device *d)
{
	free(d);
}

const struct gn_cuda_info *gn_cuda_device_info(const struct gn_cuda_device *d)
{
	return &d->info;
}

enum gn_status gn_cuda_device_memory(const struct gn_cuda_device *d, size_t *free_bytes, size_t *total_bytes,
				     struct gn_err *err)
{
	size_t unused = 0, total = 0;
	enum gn_status status = gn_cuda_enter(d, err);

	if (status || (status = gn_cuda_check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo", d->info.ordinal, err)))
		return status;
	*free_bytes = unused;
	*total_bytes = total;
	return GN_OK;
}
