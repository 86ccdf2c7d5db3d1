/* Plans of cuDNN that are kept: each shape and pass is planned once, many at the same time, and once more only when its file is gone,
 * damaged, or not to be trusted. For a GPU that is described; a driver that is emulated (libcuda.so.1 beside this program) takes what
 * cuDNN compiles. Prints TAP; skips where there is no cuDNN.
 * usage: test_kept [resnet50 [FOLDER]]   (how long planning takes for a step of ResNet-50 in bf16, all engines) */
#include "tests/gpu/described.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int points, failed;
static char folder[] = "/tmp/gannet-kept-XXXXXX/plans";

static void point(int ok, const char *text, const char *detail)
{
	points++;
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", points, text);
	if (!ok)
		printf("# %s\n", detail);
}

/* Plans of a first and a later layer, in a dnn of their own; those that cuDNN compiles among them. */
static struct gn_dnn_counts plan_some(struct gn_dnn_options o, enum gn_dnn_pass pass, int64_t *engine)
{
	struct gn_dnn_counts counts = {0};
	struct gn_dnn_plan *p, *again;
	struct gn_err err = {0};
	struct gn_dnn *d;

	o.workspace_limit_bytes = (size_t)512 << 20;
	if (gn_dnn_create_planner(described_devices[0].json, &o, &d, &err)) {
		point(0, "a planner", err.text);
		return counts;
	}
	for (size_t i = 1; i < 3; i++) {
		struct gn_dnn_conv c = described_conv(i, GN_CUDA_BF16);

		if (gn_dnn_plan_get(d, &c, pass, &p, &err) || gn_dnn_plan_get(d, &c, pass, &again, &err))
			point(0, "a plan", err.text);
		else if (p != again)
			point(0, "the same question has the same plan for an answer", "");
		else
			*engine = gn_dnn_plan_engine(p);
	}
	counts = gn_dnn_counts(d);
	gn_dnn_destroy(d);
	return counts;
}

static void expect(const char *text, struct gn_dnn_counts is, int restored, int compiled)
{
	char detail[120];

	snprintf(detail, sizeof detail, "%d plans, %d restored and %d compiled, not %d and %d", is.plans, is.restored, is.compiled,
		 restored, compiled);
	point(is.plans == 2 && is.restored == restored && is.compiled == compiled, text, detail);
}

/* Calls for each file of the folder; returns how many there are. */
static int each_file(void (*change)(int folder, const char *name))
{
	DIR *all = opendir(folder);
	struct dirent *e;
	int count = 0;

	while (all && (e = readdir(all))) {
		if (e->d_name[0] == '.')
			continue;
		count++;
		if (change)
			change(dirfd(all), e->d_name);
	}
	if (all)
		closedir(all);
	return count;
}

static void damage(int at, const char *name)
{
	int fd = openat(at, name, O_WRONLY);

	/* in the middle of cuDNN's part */
	if (fd < 0 || pwrite(fd, "?", 1, 20000) != 1)
		point(0, "a file is damaged", name);
	close(fd);
}

static void cut(int at, const char *name)
{
	int fd = openat(at, name, O_WRONLY);

	if (fd < 0 || ftruncate(fd, 700))
		point(0, "a file is cut off", name);
	close(fd);
}

static void share(int at, const char *name)
{
	if (fchmodat(at, name, 0666, 0))
		point(0, "a file for all", name);
}

static void drop(int at, const char *name)
{
	(void)unlinkat(at, name, 0);
}

static void check_kept(void)
{
	const struct gn_dnn_options o = {.folder = folder}, tf32 = {.folder = folder, .tf32 = 1}, none = {0}, none_tf32 = {.tf32 = 1};
	int64_t first = -1, later = -2;

	expect("plans are compiled once", plan_some(o, GN_DNN_FORWARD_STATISTICS, &first), 0, 2);
	point(each_file(NULL) == 2, "and kept, a file each", folder);
	expect("they are restored, and nothing is compiled", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 2, 0);
	point(first == later, "by the same engine", "");
	expect("other rules, other plans", plan_some(tf32, GN_DNN_FORWARD_STATISTICS, &later), 0, 2);
	each_file(damage);
	expect("what is damaged is planned anew", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 0, 2);
	expect("and replaced", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 2, 0);
	each_file(cut);
	expect("what is cut off is planned anew", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 0, 2);
	each_file(share);
	expect("a file that others may write is not read", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 0, 2);
	expect("but replaced", plan_some(o, GN_DNN_FORWARD_STATISTICS, &later), 2, 0);
	(void)chmod(folder, 0777);
	expect("a folder that others may write is not used", plan_some(o, GN_DNN_FORWARD_STATISTICS, &first), 0, 2);
	(void)chmod(folder, 0700);
	expect("what was planned without one is kept in memory", plan_some(none, GN_DNN_FORWARD_STATISTICS, &later), 2, 0);
	point(first == later, "by the same engine", "");
	expect("other rules, other plans", plan_some(none_tf32, GN_DNN_FORWARD_STATISTICS, &later), 0, 2);
	expect("each kept", plan_some(none_tf32, GN_DNN_FORWARD_STATISTICS, &later), 2, 0);
	expect("engines that are not compiled are kept, too", plan_some(o, GN_DNN_BACKWARD_DATA, &first), 0, 0);
	expect("and restored", plan_some(o, GN_DNN_BACKWARD_DATA, &later), 2, 0);
}

