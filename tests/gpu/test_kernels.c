/* Every kernel of kernels/cuda against the oracle of kernels/ref, over shapes, types and options. Prints TAP.
 * usage: test_kernels [CASES...]   (types norm pool loss optim pointwise image; all without) */
#include "tests/gpu/fixture.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	void (*run)(struct fixture *b);
} groups[] = {
	{"types", check_types}, {"norm", check_batch_norm},	{"pool", check_pool},	{"loss", check_loss},
	{"optim", check_optim}, {"pointwise", check_pointwise}, {"image", check_image},
};

static int wanted(const char *name, char **names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(name, names[i]))
			return 1;
	return count == 0;
}

static enum gn_status run_device(int ordinal, char **names, int count, int *points, int *failed, struct gn_err *err)
{
	struct fixture b;
	enum gn_status status = fixture_open(&b, ordinal, (size_t)512 << 20, err);

	if (status)
		return status;
	printf("# cuda:%d is %s\n", ordinal, gn_cuda_device_info(b.device)->name);
	b.points = *points;
	for (b.misaligned = 0; b.misaligned < (ordinal ? 1 : 2); b.misaligned++)
		for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
			if (wanted(groups[i].name, names, count))
				groups[i].run(&b);
	*points = b.points;
	*failed += b.failed;
	fixture_close(&b);
	return GN_OK;
}

int main(int argc, char **argv)
{
	int devices = 0, points = 0, failed = 0;
	struct gn_err err;
	enum gn_status status = gn_cuda_device_count(&devices, &err);

	if (status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED) {
		printf("ok 1 - kernels on a GPU # SKIP %s\n1..1\n", err.text);
		return 0;
	}
	/* real devices of one machine are alike; the emulated ones differ in the order of threads */
	devices = devices > 2 ? 2 : devices;
	for (int i = 0; !status && i < devices; i++)
		status = run_device(i, argv + 1, argc - 1, &points, &failed, &err);
	if (status) {
		printf("not ok %d - %s\n", ++points, err.text);
		failed++;
	}
	printf("1..%d\n", points);
	return failed != 0;
}
