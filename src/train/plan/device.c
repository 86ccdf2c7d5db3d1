#include "src/train/plan/device.h"

#include "src/config.h"
#ifdef HAVE_CUDA
#include "src/device/cuda.h"
#endif

#include <stdio.h>
#include <string.h>

/* GN_OK: a GPU is here. */
static enum gn_status find_gpu(struct gn_err *err)
{
#ifdef HAVE_CUDA
	int count;
	enum gn_status status = gn_cuda_device_count(&count, err);

	/* what is not there is no file that somebody named */
	if (status == GN_ERR_NOT_FOUND && err)
		err->status = GN_ERR_UNSUPPORTED;
	return status == GN_ERR_NOT_FOUND ? GN_ERR_UNSUPPORTED : status;
#else
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda, or use --device host");
#endif
}

enum gn_status gn_device_choose(const char *name, const char *precision, int index, struct gn_plan_options *o,
				struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!strcmp(name, "cuda"))
		status = find_gpu(err);
	if (status)
		return gn_err_prefix(err, "--device cuda"), status;
	o->backend = GN_BACKEND_HOST;
	if (!strcmp(name, "ref"))
		o->backend = GN_BACKEND_REF;
	if (!strcmp(name, "cuda") || (!strcmp(name, "auto") && !find_gpu(NULL)))
		o->backend = GN_BACKEND_CUDA;
	o->gpu = index;
	o->tune = o->backend == GN_BACKEND_CUDA;
	o->emulate = !strcmp(precision, "bf16-emulated");
	o->bf16 = o->emulate || !strcmp(precision, "bf16");
	o->fp16 = !strcmp(precision, "fp16");
	o->tf32 = !strcmp(precision, "tf32");
	return GN_OK;
}

const char *gn_device_precision(const struct gn_plan_options *o)
{
	if (o->bf16)
		return o->emulate && o->backend == GN_BACKEND_HOST && !gn_backend_has_bf16(o->backend) ? "bf16 (emulated)" : "bf16";
	return o->fp16 ? "fp16" : o->tf32 ? "tf32" : "fp32";
}

void gn_device_pci(const char *name, int index, char out[GN_DEVICE_PCI_MAX])
{
	out[0] = 0;
#ifdef HAVE_CUDA
	struct gn_cuda_device *device;
	int count;

	if ((strcmp(name, "cuda") && strcmp(name, "auto")) || gn_cuda_device_count(&count, NULL) ||
	    gn_cuda_device_create(index % count, &device, NULL))
		return;
	snprintf(out, GN_DEVICE_PCI_MAX, "%s", gn_cuda_device_info(device)->pci);
	gn_cuda_device_destroy(device);
#else
	(void)name;
	(void)index;
#endif
}
