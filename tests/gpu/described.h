/* GPUs that need not be here, as cuDNN describes them, and the convolutions that are planned for them. */
#ifndef GN_TESTS_GPU_DESCRIBED_H
#define GN_TESTS_GPU_DESCRIBED_H

#include "kernels/cuda/dnn.h"

/* What cudnnBackendGetAttribute says of an H100; of the others what differs. */
#define GN_DESCRIBED(name, sm, processors, shared, memory, l2)                                                               \
	"{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"             \
	"\"multiProcessorCount\":" #processors ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"                    \
	"\"maxSharedMemoryPerBlockOptin\":" #shared ",\"reservedSharedMemoryPerBlock\":1024,"                           \
	"\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"         \
	"\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":" #memory ","                   \
	"\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":" #l2 ",\"cudaDeviceId\":0,"            \
	"\"deviceVer\":" #sm ",\"driverVer\":13000,\"deviceName\":\"" name "\"}"

static const struct {
	const char *name, *json;
} described_devices[] = {
	{"H100", GN_DESCRIBED("NVIDIA H100 80GB HBM3", 900, 132, 232448, 85028896768, 52428800)},
	{"H200", GN_DESCRIBED("NVIDIA H200", 900, 132, 232448, 150754820096, 62914560)},
	{"A100", GN_DESCRIBED("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85028896768, 41943040)},
};

static const struct described_shape {
	int n, c, side, out_c, kernel, stride, pad; /* side below 0: a map of one column; out_c 0: each channel by itself */
} described_shapes[] = {
	/* every convolution of ResNet-50 at 224 */
	{64, 3, 224, 64, 7, 2, 3}, {64, 64, 56, 64, 1, 1, 0}, {64, 64, 56, 64, 3, 1, 1}, {64, 64, 56, 256, 1, 1, 0},
	{64, 256, 56, 64, 1, 1, 0}, {64, 256, 56, 128, 1, 1, 0}, {64, 128, 56, 128, 3, 2, 1}, {64, 128, 28, 512, 1, 1, 0},
	{64, 256, 56, 512, 1, 2, 0}, {64, 512, 28, 128, 1, 1, 0}, {64, 128, 28, 128, 3, 1, 1}, {64, 512, 28, 256, 1, 1, 0},
	{64, 256, 28, 256, 3, 2, 1}, {64, 256, 14, 1024, 1, 1, 0}, {64, 512, 28, 1024, 1, 2, 0}, {64, 1024, 14, 256, 1, 1, 0},
	{64, 256, 14, 256, 3, 1, 1}, {64, 1024, 14, 512, 1, 1, 0}, {64, 512, 14, 512, 3, 2, 1}, {64, 512, 7, 2048, 1, 1, 0},
	{64, 1024, 14, 2048, 1, 2, 0}, {64, 2048, 7, 512, 1, 1, 0}, {64, 512, 7, 512, 3, 1, 1},
#define DESCRIBED_RESNET50 23
	{64, 2048, 1, 1000, 1, 1, 0},
	/* ViT-B/16: patches, linear layers of tokens, and of the first token; ConvNeXt's patches; convolutions of each channel by itself */
	{64, 3, 224, 768, 16, 16, 0}, {64, 768, -197, 2304, 1, 1, 0}, {64, 768, -197, 768, 1, 1, 0}, {64, 768, -197, 3072, 1, 1, 0},
	{64, 3072, -197, 768, 1, 1, 0}, {64, 768, 1, 768, 1, 1, 0}, {64, 768, 1, 3072, 1, 1, 0}, {64, 3072, 1, 768, 1, 1, 0},
	{64, 3, 224, 96, 4, 4, 0}, {64, 96, 56, 192, 2, 2, 0}, {64, 32, 112, 0, 3, 1, 1}, {64, 96, 112, 0, 3, 2, 1},
	{64, 72, 56, 0, 5, 2, 2}, {64, 96, 56, 0, 7, 1, 3}, {64, 768, 7, 0, 7, 1, 3},
	/* others' first and last layers, small and odd ones */
	{32, 3, 224, 64, 3, 1, 1}, {32, 25088, 1, 4096, 1, 1, 0}, {32, 1, 28, 6, 5, 1, 2}, {32, 6, 14, 16, 5, 1, 0},
	{32, 84, 1, 10, 1, 1, 0}, {32, 3, 32, 16, 3, 1, 1}, {1, 16, 32, 16, 3, 1, 1}, {2, 7, 10, 5, 3, 1, 1},
};

static inline struct gn_dnn_conv described_conv(size_t i, enum gn_cuda_type type)
{
	const struct described_shape *s = &described_shapes[i];
	int h = s->side < 0 ? -s->side : s->side, w = s->side < 0 ? 1 : h;
	int out_h = (h + 2 * s->pad - s->kernel) / s->stride + 1, out_w = (w + 2 * s->pad - s->kernel) / s->stride + 1;

	return (struct gn_dnn_conv){type,  s->n,      s->c,	 h,	 w,		     s->out_c ? s->out_c : s->c, out_h,
				    out_w, s->kernel, s->stride, s->pad, s->out_c ? 0 : s->c};
}

#endif
