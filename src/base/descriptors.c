#include "src/base/descriptors.h"

#include <errno.h>
#include <sys/resource.h>

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
