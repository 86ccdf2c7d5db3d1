/* Whether cuDNN plans what our networks need, on GPUs that need not be here: descriptors are built, engines chosen and plans
 * finalised by the real library, for devices described in JSON. Nothing is computed. Prints TAP; skips where there is no
 * cuDNN. Fusions are looked at with a table: engines for many are compiled when planned, which needs a driver, and where none
 * takes one, operators go the long way. Without a GPU, and without GN_LONG in the environment, only the first device has all types
 * and fusions, and the others have bf16.
 * usage: test_dnn [compiled|candidates]   (the table for what is compiled, minutes; how many candidates are deterministic) */
#include "src/device/cuda.h"
#include "tests/gpu/described.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int points, failed;

static void point(int ok, const char *text, const char *detail)
{
	points++;
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", points, text);
	if (!ok && detail[0])
		printf("# %s\n", detail);
}

/* One line for all shapes in a type: all passes that training cannot do without. */
static void check_needed(struct gn_dnn *d, const char *device, enum gn_cuda_type type, size_t limit)
{
	struct gn_err err = {0};
	char text[160];
	size_t i = 0, most = 0;
	int pass = 0, ok = 1;

	for (i = 0; ok && i < sizeof described_shapes / sizeof *described_shapes; i++) {
		struct gn_dnn_conv c = described_conv(i, type);

		for (pass = GN_DNN_FORWARD; ok && pass <= GN_DNN_BACKWARD_WEIGHT; pass++) {
			struct gn_dnn_plan *p;

			ok = !gn_dnn_plan_get(d, &c, (enum gn_dnn_pass)pass, &p, &err);
			if (!ok)
				break;
			if (gn_dnn_plan_workspace_bytes(p) > most)
				most = gn_dnn_plan_workspace_bytes(p);
			ok = gn_dnn_plan_candidates(p) > 0 && gn_dnn_plan_engine(p) >= 0;
		}
	}
	snprintf(text, sizeof text, "%s, %s: %zu convolutions forward and backward, with at most %zu MiB of workspace", device,
		 gn_cuda_type_name(type), sizeof described_shapes / sizeof *described_shapes, most >> 20);
	point(ok && most <= limit, text, err.text);
}

/* Of one fusion: for each of ResNet-50's convolutions P where cuDNN planned it, c where it compiled code that only a driver can
 * load, - where no engine takes it. Returns how many are planned. */
static int show_fusion(struct gn_dnn *d, const char *device, enum gn_cuda_type type, enum gn_dnn_pass pass)
{
	char row[DESCRIBED_RESNET50 + 1] = {0};
	int planned = 0, compiled = 0, unexpected = 0;

	for (size_t i = 0; i < DESCRIBED_RESNET50; i++) {
		struct gn_dnn_conv c = described_conv(i, type);
		struct gn_dnn_plan *p;
		struct gn_err err;
		enum gn_status status = gn_dnn_plan_get(d, &c, pass, &p, &err);
		int is_compiled = status && strstr(err.text, "only a driver can load");

		row[i] = !status ? 'P' : is_compiled ? 'c' : '-';
		planned += !status;
		compiled += is_compiled;
		/* building a graph is never wrong; not every engine takes it */
		if (status && status != GN_ERR_UNSUPPORTED && !unexpected++)
			printf("# %s\n", err.text);
	}
	printf("# %s, %-4s, %-31s %s: %d planned, %d compiled, of %d\n", device, gn_cuda_type_name(type), gn_dnn_pass_name(pass), row,
	       planned, compiled, (int)DESCRIBED_RESNET50);
	fflush(stdout);
	if (unexpected)
		point(0, "a fusion that is not taken is GN_ERR_UNSUPPORTED", "");
	return planned;
}

