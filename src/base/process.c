#include "src/base/process.h"

#include "src/base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int gn_process_read(int64_t pid, struct gn_process *out)
{
	char path[64], text[1024];
	const char *end;

	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	gn_file_read_start(path, text, sizeof text);
	/* the name of the program may contain any character */
	end = strrchr(text, ')');
	return end && sscanf(end, ") %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64, &out->state, &out->parent,
			     &out->group, &out->start) == 4;
}

int gn_process_has_ended(const struct gn_process *p)
{
	return p->state == 'Z' || p->state == 'X';
}

double gn_process_age_s(void)
{
	struct gn_process self;
	struct timespec now;

	if (!gn_process_read(getpid(), &self) || clock_gettime(CLOCK_BOOTTIME, &now))
		return -1;
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)self.start / (double)sysconf(_SC_CLK_TCK);
}

enum gn_status gn_descriptors_want(size_t wanted, const char *what_for, struct gn_err *err)
{
	struct rlimit limit, raised;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return gn_err_errno(err, errno, "cannot read the limit of open files (ulimit -n)");
	raised = limit;
	raised.rlim_cur = limit.rlim_max;
	/* a system may refuse more than it has configured, whatever the hard limit is */
	if (limit.rlim_cur != limit.rlim_max && !setrlimit(RLIMIT_NOFILE, &raised))
		limit = raised;
	if (limit.rlim_cur >= wanted)
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "%s needs %zu open files and may have %llu: raise the hard limit on this host "
			  "(ulimit -n; "
			  "under Slurm LimitNOFILE of slurmd, or PropagateResourceLimits)", what_for, wanted,
			  (unsigned long long)limit.rlim_cur);
}
