#include "src/jobs/preflight.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/dynlib.h"
#include "src/base/sha256.h"
#include "src/base/thread_pool.h"
#include "src/base/vector.h"
#include "src/base/version.h"
#include "transport/bootstrap/library_versions.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define WINDOW_S 0.25
#define WINDOWS 3
#define CHAINS 128
/* Of each of three arrays, all threads together: more than any cache below the last level of one socket. */
#define MEMORY_BYTES (64u << 20)
#define DISK_BYTES (256u << 20)
#define DISK_CHUNK (4u << 20)

__attribute__((format(printf, 2, 3))) static void add_problem(struct gn_preflight_host *h, const char *format, ...)
{
	size_t len = strlen(h->problem);
	va_list args;

	if (len && len + 2 < sizeof h->problem)
		len += (size_t)snprintf(h->problem + len, sizeof h->problem - len, "; ");
	va_start(args, format);
	if (len < sizeof h->problem)
		vsnprintf(h->problem + len, sizeof h->problem - len, format, args);
	va_end(args);
}

/* --- processors and memory: all threads for a while --- */

/* Rates are by the time that a thread has had a processor for, which others cannot take from it: they tell of the hardware. What share
 * of the processors the threads have had is a measurement of its own. */
struct worker {
	double until_s, done, cpu_s; /* done: floating point operations, or bytes */
	double *a, *b, *c;
	size_t count;
	float sink;
};

/* So many chains that the latency of one does not count. */
GN_VECTOR static void multiply_add(float *restrict x, int turns)
{
	for (int turn = 0; turn < turns; turn++)
		for (int i = 0; i < CHAINS; i++)
			x[i] = x[i] * 0.999f + 1e-3f;
}

static void compute(void *argument)
{
	struct worker *w = argument;
	double started = gn_clock_thread_cpu_s();
	float x[CHAINS];

	for (int i = 0; i < CHAINS; i++)
		x[i] = (float)i * 1e-3f;
	do {
		multiply_add(x, 2000);
		w->done += 2000.0 * CHAINS * 2;
	} while (gn_clock_s() < w->until_s);
	for (int i = 0; i < CHAINS; i++)
		w->sink += x[i];
	w->cpu_s = gn_clock_thread_cpu_s() - started;
}

/* STREAM's triad (McCalpin): three arrays of eight-byte numbers pass through. */
GN_VECTOR static void triad(double *restrict a, const double *restrict b, const double *restrict c, size_t count)
{
	for (size_t i = 0; i < count; i++)
		a[i] = b[i] + 3.0 * c[i];
}

static void stream(void *argument)
{
	struct worker *w = argument;
	double started = gn_clock_thread_cpu_s();

	do {
		triad(w->a, w->b, w->c, w->count);
		w->done += 24.0 * (double)w->count;
	} while (gn_clock_s() < w->until_s);
	w->cpu_s = gn_clock_thread_cpu_s() - started;
}

/* Pages come from the memory near the thread that writes them first. */
static void touch(void *argument)
{
	struct worker *w = argument;

	for (size_t i = 0; i < w->count; i++)
		w->a[i] = w->b[i] = w->c[i] = 1;
}

/* Of all threads together; *share of the processors that they have had, 1: all. */
static double rate_of(struct gn_thread_pool *pool, struct worker *workers, int threads, void (*work)(void *), double window_s,
		      double *share)
{
	double started = gn_clock_s(), rate = 0, cpu_s = 0;

	for (int t = 0; t < threads; t++) {
		workers[t].done = 0;
		workers[t].until_s = started + window_s;
		gn_thread_pool_submit(pool, work, &workers[t]);
	}
	gn_thread_pool_wait(pool);
	for (int t = 0; t < threads; t++) {
		rate += workers[t].cpu_s > 0 ? workers[t].done / workers[t].cpu_s : 0;
		cpu_s += workers[t].cpu_s;
	}
	*share = cpu_s / (gn_clock_s() - started) / threads;
	return rate;
}