/* As op_conv.c asks for a training step of these many of ResNet-50's convolutions. Returns the plans. */
static int ask_all(struct gn_dnn *d, size_t convolutions)
{
	static const enum gn_dnn_pass passes[] = {GN_DNN_FORWARD, GN_DNN_FORWARD_STATISTICS, GN_DNN_BACKWARD_WEIGHT, GN_DNN_BACKWARD_DATA,
						  GN_DNN_NORM_BACKWARD_WEIGHT, GN_DNN_BACKWARD_DATA_NORM};
	struct gn_err err = {0};
	int planned = 0;

	gn_dnn_collect(d, 1);
	for (size_t i = 0; i < convolutions; i++) {
		struct gn_dnn_conv c = described_conv(i, GN_CUDA_BF16);
		struct gn_dnn_plan *p = NULL;

		for (size_t k = 0; k < sizeof passes / sizeof *passes; k++)
			if (gn_dnn_plan_get(d, &c, passes[k], &p, &err) || p)
				point(0, "what is collected is not planned yet", err.text);
	}
	if (gn_dnn_plan_noted(d, &planned, &err))
		point(0, "plans", err.text);
	gn_dnn_collect(d, 0);
	return planned;
}

/* Many at the same time, of which candidates are to be timed. */
static void check_together(void)
{
	struct gn_dnn_options o = {.workspace_limit_bytes = (size_t)512 << 20, .tune = 1};
	struct gn_dnn_conv c = described_conv(1, GN_CUDA_BF16);
	struct gn_dnn_plan *counting = NULL, *data = NULL;
	struct gn_dnn_counts counts;
	struct gn_err err = {0};
	char text[160];
	struct gn_dnn *d;
	int again = -1;

	if (gn_dnn_create_planner(described_devices[0].json, &o, &d, &err)) {
		point(0, "a planner", err.text);
		return;
	}
	point(ask_all(d, 3) == 18 && !gn_dnn_plan_noted(d, &again, &err) && again == 0, "18 plans are made together, once", err.text);
	counts = gn_dnn_counts(d);
	/* only compiled ones take the three forward passes with statistics; what takes others besides is cuDNN's choice */
	snprintf(text, sizeof text, "%d, %d of them for one plan", counts.compiled, counts.compiled_most);
	point(counts.compiled >= 3 && counts.compiled_most == 1, "of engines that are compiled one is taken for a plan", text);
	if (gn_dnn_plan_get(d, &c, GN_DNN_FORWARD_STATISTICS, &counting, &err) || gn_dnn_plan_get(d, &c, GN_DNN_BACKWARD_DATA, &data, &err))
		point(0, "plans", err.text);
	snprintf(text, sizeof text, "%d", data ? gn_dnn_plan_candidates(data) : 0);
	point(data && gn_dnn_plan_candidates(data) >= 16 && gn_dnn_plan_candidates(data) <= 24, "16 to 24 candidates are timed", text);
	gn_dnn_destroy(d);
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void time_all(const char *kept)
{
	struct gn_dnn_options o = {.workspace_limit_bytes = (size_t)1 << 30, .tune = 1, .folder = kept};
	double wall = seconds(CLOCK_MONOTONIC), busy = seconds(CLOCK_PROCESS_CPUTIME_ID);
	struct gn_dnn_counts counts;
	struct gn_err err = {0};
	struct gn_dnn *d;
	int planned;

	if (gn_dnn_create_planner(described_devices[0].json, &o, &d, &err)) {
		point(0, "a planner", err.text);
		return;
	}
	planned = ask_all(d, DESCRIBED_RESNET50);
	counts = gn_dnn_counts(d);
	printf("# ResNet-50, bf16, training: %d plans asked for, %d compiled, %d restored, in %.1f s and %.1f s of processors\n", planned,
	       counts.compiled, counts.restored, seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - busy);
	point(counts.compiled <= counts.plans, "an engine at most is compiled for a plan", "");
	gn_dnn_destroy(d);
}

/* 0: without it cuDNN cannot load what it compiles. */
static int load_driver(const char *program)
{
	const char *slash = strrchr(program, '/');
	char path[4096];

	snprintf(path, sizeof path, "%.*s/libcuda.so.1", slash ? (int)(slash - program) : 1, slash ? program : ".");
	return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

int main(int argc, char **argv)
{
	char *parent = strrchr(folder, '/');
	struct gn_dnn_options o = {0};
	struct gn_err err = {0};
	struct gn_dnn *d;
	enum gn_status status;

	if (!load_driver(argv[0])) {
		printf("ok 1 - plans that are kept # SKIP %s\n1..1\n", dlerror());
		return 0;
	}
	status = gn_dnn_create_planner(described_devices[0].json, &o, &d, &err);
	if (status == GN_ERR_NOT_FOUND) {
		printf("ok 1 - plans that are kept # SKIP %s\n1..1\n", err.text);
		return 0;
	}
	if (!status)
		gn_dnn_destroy(d);
	if (argc > 1) {
		time_all(argc > 2 ? argv[2] : NULL);
	} else {
		*parent = 0;
		if (!mkdtemp(folder))
			return 1;
		*parent = '/';
		check_kept();
		check_together();
		each_file(drop);
		(void)rmdir(folder);
		*parent = 0;
		(void)rmdir(folder);
	}
	printf("1..%d\n", points);
	return failed != 0;
}
