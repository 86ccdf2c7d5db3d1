#include "src/cmd/launch_internal.h"

#include "src/base/text.h"
#include "src/cmd/cmd.h"
#include "src/jobs/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Binds the rank to an equal, contiguous share of this process's processors when there is at least one per rank: ranks that
 * busy-wait for each other must not share a processor. */
static void bind_to_share(int rank, int size)
{
	cpu_set_t all, share;
	int count, seen = 0;

	if (sched_getaffinity(0, sizeof all, &all) || (count = CPU_COUNT(&all)) < size)
		return;
	CPU_ZERO(&share);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			if (seen >= rank * count / size && seen < (rank + 1) * count / size)
				CPU_SET(cpu, &share);
			seen++;
		}
	sched_setaffinity(0, sizeof share, &share);
}

static void exec_rank(char *const *argv, char **environment, int out, int error, pid_t parent)
{
	char name[PATH_MAX];
	struct gn_err err;
	sigset_t none;
	int null;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	/* a shell ignores SIGINT for background processes; the launcher forwards SIGINT to the ranks */
	signal(SIGINT, SIG_DFL);
	/* own process group: a terminal's ^C reaches a rank only through the launcher, which can also signal the rank's child
	 * processes */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(GN_EXIT_FAILED);
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(error, 2) < 0)
		_exit(GN_EXIT_FAILED);
	if (gn_program_check(argv[0], &err) == GN_ERR_USAGE) {
		dprintf(2, "gannet launch: %s\n", err.text);
		_exit(127);
	}
	execvpe(argv[0], argv, environment);
	dprintf(2, "gannet launch: cannot run %s: %s\n", gn_text_visible(argv[0], name, sizeof name), strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

enum gn_status gn_launch_rank_start(struct gn_launch_rank *r, struct gn_pmix_server *server, int rank, int size, int bind,
				    char *const *argv, struct gn_err *err)
{
	int out = -1, error = -1;
	char **environment = NULL;
	pid_t parent = getpid(), pid;
	enum gn_status status = gn_exec_output_create(STDOUT_FILENO, "", &out, &r->out, err);

	if (!status)
		status = gn_exec_output_create(STDERR_FILENO, "", &error, &r->error, err);
	if (!status)
		status = gn_pmix_server_environment(server, rank, &environment, err);
	if (!status) {
		pid = fork();
		if (pid == 0 && bind)
			bind_to_share(rank, size);
		if (pid == 0)
			exec_rank(argv, environment, out, error, parent);
		if (pid < 0) {
			status = gn_err_errno(err, errno, "cannot start rank %d (see ulimit -u)", rank);
		} else {
			setpgid(pid, pid); /* the child does the same; either may run first */
			r->pid = pid;
		}
	}
	gn_pmix_server_environment_free(environment);
	if (out >= 0)
		close(out);
	if (error >= 0)
		close(error);
	return status;
}