static void measure_processors(double window_s, struct gn_preflight_host *h)
{
	int threads = gn_cpu_count();
	struct worker *workers = calloc((size_t)threads, sizeof *workers);
	double *memory = gn_alloc_aligned(3 * (size_t)MEMORY_BYTES);
	struct gn_thread_pool *pool = NULL;
	double share;
	size_t each = MEMORY_BYTES / sizeof(double) / (size_t)threads;
	struct gn_err err;

	h->processors = threads;
	if (!workers || !memory || gn_thread_pool_create(threads, (size_t)threads, &pool, &err)) {
		add_problem(h, "processors and memory cannot be measured: %.100s", pool ? "no memory" : err.text);
	} else {
		for (int t = 0; t < threads; t++) {
			workers[t].count = each;
			workers[t].a = memory + (size_t)t * each;
			workers[t].b = workers[t].a + MEMORY_BYTES / sizeof(double);
			workers[t].c = workers[t].b + MEMORY_BYTES / sizeof(double);
			gn_thread_pool_submit(pool, touch, &workers[t]);
		}
		gn_thread_pool_wait(pool);
		h->gflops = rate_of(pool, workers, threads, compute, WINDOWS * window_s, &h->share) / 1e9;
		h->memory_gb_per_s = rate_of(pool, workers, threads, stream, WINDOWS * window_s, &share) / 1e9;
	}
	gn_thread_pool_destroy(pool);
	free(memory);
	free(workers);
}

/* --- disk --- */

/* Until the time or the size is over; 0 with errno when it failed. */
static double transfer(int fd, char *buffer, int writes, size_t *bytes, double window_s)
{
	double started = gn_clock_s(), now;
	size_t done = 0;

	do {
		ssize_t n = writes ? pwrite(fd, buffer, DISK_CHUNK, (off_t)done) : pread(fd, buffer, DISK_CHUNK, (off_t)done);

		if (n <= 0)
			return 0;
		done += (size_t)n;
		now = gn_clock_s();
	} while (done + DISK_CHUNK <= *bytes && now - started < window_s);
	if (writes && fdatasync(fd))
		return 0;
	*bytes = done;
	now = gn_clock_s();
	return (double)done / (now > started ? now - started : 1e-9) / 1e6;
}

/* A file without a name: nothing is left behind. Not by the page cache where the file system allows that. */
static int open_unnamed(const char *folder, int *direct)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);

	*direct = fd >= 0;
	return fd >= 0 ? fd : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static void measure_disk(const char *folder, double window_s, struct gn_preflight_host *h)
{
	size_t bytes = DISK_BYTES, read_bytes;
	char *buffer = aligned_alloc(4096, DISK_CHUNK);
	int direct, fd = open_unnamed(folder, &direct);
	struct statvfs space;

	/* before statvfs, which sets errno, too */
	h->local_errno = fd < 0 ? errno : 0;
	if (!statvfs(folder, &space))
		h->free_gb = (double)space.f_bavail * (double)space.f_frsize / 1e9;
	if (fd < 0 || !buffer) {
		add_problem(h, "%.100s: %s", folder, gn_errno_text(fd < 0 ? h->local_errno : ENOMEM));
		free(buffer);
		if (fd >= 0)
			close(fd);
		return;
	}
	memset(buffer, 0x5a, DISK_CHUNK);
	h->write_mb_per_s = transfer(fd, buffer, 1, &bytes, 2 * window_s);
	if (h->write_mb_per_s <= 0) {
		add_problem(h, "%.100s cannot be written: %s", folder, gn_errno_text(errno));
	} else {
		if (!direct)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		read_bytes = bytes;
		h->read_mb_per_s = transfer(fd, buffer, 0, &read_bytes, 2 * window_s);
		if (h->read_mb_per_s <= 0)
			add_problem(h, "%.100s cannot be read: %s", folder, gn_errno_text(errno));
	}
	close(fd);
	free(buffer);
}

/* --- facts --- */

static void first_value(const char *path, const char *key, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[512], *value;

	*out = 0;
	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, key, strlen(key)))
			continue;
		value = *key ? strchr(line, ':') : line;
		value = value && *key ? value + 1 : value;
		if (!value)
			continue;
		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = 0;
		snprintf(out, size, "%.79s", value);
		break;
	}
	if (file)
		fclose(file);
}

