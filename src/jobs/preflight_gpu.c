/* The state of a node's GPUs, from NVIDIA's management library (NVML) where there is one. Functions and constants are those of its stable
 * interface; its header is not needed for the build. */
#include "src/jobs/preflight.h"

#include "src/base/dynlib.h"

#include <stdio.h>
#include <string.h>

/* nvmlReturn_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t */
#define NVML_SUCCESS 0
#define NVML_UNCORRECTED 1
#define NVML_VOLATILE 0

struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *count);
	int (*handle)(unsigned index, void **device);
	int (*ecc)(void *device, int type, int counter, unsigned long long *count);
	int (*reasons)(void *device, unsigned long long *bits);
	const char *(*text)(int code);
};

static int load(struct nvml *n)
{
	char why[256];
	void *library = gn_dynlib_open("libnvidia-ml.so.1", "/usr/local/nvidia", why, sizeof why);

	return library && gn_dynlib_find(library, "nvmlInit_v2", &n->init) && gn_dynlib_find(library, "nvmlShutdown", &n->shutdown) &&
	       gn_dynlib_find(library, "nvmlDeviceGetCount_v2", &n->count) &&
	       gn_dynlib_find(library, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
	       gn_dynlib_find(library, "nvmlDeviceGetTotalEccErrors", &n->ecc) &&
	       gn_dynlib_find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &n->reasons) &&
	       gn_dynlib_find(library, "nvmlErrorString", &n->text);
}

/* Of one GPU. What it does not support, such as ECC, is no fault. */
static void read_one(const struct nvml *n, unsigned index, struct gn_preflight_gpus *out)
{
	unsigned long long errors = 0, bits = 0;
	void *device;
	int code = n->handle(index, &device);

	if (code != NVML_SUCCESS) {
		if (!out->lost++)
			snprintf(out->why, sizeof out->why, "GPU %u: %.60s", index, n->text(code));
		return;
	}
	if (n->ecc(device, NVML_UNCORRECTED, NVML_VOLATILE, &errors) == NVML_SUCCESS)
		out->ecc_errors += errors;
	if (n->reasons(device, &bits) == NVML_SUCCESS)
		out->throttle |= bits;
}

void gn_preflight_gpus_read(struct gn_preflight_gpus *out)
{
	struct nvml n;
	unsigned count = 0;
	int code;

	memset(out, 0, sizeof *out);
	out->count = -1;
	if (!load(&n))
		return;
	code = n.init();
	if (code == NVML_SUCCESS) {
		code = n.count(&count);
		for (unsigned i = 0; code == NVML_SUCCESS && i < count; i++)
			read_one(&n, i, out);
		n.shutdown();
	}
	out->count = code == NVML_SUCCESS ? (int32_t)count : 0;
	if (code != NVML_SUCCESS)
		snprintf(out->why, sizeof out->why, "NVML: %.60s", n.text(code));
}
