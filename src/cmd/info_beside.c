/* Processes that measure a network's pieces as long as this one does, as the other ranks of a node would compute beside it. */
#include "src/cmd/info.h"

#include "src/base/thread_pool.h"

#include <omp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void measure_for_ever(const struct gn_model *model, const struct gn_plan_options *plan, pid_t parent)
{
	struct gn_cut_costs costs = {.pieces = NULL};
	struct gn_err err;

	while (getppid() == parent && !gn_cut_costs_measure(model, plan, 1, &costs, &err))
		gn_cut_costs_release(&costs);
	_exit(0);
}

int gn_info_beside_start(const struct gn_model *model, const struct gn_plan_options *plan, int ranks, pid_t pids[GN_INFO_BESIDE_MAX])
{
	const int room = gn_cpu_count() / omp_get_max_threads(), all = ranks < room ? ranks : room;
	const pid_t parent = getpid();
	int count = 0;

	/* no thread but this one is there yet */
	while (count + 1 < all && count < GN_INFO_BESIDE_MAX) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			measure_for_ever(model, plan, parent);
		}
		pids[count++] = pid;
	}
	return count;
}

void gn_info_beside_stop(const pid_t *pids, int count)
{
	for (int i = 0; i < count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < count; i++)
		waitpid(pids[i], NULL, 0);
}
