/* Whether cuDNN plans what our networks need, on GPUs that need not be here: descriptors are built, engines chosen and plans
 * finalised by the real library, for devices described in JSON. Nothing is computed. Prints TAP; skips where there is no
 * cuDNN. Fusions are counted, not demanded: most engines for them are compiled when planned, which needs a driver, and where
 * none takes one, operators go the long way. */
#include "kernels/cuda/dnn.h"

#include <stdio.h>
#include <string.h>

/* What cudnnBackendGetAttribute says of an H100; of an A100 what differs. */
#define DEVICE(name, sm, processors, shared, memory, l2)                                                               \
	"{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"             \
	"\"multiProcessorCount\":" #processors ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"                    \
	"\"maxSharedMemoryPerBlockOptin\":" #shared ",\"reservedSharedMemoryPerBlock\":1024,"                           \
	"\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"         \
	"\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":" #memory ","                   \
	"\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":" #l2 ",\"cudaDeviceId\":0,"            \
	"\"deviceVer\":" #sm ",\"driverVer\":13000,\"deviceName\":\"" name "\"}"

static const struct {
	const char *name, *json;
} devices[] = {
	{"H100", DEVICE("NVIDIA H100 80GB HBM3", 900, 132, 232448, 85028896768, 52428800)},
	{"A100", DEVICE("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85028896768, 41943040)},
};

static const struct {
	int n, c, side, out_c, kernel, stride, pad;
} shapes[] = {
	/* every convolution of ResNet-50 at 224 */
	{64, 3, 224, 64, 7, 2, 3}, {64, 64, 56, 64, 1, 1, 0}, {64, 64, 56, 64, 3, 1, 1}, {64, 64, 56, 256, 1, 1, 0},
	{64, 256, 56, 64, 1, 1, 0}, {64, 256, 56, 128, 1, 1, 0}, {64, 128, 56, 128, 3, 2, 1}, {64, 128, 28, 512, 1, 1, 0},
	{64, 256, 56, 512, 1, 2, 0}, {64, 512, 28, 128, 1, 1, 0}, {64, 128, 28, 128, 3, 1, 1}, {64, 512, 28, 256, 1, 1, 0},
	{64, 256, 28, 256, 3, 2, 1}, {64, 256, 14, 1024, 1, 1, 0}, {64, 512, 28, 1024, 1, 2, 0}, {64, 1024, 14, 256, 1, 1, 0},
	{64, 256, 14, 256, 3, 1, 1}, {64, 1024, 14, 512, 1, 1, 0}, {64, 512, 14, 512, 3, 2, 1}, {64, 512, 7, 2048, 1, 1, 0},
	{64, 1024, 14, 2048, 1, 2, 0}, {64, 2048, 7, 512, 1, 1, 0}, {64, 512, 7, 512, 3, 1, 1}, {64, 2048, 1, 1000, 1, 1, 0},
	/* others' first and last layers, small and odd ones */
	{32, 3, 224, 64, 3, 1, 1}, {32, 25088, 1, 4096, 1, 1, 0}, {32, 1, 28, 6, 5, 1, 2}, {32, 6, 14, 16, 5, 1, 0},
	{32, 84, 1, 10, 1, 1, 0}, {32, 3, 32, 16, 3, 1, 1}, {1, 16, 32, 16, 3, 1, 1}, {2, 7, 10, 5, 3, 1, 1},
};

static int points, failed;

static void point(int ok, const char *text, const char *detail)
{
	points++;
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", points, text);
	if (!ok && detail[0])
		printf("# %s\n", detail);
}

static struct gn_dnn_conv conv_of(size_t i, enum gn_cuda_type type)
{
	int side = (shapes[i].side + 2 * shapes[i].pad - shapes[i].kernel) / shapes[i].stride + 1;

	return (struct gn_dnn_conv){type, shapes[i].n, shapes[i].c, shapes[i].side, shapes[i].side, shapes[i].out_c,
				    side, side, shapes[i].kernel, shapes[i].stride, shapes[i].pad};
}

/* One line for all shapes in a type: all passes that training cannot do without. */
static void check_needed(struct gn_dnn *d, const char *device, enum gn_cuda_type type, size_t limit)
{
	struct gn_err err = {0};
	char text[160];
	size_t i = 0, most = 0;
	int pass = 0, ok = 1;

	for (i = 0; ok && i < sizeof shapes / sizeof *shapes; i++) {
		struct gn_dnn_conv c = conv_of(i, type);

		for (pass = GN_DNN_FORWARD; ok && pass <= GN_DNN_BACKWARD_WEIGHT; pass++) {
			struct gn_dnn_plan *p;

			ok = !gn_dnn_plan_create(d, &c, (enum gn_dnn_pass)pass, &p, &err);
			if (!ok)
				break;
			if (gn_dnn_plan_workspace_bytes(p) > most)
				most = gn_dnn_plan_workspace_bytes(p);
			ok = gn_dnn_plan_candidates(p) > 0 && gn_dnn_plan_engine(p) >= 0;
			gn_dnn_plan_destroy(p);
		}
	}
	snprintf(text, sizeof text, "%s, %s: %zu convolutions forward and backward, with at most %zu MiB of workspace", device,
		 gn_cuda_type_name(type), sizeof shapes / sizeof *shapes, most >> 20);
	point(ok && most <= limit, text, err.text);
}

static void count_fusions(struct gn_dnn *d, const char *device, enum gn_cuda_type type)
{
	for (int pass = GN_DNN_FORWARD_BIAS; pass < GN_DNN_PASSES; pass++) {
		const size_t looked_at = 6;
		int count = 0, unexpected = 0;

		for (size_t i = 0; i < looked_at; i++) {
			struct gn_dnn_conv c = conv_of(i, type);
			struct gn_dnn_plan *p;
			struct gn_err err;
			enum gn_status status = gn_dnn_plan_create(d, &c, (enum gn_dnn_pass)pass, &p, &err);

			count += !status;
			/* building a graph is never wrong; not every engine takes it */
			unexpected += status && status != GN_ERR_UNSUPPORTED;
			if (unexpected == 1 && status != GN_ERR_UNSUPPORTED)
				printf("# %s\n", err.text);
			if (!status)
				gn_dnn_plan_destroy(p);
		}
		printf("# %s, %s, %s: an engine for %d of %zu\n", device, gn_cuda_type_name(type),
		       gn_dnn_pass_name((enum gn_dnn_pass)pass), count, looked_at);
		if (unexpected)
			point(0, "a fusion that is not taken is GN_ERR_UNSUPPORTED", "");
	}
}

/* Every shape has an engine that repeats itself. */
static void check_deterministic(void)
{
	struct gn_dnn_options o = {.deterministic = 1, .workspace_limit_bytes = (size_t)512 << 20};
	struct gn_err err = {0};
	struct gn_dnn *d;

	if (gn_dnn_create_planner(devices[0].json, &o, &d, &err)) {
		point(0, "deterministic engines", err.text);
		return;
	}
	check_needed(d, "H100, deterministic", GN_CUDA_BF16, o.workspace_limit_bytes);
	gn_dnn_destroy(d);
}

static void check_errors(void)
{
	struct gn_dnn_options o = {.workspace_limit_bytes = (size_t)1 << 30};
	struct gn_dnn_conv c = conv_of(0, GN_CUDA_BF16);
	struct gn_dnn_data data = {0};
	struct gn_dnn_plan *p;
	struct gn_dnn *d;
	struct gn_err err = {0};
	enum gn_status status = gn_dnn_create_planner("{\"maxGridSize\":[1,2]}", &o, &d, &err);

	point(status == GN_ERR_FAILED && strstr(err.text, "cudnnBackendFinalize of a device's properties"),
	      "a device that is none is an error with the call in it", err.text);
	status = gn_dnn_create_planner(devices[0].json, &o, &d, &err);
	if (status) {
		point(0, "a planner", err.text);
		return;
	}
	c.c = 0;
	status = gn_dnn_plan_create(d, &c, GN_DNN_FORWARD, &p, &err);
	point(status && strstr(err.text, "64x0x224x224 to 64 channels, window 7"), "a shape of nothing is an error with the shape in it",
	      err.text);
	c.c = 3;
	status = gn_dnn_plan_create(d, &c, GN_DNN_FORWARD, &p, &err);
	if (!status) {
		status = gn_dnn_run(p, &data, NULL, &err);
		point(status == GN_ERR_USAGE, "a plan for a device that is not here does not run", err.text);
		gn_dnn_plan_destroy(p);
	} else {
		point(0, "a plan", err.text);
	}
	gn_dnn_destroy(d);
}

int main(void)
{
	struct gn_dnn_options options = {.workspace_limit_bytes = (size_t)512 << 20};
	struct gn_err err = {0};

	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		struct gn_dnn *d;
		enum gn_status status = gn_dnn_create_planner(devices[i].json, &options, &d, &err);

		if (status == GN_ERR_NOT_FOUND) {
			printf("ok 1 - plans of cuDNN # SKIP %s\n1..1\n", err.text);
			return 0;
		}
		point(!status, devices[i].name, err.text);
		if (status)
			continue;
		for (int type = 0; type < 3; type++)
			check_needed(d, devices[i].name, (enum gn_cuda_type)type, options.workspace_limit_bytes);
		count_fusions(d, devices[i].name, GN_CUDA_BF16);
		gn_dnn_destroy(d);
	}
	check_deterministic();
	check_errors();
	printf("1..%d\n", points);
	return failed != 0;
}