/* Kernel's own file systems, and what containers and desktops put up, differ between healthy nodes. */
static int is_real(const char *type)
{
	static const char *const pseudo[] = {"proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "cgroup", "cgroup2", "mqueue", "debugfs",
		"tracefs", "securityfs", "pstore", "bpf", "autofs", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "ramfs", "overlay",
		"squashfs", "nsfs", "rpc_pipefs", "efivarfs", "fuse.gvfsd-fuse", "fuse.portal", "selinuxfs"};

	for (size_t i = 0; i < sizeof pseudo / sizeof *pseudo; i++)
		if (!strcmp(type, pseudo[i]))
			return 0;
	return 1;
}

static void list_mounts(char *out, size_t size)
{
	FILE *file = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	size_t len = 0;

	*out = 0;
	while (file && (m = getmntent(file)))
		if (is_real(m->mnt_type) && len + strlen(m->mnt_dir) + 2 < size)
			len += (size_t)snprintf(out + len, size - len, "%s\n", m->mnt_dir);
	if (file)
		endmntent(file);
}

/* Of any type. */
static int is_mounted(const char *path)
{
	FILE *file = setmntent("/proc/self/mounts", "r");
	size_t len = strlen(path);
	struct mntent *m;
	int found = 0;

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (file && !found && (m = getmntent(file)))
		found = strlen(m->mnt_dir) == len && !strncmp(m->mnt_dir, path, len);
	if (file)
		endmntent(file);
	return found;
}

static uint64_t limit_of(int which)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)which, &limit))
		return 0;
	return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

/* The state of a node's GPUs, from NVIDIA's management library (NVML) where there is one. Functions and constants are those of its stable
 * interface; its header is not needed for the build. */

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

/* Blocks while NVML starts, up to some seconds. */
static void gpus_read(struct gn_preflight_gpus *out)
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

static void read_facts(const struct gn_preflight_options *o, struct gn_preflight_host *h)
{
	struct gn_strbuf pmix = {0};
	struct utsname system;
	char digest[GN_SHA256_HEX] = "";

	gethostname(h->host, sizeof h->host - 1);
	if (!uname(&system))
		snprintf(h->kernel, sizeof h->kernel, "%.79s", system.release);
	snprintf(h->gannet, sizeof h->gannet, "%s %.12s", gn_version(), gn_version_source_digest());
	if (!gn_sha256_file("/proc/self/exe", digest, NULL, NULL))
		snprintf(h->binary, sizeof h->binary, "%.16s", digest);
	snprintf(h->ucx, sizeof h->ucx, "%.79s", gn_library_versions_ucx());
	gn_library_versions_pmix(&pmix);
	snprintf(h->pmix, sizeof h->pmix, "%.79s", gn_strbuf_text(&pmix));
	gn_strbuf_release(&pmix);
	snprintf(h->libc, sizeof h->libc, "%.79s", gnu_get_libc_version());
	first_value("/proc/cpuinfo", "model name", h->model, sizeof h->model);
	first_value("/proc/driver/nvidia/version", "", h->driver, sizeof h->driver);
	h->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	h->memlock_bytes = limit_of(RLIMIT_MEMLOCK);
	h->nofile = limit_of(RLIMIT_NOFILE);
	gpus_read(&h->gpus);
	list_mounts(h->mounts, sizeof h->mounts);
	for (size_t i = 0; i < o->mount_count; i++)
		if (!is_mounted(o->mounts[i])) {
			add_problem(h, "nothing is mounted on %.100s", o->mounts[i]);
			h->mounts_missing |= i < 64 ? UINT64_C(1) << i : 0;
		}
}

void gn_preflight_host_measure(const struct gn_preflight_options *o, struct gn_preflight_host *out)
{
	double window_s = o->window_s > 0 ? o->window_s : WINDOW_S;

	memset(out, 0, sizeof *out);
	out->free_gb = -1;
	read_facts(o, out);
	measure_processors(window_s, out);
	if (o->local)
		measure_disk(o->local, window_s, out);
}
