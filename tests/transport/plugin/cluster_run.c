/* Around a check's processes: they are started, watched and judged. */
#include "tests/transport/plugin/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* There in a build with AddressSanitizer. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void child(const struct cluster_check *check, struct cluster *cluster)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	check->run(cluster);
	if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
		fail(cluster, "memory leaks");
	_exit(CODE_OK);
}

/* What a process that ended says about the plugin; 0 when that is fine. Killing oneself is a check's own business. */
static int judge(int rank, int status, int *code, char *text, size_t room)
{
	if (WIFEXITED(status) && (WEXITSTATUS(status) == CODE_OK || WEXITSTATUS(status) == CODE_SKIPPED ||
				  WEXITSTATUS(status) == CODE_FAILED)) {
		*code = WEXITSTATUS(status) == CODE_OK ? 0 : WEXITSTATUS(status) == CODE_SKIPPED ? 2 : 1;
		return *code;
	}
	*code = 1;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		*code = 0;
		return 0;
	}
	/* what the others say of it is no better */
	if (WIFSIGNALED(status))
		snprintf(text, room, "process %d ended by signal %d (%s)", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (!*text)
		snprintf(text, room, "process %d left with exit code %d", rank, WEXITSTATUS(status));
	return 1;
}

static void read_text(int fd, char *text, size_t room)
{
	ssize_t n;

	if (*text)
		return;
	n = recv(fd, text, room - 1, MSG_DONTWAIT);
	text[n > 0 ? n : 0] = 0;
}

/* A process that crashes makes others fail, perhaps before it has ended itself: its end is the better reason. */
static void look_for_a_crash(const struct cluster_check *check, const pid_t *pids, int *ended, char *text, size_t room)
{
	int status, code;

	for (int tries = 0; tries < 12; tries++) {
		nap(20);
		for (int r = 0; r < check->processes; r++) {
			if (ended[r] || waitpid(pids[r], &status, WNOHANG) != pids[r])
				continue;
			ended[r] = 1;
			if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
				judge(r, status, &code, text, room);
				return;
			}
		}
	}
}

/* The first that fails ends the check. */
static int supervise(const struct cluster_check *check, const struct cluster_options *options, const pid_t *pids, int result,
		     char *text, size_t room)
{
	int limit = (check->seconds ? check->seconds : 1) * options->limit_s, left = check->processes, verdict = 0;
	int ended[LAB_PROCESSES_MAX] = {0};
	double until = now_s() + limit;

	while (left && !verdict && now_s() < until) {
		for (int r = 0; r < check->processes && !verdict; r++) {
			int status, code;

			if (ended[r] || waitpid(pids[r], &status, WNOHANG) != pids[r])
				continue;
			ended[r] = 1;
			left--;
			read_text(result, text, room);
			if (judge(r, status, &code, text, room))
				verdict = code;
			if (verdict == 1 && WIFEXITED(status))
				look_for_a_crash(check, pids, ended, text, room);
		}
		nap(2);
	}
	if (left && !verdict) {
		read_text(result, text, room);
		if (!*text)
			snprintf(text, room, "%d of %d processes hang: ended after %d s", left, check->processes, limit);
		verdict = 1;
	}
	for (int r = 0; r < check->processes; r++)
		if (!ended[r]) {
			kill(pids[r], SIGKILL);
			waitpid(pids[r], NULL, 0);
		}
	return verdict;
}

int cluster_run(const struct cluster_check *check, const struct cluster_options *options, char *text, size_t room)
{
	int wires[LAB_PROCESSES_MAX][LAB_PROCESSES_MAX][2], results[2], verdict;
	pid_t pids[LAB_PROCESSES_MAX];

	*text = 0;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, results))
		exit(2);
	for (int a = 0; a < check->processes; a++)
		for (int b = a + 1; b < check->processes; b++)
			if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires[a][b]))
				exit(2);
	fflush(NULL);
	for (int r = 0; r < check->processes; r++) {
		struct cluster cluster = {.options = options, .rank = r, .size = check->processes, .result = results[1]};

		for (int o = 0; o < check->processes; o++)
			cluster.wires[o] = o == r ? -1 : r < o ? wires[r][o][0] : wires[o][r][1];
		pids[r] = fork();
		if (pids[r] < 0)
			exit(2);
		if (pids[r])
			continue;
		/* an end that is held here, too, would never be seen to close */
		for (int a = 0; a < check->processes; a++)
			for (int b = a + 1; b < check->processes; b++)
				for (int i = 0; i < 2; i++)
					if ((i ? b : a) != r)
						close(wires[a][b][i]);
		child(check, &cluster);
	}
	for (int a = 0; a < check->processes; a++)
		for (int b = a + 1; b < check->processes; b++) {
			close(wires[a][b][0]);
			close(wires[a][b][1]);
		}
	verdict = supervise(check, options, pids, results[0], text, room);
	close(results[0]);
	close(results[1]);
	return verdict;
}
