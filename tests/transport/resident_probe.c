/* A rank that tells how much memory it has: as soon as there is a communicator, and after sums in every way that takes memory of
 * the node's.
 * usage: resident_probe
 * Prints "rank R of N: start rss K pss K gannet K ucx K after ..." by /proc/self/smaps, in KiB: resident, the proportional share of
 * it, and resident of what ranks share by gannet and by UCX. COMMIT_FAILS=K in the environment: the K-th request of shared memory
 * finds none. Exit codes as gannet's. */
#include "src/base/log.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONG_BYTES ((size_t)1 << 20)

struct use {
	long rss, pss, gannet, ucx; /* KiB */
};

/* Instead of the library's. */
int posix_fallocate(int fd, off_t offset, off_t len)
{
	static int count;
	const char *fails = getenv("COMMIT_FAILS");

	if (fails && ++count == atoi(fails))
		return ENOSPC;
	return syscall(SYS_fallocate, fd, 0, offset, len) ? errno : 0;
}

static struct use look(void)
{
	struct use u = {0};
	char line[512];
	long *kind = NULL, kib;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(line, sizeof line, f)) {
		const char *dash = strchr(line, '-'), *space = strchr(line, ' ');

		if (dash && space && dash < space)
			kind = strstr(line, "/memfd:gannet") ? &u.gannet : strstr(line, "/ucx_shm") ? &u.ucx : NULL;
		else if (sscanf(line, "Pss: %ld", &kib) == 1)
			u.pss += kib;
		else if (sscanf(line, "Rss: %ld", &kib) == 1) {
			u.rss += kib;
			if (kind)
				*kind += kib;
		}
	}
	if (f)
		fclose(f);
	return u;
}

static void tell(const char *when, const struct use *u)
{
	printf(" %s rss %ld pss %ld gannet %ld ucx %ld", when, u->rss, u->pss, u->gannet, u->ucx);
}

/* All elements of all ranks are the same. */
static enum gn_status sum(struct gn_comm *c, float *out, size_t count, const char *algorithm, int value, struct gn_err *err)
{
	struct gn_coll_args a = {.out = out, .count = count, .algorithm = algorithm};
	enum gn_status status;

	for (size_t i = 0; i < count; i++)
		out[i] = (float)value;
	status = gn_comm_run(c, &a, err);
	for (size_t i = 0; i < count && !status; i++)
		if (out[i] != (float)(gn_comm_size(c) * value))
			status = gn_err_set(err, GN_ERR_FAILED, "element %zu of %zu is %g", i, count, (double)out[i]);
	return status;
}

/* Memory of the node's and ordinary memory, short and long, by words of lanes, and again in places that served before. */
static enum gn_status sums(struct gn_comm *c, struct use *after, struct gn_err *err)
{
	static const size_t sizes[] = {8, 1024, 8192, LONG_BYTES};
	void *shared = NULL;
	float *own = calloc(1, LONG_BYTES);
	enum gn_status status = own ? gn_comm_alloc(c, LONG_BYTES, &shared, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");

	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < 4 && !status; i++) {
			status = sum(c, shared, sizes[i] / sizeof *own, NULL, round, err);
			if (!status)
				status = sum(c, own, sizes[i] / sizeof *own, NULL, round, err);
			if (!status)
				status = sum(c, shared, sizes[i] / sizeof *own, "ring", round, err);
		}
	/* by letters of all kinds, each in the place that the one before has just left */
	for (int round = 0; round < 500 && !status; round++)
		status = sum(c, own, (size_t)(round * 7 % 40 + 1), "shared", round, err);
	*after = look();
	if (!status)
		gn_comm_free(c, shared);
	free(own);
	return status;
}

int main(void)
{
	struct gn_world_options patient = {.limits = {.join_s = 120, .heartbeat_s = 60, .stall_s = 60}};
	struct gn_world *world = NULL;
	struct gn_comm *comm = NULL;
	struct gn_log *log = NULL;
	struct gn_err err = {0};
	struct use start = {0}, after = {0};
	enum gn_status status;

	gn_log_create(2, GN_LOG_WARN, &log, NULL);
	status = gn_world_create(&patient, log, &world, &err);
	if (!status)
		status = gn_comm_create(world, NULL, log, &comm, &err);
	start = look();
	if (!status)
		status = gn_comm_barrier(comm, &err);
	if (!status)
		status = sums(comm, &after, &err);
	if (!status)
		status = gn_comm_barrier(comm, &err);
	if (!status) {
		printf("rank %d of %d:", gn_world_rank(world), gn_world_size(world));
		tell("start", &start);
		tell("after", &after);
		printf("\n");
	} else if (world && status != GN_ERR_PEER_LOST) {
		gn_world_abort(world, err.status, err.text);
	}
	gn_comm_destroy(comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return status ? exit_code(&err) : 0;
}
