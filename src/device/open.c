/* Devices by name. */
#include "src/device/device_internal.h"

#include "src/config.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
#include "src/device/cuda.h"

static const int has_cuda = 1;
#else
static const int has_cuda;

static enum gn_status gn_cuda_device_count(int *out, struct gn_err *err)
{
	*out = 0;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no CUDA: configure --with-cuda, or use --device host");
}

enum gn_status gn_device_open_cuda(int ordinal, struct gn_device **out, struct gn_err *err)
{
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "cuda:%d: this build has no CUDA: configure --with-cuda, or use --device host", ordinal);
}
#endif

enum gn_status gn_device_count(const char *kind, int *out, struct gn_err *err)
{
	if (!strcmp(kind, "cuda"))
		return gn_cuda_device_count(out, err);
	*out = 1;
	return GN_OK;
}

int gn_device_is_built(const char *kind)
{
	return strcmp(kind, "cuda") ? 1 : has_cuda;
}

enum gn_status gn_device_open(const char *name, struct gn_device **out, struct gn_err *err)
{
	char *end = "";
	long ordinal = 0;

	if (!strcmp(name, "host")) {
		*out = gn_device_open_host();
		return *out ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a device");
	}
	if (!strncmp(name, "cuda:", 5))
		ordinal = strtol(name + 5, &end, 10);
	if (strncmp(name, "cuda", 4) || (name[4] && (name[4] != ':' || !name[5] || *end || ordinal < 0 || ordinal > 4095)))
		return gn_err_set(err, GN_ERR_USAGE, "device '%s' is none of host, cuda, cuda:N", name);
	return gn_device_open_cuda((int)ordinal, out, err);
}
