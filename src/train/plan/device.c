#include "src/train/plan/device.h"

#include "src/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GN_OK: a GPU is here. */
static enum gn_status find_gpu(struct gn_err *err)
{
	int count;
	enum gn_status status = gn_device_count("cuda", &count, err);

	/* NOT_FOUND is for files and folders of options */
	if (status == GN_ERR_NOT_FOUND && err)
		err->status = GN_ERR_UNSUPPORTED;
	return status == GN_ERR_NOT_FOUND ? GN_ERR_UNSUPPORTED : status;
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

static const char *const convolutions[] = {
	[GN_CONVOLUTION_AUTO] = "auto-1", [GN_CONVOLUTION_DIRECT] = "direct", [GN_CONVOLUTION_WINOGRAD] = "winograd"};

enum gn_convolution gn_convolution_of(const char *name)
{
	for (int c = GN_CONVOLUTION_DIRECT; name && c <= GN_CONVOLUTION_WINOGRAD; c++)
		if (!strcmp(name, convolutions[c]))
			return (enum gn_convolution)c;
	return GN_CONVOLUTION_AUTO;
}

const char *gn_convolution_name(enum gn_convolution c)
{
	return convolutions[c];
}

/* The index-th, as long as there are so many; numbers beyond the last start over. */
static enum gn_status open_gpu(int index, struct gn_device **out, struct gn_err *err)
{
	char name[32];
	int count;
	enum gn_status status = gn_device_count("cuda", &count, err);

	if (status)
		return status;
	snprintf(name, sizeof name, "cuda:%d", index % count);
	return gn_device_open(name, out, err);
}

void gn_device_pci(const char *name, int index, char out[GN_DEVICE_PCI_MAX])
{
	struct gn_device *device;

	out[0] = 0;
	if ((strcmp(name, "cuda") && strcmp(name, "auto")) || open_gpu(index, &device, NULL))
		return;
	snprintf(out, GN_DEVICE_PCI_MAX, "%s", gn_device_address(device));
	gn_device_close(device);
}

/* The user's folder for what can be made again; NULL: none is known. */
static const char *plans_folder(char *out, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length = 0;

	if (cache && cache[0] == '/')
		length = snprintf(out, size, "%s/gannet/cudnn", cache);
	else if (home && home[0] == '/')
		length = snprintf(out, size, "%s/.cache/gannet/cudnn", home);
	return length > 0 && (size_t)length < size ? out : NULL;
}

static enum gn_status create_compute(const struct gn_plan_options *o, struct gn_stream *s, struct gn_compute **out, struct gn_err *err)
{
	char folder[PATH_MAX];
	struct gn_compute_cuda_options co = {.bf16 = o->bf16, .fp16 = o->fp16, .tf32 = o->tf32, .tune = o->tune,
					     .any_order = o->any_order};

	if (o->backend != GN_BACKEND_CUDA)
		return gn_compute_create_host(s, o->backend, out, err);
	co.folder = plans_folder(folder, sizeof folder);
#ifdef HAVE_CUDA
	return gn_compute_create_cuda(s, &co, out, err);
#else
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA%s", co.tune ? "" : ": configure --with-cuda");
#endif
}

enum gn_status gn_plan_device_open(const struct gn_plan_options *o, struct gn_plan_device *out, struct gn_err *err)
{
	struct gn_plan_device d = {NULL, NULL, NULL};
	enum gn_status status = o->backend == GN_BACKEND_CUDA ? open_gpu(o->gpu, &d.device, err) :
								gn_device_open("host", &d.device, err);

	if (!status)
		status = gn_stream_create(d.device, &d.stream, err);
	if (!status)
		status = create_compute(o, d.stream, &d.compute, err);
	if (status)
		gn_plan_device_close(&d);
	*out = d;
	return status;
}

void gn_plan_device_close(struct gn_plan_device *d)
{
	if (d->stream)
		(void)gn_stream_wait(d->stream, NULL);
	gn_compute_destroy(d->compute);
	gn_stream_destroy(d->stream);
	gn_device_close(d->device);
	*d = (struct gn_plan_device){NULL, NULL, NULL};
}
