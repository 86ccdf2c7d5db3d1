#include "src/jobs/program.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *const *argv, int quiet, int out)
{
	int none;

	if (out >= 0 && dup2(out, 1) < 0)
		_exit(126);
	if (quiet && (none = open("/dev/null", O_WRONLY)) >= 0)
		dup2(none, 2);
	signal(SIGXFSZ, SIG_DFL);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "gannet: cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

enum gn_status gn_program_run(const char *const *argv, int quiet, struct gn_strbuf *text, struct gn_err *err)
{
	int ends[2] = {-1, -1}, status;
	char part[4096];
	ssize_t n;
	pid_t pid;

	if (text && pipe2(ends, O_CLOEXEC))
		return gn_err_errno(err, errno, "no pipe for %s", argv[0]);
	pid = fork();
	if (!pid)
		become(argv, quiet, ends[1]);
	if (text)
		close(ends[1]);
	while (text && pid > 0 && (n = gn_read_some(ends[0], part, sizeof part)) > 0)
		gn_strbuf_append(text, part, (size_t)n);
	if (text)
		close(ends[0]);
	if (pid < 0)
		return gn_err_errno(err, errno, "cannot start %s", argv[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return gn_err_set(err, GN_ERR_FAILED, "%s failed%s", argv[0], quiet ? "" : ", see above");
	return GN_OK;
}
