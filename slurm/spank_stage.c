/*
 * A SPANK plugin for Slurm: srun --gannet-stage=DATASET copies a packed dataset to each node's own disk before the programs of the step
 * start there, and tells them by GANNET_STAGED where it lies. slurm/stage-node does the work; here are the option and the report. Without
 * the option, every function below returns at once.
 *
 * plugstack.conf:  required /usr/local/lib/gannet/spank_gannet_stage.so [stage-node=FILE]
 *
 * The copy is made in the task, between the change to the job's user and the start of the program: nothing of it runs as root, scancel
 * ends it as it ends any task, and srun does not count it against its limit for launching tasks. Of the tasks of a node one copies and the
 * others wait, by the lock of gannet stage.
 */
#include "src/paths.h"

#include <slurm/spank.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(gannet_stage, 1)

/* What slurmstepd or srun was told. Each is a process of its own that starts one step. */
static struct {
	char dataset[PATH_MAX], program[PATH_MAX];
} stage = {.program = GN_STAGE_NODE};

static int take_option(int value, const char *argument, int remote)
{
	(void)value;
	(void)remote;
	if (!argument || argument[0] != '/' || strlen(argument) >= sizeof stage.dataset) {
		slurm_error("--gannet-stage: needs the whole path of a packed dataset, not '%s'", argument ? argument : "");
		return -1;
	}
	strcpy(stage.dataset, argument);
	return 0;
}

/* stage-node as it lies from this plugin, if it does; else where configure was told. */
static void find_stage_node(void)
{
	char path[PATH_MAX];
	Dl_info self;
	const char *slash = dladdr(&stage, &self) ? strrchr(self.dli_fname, '/') : NULL;

	if (slash && (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname, GN_STAGE_NODE_NEAR) < sizeof path &&
	    !access(path, X_OK))
		strcpy(stage.program, path);
}

int slurm_spank_init(spank_t spank, int count, char *arguments[])
{
	static struct spank_option option = {"gannet-stage", "DATASET",
					     "copy a dataset that gannet pack wrote to each node's disk before the tasks start", 1, 0, take_option};
	static const char key[] = "stage-node=";

	find_stage_node();
	for (int i = 0; i < count; i++) {
		if (strncmp(arguments[i], key, sizeof key - 1) || strlen(arguments[i]) - sizeof key + 1 >= sizeof stage.program) {
			slurm_error("gannet_stage: what is '%s' in plugstack.conf?", arguments[i]);
			return -1;
		}
		strcpy(stage.program, arguments[i] + sizeof key - 1);
	}
	/* sbatch and salloc start no tasks */
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_REMOTE)
		return 0;
	return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

static _Noreturn void child(int out, char **environment)
{
	char *arguments[] = {stage.program, stage.dataset, NULL};

	/* standard input is the program's */
	close(STDIN_FILENO);
	if (open("/dev/null", O_RDONLY) != STDIN_FILENO || dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	execve(stage.program, arguments, environment);
	dprintf(STDERR_FILENO, "gannet_stage: %s: %s\n", stage.program, strerror(errno));
	_exit(127);
}

/* Runs stage-node and waits for it. Returns its wait status, or -1; what it printed, up to the end of its line, is in out. */
static int run_stage(char **environment, char *out, size_t bytes)
{
	size_t length = 0;
	int ends[2], status = 0;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid)
		child(ends[1], environment);
	close(ends[1]);
	while (pid > 0 && length < bytes - 1) {
		ssize_t got = read(ends[0], out + length, bytes - 1 - length);

		if (!got || (got < 0 && errno != EINTR))
			break;
		length += got > 0 ? (size_t)got : 0;
	}
	close(ends[0]);
	out[length] = '\0';
	out[strcspn(out, "\n")] = '\0';
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return pid > 0 ? status : -1;
}

/*
 * In each task, as the job's user, before the program. A failure ends the task here: with an error instead, Slurm would go on where
 * plugstack.conf says "optional".
 */
int slurm_spank_task_init(spank_t spank, int count, char *arguments[])
{
	char **environment, host[256] = "", out[PATH_MAX] = "";
	int status;

	(void)count;
	(void)arguments;
	if (!stage.dataset[0])
		return 0;
	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		_exit(1);
	status = run_stage(environment, out, sizeof out);
	if (!status && out[0] == '/' && spank_setenv(spank, "GANNET_STAGED", out, 1) == ESPANK_SUCCESS)
		return 0;
	gethostname(host, sizeof host - 1);
	dprintf(STDERR_FILENO, "gannet_stage: %s: %s was not staged: %s %d\n", host, stage.dataset,
		status > 0 && WIFSIGNALED(status) ? "signal" : "exit code",
		status < 0 ? -1 : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	_exit(1);
}