/* Those that need no compiler: of f16, for all but the first layer. */
static void check_fusions(struct gn_dnn *d, const char *device)
{
	static const enum gn_dnn_pass passes[] = {GN_DNN_FORWARD_STATISTICS, GN_DNN_NORM_FORWARD_STATISTICS,
						  GN_DNN_NORM_BACKWARD_WEIGHT, GN_DNN_BACKWARD_DATA_NORM};

	for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
		int planned = show_fusion(d, device, GN_CUDA_F16, passes[i]);
		char text[120];

		snprintf(text, sizeof text, "%s, f16: convolutions of ResNet-50, %s, %d of %d", device, gn_dnn_pass_name(passes[i]),
			 planned, (int)DESCRIBED_RESNET50);
		point(planned >= (int)DESCRIBED_RESNET50 - 1, text, "at least all but the first have an engine that is there when cuDNN is installed");
	}
}

/* Minutes each. Without a driver the toolkit's stub stands in its place: with it cuDNN compiles, and fails only to load. */
static void show_all_fusions(struct gn_dnn *d, const char *device)
{
	static const enum gn_cuda_type types[] = {GN_CUDA_BF16, GN_CUDA_F16};
	static const enum gn_dnn_pass passes[] = {GN_DNN_FORWARD_STATISTICS, GN_DNN_NORM_FORWARD,
						  GN_DNN_NORM_FORWARD_STATISTICS, GN_DNN_NORM_BACKWARD_WEIGHT,
						  GN_DNN_BACKWARD_DATA_NORM};

	for (size_t t = 0; t < sizeof types / sizeof *types; t++)
		for (size_t k = 0; k < sizeof passes / sizeof *passes; k++)
			show_fusion(d, device, types[t], passes[k]);
}

static void load_driver(void)
{
#ifdef GN_CUDA_FOLDER
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) &&
	    !dlopen(GN_CUDA_FOLDER "/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL))
		printf("# neither a driver nor the toolkit's stub of it: nothing can be compiled\n");
#endif
}

/* What is planned with any engine is planned with those that repeat themselves, in every type, and fused, too. */
static void check_deterministic(void)
{
	struct gn_dnn_options o = {.deterministic = 1, .workspace_limit_bytes = (size_t)512 << 20};
	struct gn_err err = {0};
	struct gn_dnn *d;

	if (gn_dnn_create_planner(described_devices[0].json, &o, &d, &err)) {
		point(0, "deterministic engines", err.text);
		return;
	}
	for (int type = 0; type < 3; type++)
		check_needed(d, "H100, deterministic", (enum gn_cuda_type)type, o.workspace_limit_bytes);
	check_fusions(d, "H100, deterministic");
	gn_dnn_destroy(d);
}

/* Sums over ResNet-50's convolutions: planned, and candidates for tuning. */
static void count_candidates(struct gn_dnn *d, enum gn_cuda_type type, enum gn_dnn_pass pass, int sums[2])
{
	sums[0] = sums[1] = 0;
	for (size_t i = 0; i < DESCRIBED_RESNET50; i++) {
		struct gn_dnn_conv c = described_conv(i, type);
		struct gn_dnn_plan *p;

		if (gn_dnn_plan_get(d, &c, pass, &p, NULL))
			continue;
		sums[0]++;
		sums[1] += gn_dnn_plan_candidates(p);
	}
}

/* How many candidates are left out because their results may differ from run to run. */
static void show_candidates(const char *device, const char *json)
{
	struct gn_dnn_options o = {.workspace_limit_bytes = (size_t)1 << 30, .tune = 1};
	struct gn_dnn *both[2] = {NULL, NULL};

	for (; o.deterministic < 2 && !gn_dnn_create_planner(json, &o, &both[o.deterministic], NULL); o.deterministic++)
		;
	for (int type = 0; type < 3 && both[1]; type++) {
		for (int pass = 0; pass < GN_DNN_PASSES; pass++) {
			int sums[2][2];

			for (int k = 0; k < 2; k++)
				count_candidates(both[k], (enum gn_cuda_type)type, (enum gn_dnn_pass)pass, sums[k]);
			printf("# %s, %-4s, %-31s %d planned, %d deterministic; %d candidates, %d deterministic\n", device,
			       gn_cuda_type_name((enum gn_cuda_type)type), gn_dnn_pass_name((enum gn_dnn_pass)pass), sums[0][0], sums[1][0],
			       sums[0][1], sums[1][1]);
			fflush(stdout);
			point(sums[0][0] == sums[1][0], "what is planned has deterministic engines", "");
		}
	}
	for (int k = 0; k < 2; k++)
		gn_dnn_destroy(both[k]);
}

