#include "src/jobs/program.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* --- what can be run --- */

static int is_program(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* Where execvp() finds a program; 0: nowhere. */
static int find_program(const char *name, char path[PATH_MAX])
{
	const char *at = getenv("PATH");

	if (strchr(name, '/'))
		return (size_t)snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && is_program(path);
	for (at = at ? at : "/usr/local/bin:/bin:/usr/bin"; *at; at += strspn(at, ":")) {
		size_t len = strcspn(at, ":");

		if ((size_t)snprintf(path, PATH_MAX, "%.*s/%s", (int)len, at, name) < PATH_MAX && is_program(path))
			return 1;
		at += len;
	}
	return 0;
}

/* What the first line of a script has the kernel start, or env, and is not there; NULL: nothing. Options of env are its own affair. */
static const char *find_missing(char *line)
{
	char *rest = NULL, *word = strtok_r(line, " \t", &rest), path[PATH_MAX];
	size_t len = word ? strlen(word) : 0;

	if (!word || !is_program(word))
		return word;
	if (len < 4 || strcmp(word + len - 4, "/env"))
		return NULL;
	do
		word = strtok_r(NULL, " \t", &rest);
	while (word && (!strcmp(word, "-S") || strchr(word, '=')));
	return word && *word != '-' && !find_program(word, path) ? word : NULL;
}

enum gn_status gn_program_check(const char *name, struct gn_err *err)
{
	char path[PATH_MAX], line[256];
	const char *missing;

	if (!find_program(name, path))
		return gn_err_set(err, GN_ERR_NOT_FOUND, strchr(name, '/') ? "%s is no program that can be run here: %s" : "there is no program %s in PATH%.0s",
				  name, access(name, F_OK) ? strerror(errno) : "it is no file, or may not be executed");
	if (gn_file_read_start(path, line, sizeof line) < 2 || strncmp(line, "#!", 2))
		return GN_OK;
	line[strcspn(line, "\n")] = 0;
	missing = find_missing(line + 2);
	if (!missing)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "line 1 of %s names the interpreter %s, which is not there on this host%s%s", path, missing,
			  strchr(missing, '\r') ? ": the file has line ends of Windows (CR LF), which this removes: sed -i 's/\\r$//' "
						: ": install it, or correct that line", strchr(missing, '\r') ? path : "");
}
