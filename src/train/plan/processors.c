#include "src/train/plan/processors.h"

#include "src/base/file.h"
#include "transport/coll/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_kernel(const struct gn_processors_rank *ranks, int count, const char *kernel, struct gn_processors *out)
{
	cpu_set_t all;

	CPU_ZERO(&all);
	*out = (struct gn_processors){0};
	for (int r = 0; r < count; r++) {
		if (strncmp(ranks[r].kernel, kernel, sizeof ranks[r].kernel))
			continue;
		CPU_OR(&all, &all, &ranks[r].allowed);
		out->ranks++;
		out->threads += ranks[r].threads;
	}
	out->processors = CPU_COUNT(&all);
}

void gn_processors_count(const struct gn_processors_rank *ranks, int count, struct gn_processors *out)
{
	for (int r = 0; r < count; r++) {
		struct gn_processors here;

		/* Neighbours in rank order mostly share a kernel: each is counted once then. */
		if (r && !strncmp(ranks[r].kernel, ranks[r - 1].kernel, sizeof ranks[r].kernel))
			continue;
		count_kernel(ranks, count, ranks[r].kernel, &here);
		if (!r || (int64_t)here.threads * out->processors > (int64_t)out->threads * here.processors)
			*out = here;
	}
}

enum gn_status gn_processors_gather(struct gn_comm *comm, int threads, struct gn_processors *out, struct gn_err *err)
{
	int ranks = gn_comm_size(comm);
	struct gn_processors_rank mine, *all = calloc((size_t)ranks, sizeof *all);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks);

	memset(&mine, 0, sizeof mine);
	/* the same for all that runs on one kernel, whatever its host is called */
	if (gn_file_read_start("/proc/sys/kernel/random/boot_id", mine.kernel, sizeof mine.kernel) <= 0)
		snprintf(mine.kernel, sizeof mine.kernel, "%s", gn_world_host_of(gn_comm_world(comm), gn_comm_rank(comm)));
	if (sched_getaffinity(0, sizeof mine.allowed, &mine.allowed))
		memset(&mine.allowed, 0xff, sizeof mine.allowed);
	mine.threads = threads;
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, all, err);
	if (!status)
		gn_processors_count(all, ranks, out);
	free(all);
	return status;
}

int gn_processors_shared(const struct gn_processors *p)
{
	return p->threads > p->processors;
}