static void check_errors(void)
{
	struct gn_dnn_options o = {.workspace_limit_bytes = (size_t)1 << 30};
	struct gn_dnn_conv c = described_conv(0, GN_CUDA_BF16);
	struct gn_dnn_data data = {0};
	struct gn_dnn_plan *p;
	struct gn_dnn *d;
	struct gn_err err = {0};
	enum gn_status status = gn_dnn_create_planner("{\"maxGridSize\":[1,2]}", &o, &d, &err);

	point(status == GN_ERR_FAILED && strstr(err.text, "cudnnBackendFinalize of a device's properties"),
	      "a device that is none is an error with the call in it", err.text);
	status = gn_dnn_create_planner(described_devices[0].json, &o, &d, &err);
	if (status) {
		point(0, "a planner", err.text);
		return;
	}
	c.c = 0;
	status = gn_dnn_plan_get(d, &c, GN_DNN_FORWARD, &p, &err);
	point(status && strstr(err.text, "64x0x224x224 to 64 channels, window 7"), "a shape of nothing is an error with the shape in it",
	      err.text);
	c.c = 3;
	status = gn_dnn_plan_get(d, &c, GN_DNN_FORWARD, &p, &err);
	if (!status) {
		status = gn_dnn_run(p, &data, NULL, &err);
		point(status == GN_ERR_USAGE, "a plan for a device that is not here does not run", err.text);
	} else {
		point(0, "a plan", err.text);
	}
	gn_dnn_destroy(d);
}

/* Where there is a GPU, what is planned for others matters, too. */
static int asks_all(void)
{
	int count = 0;

	return getenv("GN_LONG") || (!gn_cuda_device_count(&count, NULL) && count > 0);
}

int main(int argc, char **argv)
{
	struct gn_dnn_options options = {.workspace_limit_bytes = (size_t)512 << 20};
	struct gn_err err = {0};
	int all = argc > 1 && !strcmp(argv[1], "compiled"), whole = asks_all();

	if (argc > 1 && !strcmp(argv[1], "candidates")) {
		show_candidates(described_devices[0].name, described_devices[0].json);
		printf("1..%d\n", points);
		return failed != 0;
	}
	if (all)
		load_driver();
	for (size_t i = 0; i < sizeof described_devices / sizeof *described_devices; i++) {
		struct gn_dnn *d;
		enum gn_status status = gn_dnn_create_planner(described_devices[i].json, &options, &d, &err);

		if (status == GN_ERR_NOT_FOUND) {
			printf("ok 1 - plans of cuDNN # SKIP %s\n1..1\n", err.text);
			return 0;
		}
		point(!status, described_devices[i].name, err.text);
		if (status)
			continue;
		for (int type = 0; type < 3; type++)
			if (i == 0 || whole || type == GN_CUDA_BF16)
				check_needed(d, described_devices[i].name, (enum gn_cuda_type)type, options.workspace_limit_bytes);
		if (all)
			show_all_fusions(d, described_devices[i].name);
		else if (i == 0 || whole)
			check_fusions(d, described_devices[i].name);
		gn_dnn_destroy(d);
	}
	check_deterministic();
	check_errors();
	printf("1..%d\n", points);
	return failed != 0;
}
