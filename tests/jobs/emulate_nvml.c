/* libnvidia-ml.so.1 for tests on machines without a GPU: EMULATE_NVML="COUNT ECC BITS LOST" gives the GPUs, uncorrected errors of the first,
 * the clocks' bits of the last, and the index of one that has fallen off the bus (-1: none). Without it the driver is not loaded. */
#include <stdio.h>
#include <stdlib.h>

static unsigned count;
static unsigned long long errors, bits;
static int lost;

int nvmlInit_v2(void)
{
	const char *text = getenv("EMULATE_NVML");

	return text && sscanf(text, "%u %llu %llx %d", &count, &errors, &bits, &lost) == 4 ? 0 : 9;
}

int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *out)
{
	*out = count;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (char *)&count + index;
	return (int)index == lost ? 15 : 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *out)
{
	*out = device == &count ? errors : 0;
	return type == 1 && counter == 0 ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
{
	*out = (char *)device == (char *)&count + count - 1 ? bits : 0;
	return 0;
}

const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Unknown Error"; }
