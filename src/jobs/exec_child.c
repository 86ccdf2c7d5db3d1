#include "src/jobs/exec_run.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/jobs/exec_guard.h"
#include "src/base/oom.h"
#include "transport/bootstrap/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* For output that something left behind holds open. */
#define DRAIN_NS 1000000000u

extern char **environ;

struct gn_exec_child {
	struct gn_exec_output *out, *error; /* NULL: the program writes there itself */
	struct gn_exec_guard guard;
	pid_t pid;
	int group, ended, status, passed_on;
	uint64_t oom_kills, over_ns;
};

/* --- signals --- */

static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

/* What the handler writes: its own state, one for the process as handlers are. */
struct arrived {
	int number, from_kernel;
	pid_t sender;
};
static int signal_pipe[2] = {-1, -1};

static void on_signal(int number, siginfo_t *info, void *context)
{
	struct arrived a = {number, info->si_code == SI_KERNEL, info->si_pid};
	int kept = errno;

	(void)context;
	/* a full pipe has signals enough */
	if (write(signal_pipe[1], &a, sizeof a) < 0)
		errno = kept;
	errno = kept;
}

static enum gn_status open_signals(struct gn_err *err)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART}, before;

	if (signal_pipe[0] < 0 && pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK))
		return gn_err_errno(err, errno, "no pipe for signals");
	/* what the program leaves behind becomes ours, to be ended */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (!sigaction(numbers[i], NULL, &before) && (before.sa_handler != SIG_IGN || numbers[i] == SIGCHLD))
			sigaction(numbers[i], &action, NULL);
	return GN_OK;
}

/* --- start --- */

static void set_environment(const struct gn_exec_child_options *o, const char *marks)
{
	const char *outer = getenv(GN_BOOTSTRAP_DEPTH);
	char name[256], depth[16];

	for (char **e = environ; *e;) {
		snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
		/* unsetenv moves the next one here */
		if (gn_exec_environment_hides(o->place, name))
			unsetenv(name);
		else
			e++;
	}
	snprintf(depth, sizeof depth, "%d", outer ? atoi(outer) + 1 : 1);
	setenv(GN_BOOTSTRAP_DEPTH, depth, 1);
	setenv(GN_EXEC_GUARD, marks, 1);
	for (size_t i = 0; i < o->environment->count; i++)
		setenv(o->environment->items[i].name, o->environment->items[i].value, 1);
}

static void exec_program(const struct gn_exec_child_options *o, const struct gn_exec_child *c, int out, int error, pid_t parent)
{
	struct sigaction now;
	char name[4096];
	sigset_t none;

	if (c->group)
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if ((out >= 0 && dup2(out, 1) < 0) || (error >= 0 && dup2(error, 2) < 0))
		_exit(1);
	if (CPU_COUNT(o->cores))
		sched_setaffinity(0, sizeof *o->cores, o->cores);
	set_environment(o, c->guard.marks);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (!sigaction(numbers[i], NULL, &now) && now.sa_handler != SIG_IGN)
			signal(numbers[i], SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(o->argv[0], o->argv);
	dprintf(2, "gannet exec: cannot run %s: %s\n", gn_text_visible(o->argv[0], name, sizeof name), strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static pid_t fork_program(const struct gn_exec_child_options *o, const struct gn_exec_child *c, int out, int error)
{
	pid_t parent = getpid(), pid;
	sigset_t all, before;

	/* the handler is not for the child */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid = fork();
	if (!pid)
		exec_program(o, c, out, error, parent);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid > 0 && c->group)
		setpgid(pid, pid);
	if (pid > 0)
		gn_exec_guard_tell(&c->guard, pid, 0);
	return pid;
}

enum gn_status gn_exec_child_start(const struct gn_exec_child_options *o, struct gn_exec_child **out, struct gn_err *err)
{
	struct gn_exec_child *c = calloc(1, sizeof *c);
	int write_out = -1, write_error = -1;
	enum gn_status status;
	char label[32] = "";

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the program");
	c->group = !isatty(0);
	c->oom_kills = gn_oom_kills();
	if (o->label)
		snprintf(label, sizeof label, "%*d: ", snprintf(NULL, 0, "%d", o->place->size - 1), o->place->rank);
	status = open_signals(err);
	if (!status)
		status = gn_exec_guard_start(&c->guard, err);
	if (!status && o->label)
		status = gn_exec_output_create(1, label, &write_out, &c->out, err);
	if (!status && (o->label || !isatty(2)))
		status = gn_exec_output_create(2, label, &write_error, &c->error, err);
	if (!status) {
		c->pid = fork_program(o, c, write_out, write_error);
		if (c->pid < 0)
			status = gn_err_errno(err, errno, "cannot start %s", o->argv[0]);
	}
	if (write_out >= 0)
		close(write_out);
	if (write_error >= 0)
		close(write_error);
	if (status)
		gn_exec_child_destroy(c);
	else
		*out = c;
	return status;
}

/* --- while it runs --- */

/* slurmstepd signals every process of the step itself, and so does a terminal those of its group. */
static int program_has_it(const struct gn_exec_child *c, const struct arrived *a)
{
	char path[64], name[32];

	if (a->from_kernel)
		return !c->group;
	snprintf(path, sizeof path, "/proc/%d/comm", (int)a->sender);
	gn_file_read_start(path, name, sizeof name);
	return !strncmp(name, "slurmstepd", 10);
}

static void reap(struct gn_exec_child *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != c->pid)
			continue;
		c->ended = 1;
		c->status = status;
		c->over_ns = gn_clock_ns() + DRAIN_NS;
		if (c->group)
			kill(-c->pid, SIGKILL);
		gn_exec_guard_tell(&c->guard, c->pid, 1);
	}
}

static void take_signals(struct gn_exec_child *c)
{
	struct arrived a;

	while (read(signal_pipe[0], &a, sizeof a) == (ssize_t)sizeof a) {
		if (a.number == SIGCHLD)
			continue;
		c->passed_on = a.number;
		if (!program_has_it(c, &a))
			gn_exec_child_signal(c, c->passed_on);
	}
	reap(c);
}

int gn_exec_child_turn(struct gn_exec_child *c, int timeout_ms)
{
	struct pollfd p[3] = {{.fd = signal_pipe[0], .events = POLLIN},
			      {.fd = gn_exec_output_fd(c->out), .events = POLLIN},
			      {.fd = gn_exec_output_fd(c->error), .events = POLLIN}};

	if (poll(p, 3, timeout_ms) > 0) {
		if (p[1].revents)
			gn_exec_output_read(c->out);
		if (p[2].revents)
			gn_exec_output_read(c->error);
		if (p[0].revents)
			take_signals(c);
	}
	if (!c->ended)
		return 1;
	return (gn_exec_output_fd(c->out) >= 0 || gn_exec_output_fd(c->error) >= 0) && gn_clock_ns() < c->over_ns;
}

void gn_exec_child_signal(struct gn_exec_child *c, int number)
{
	if (!c->ended)
		kill(c->group ? -c->pid : c->pid, number);
}

/* --- how it ended --- */

int gn_exec_child_code(const struct gn_exec_child *c)
{
	struct gn_err lost;

	if (!c->status && gn_exec_output_end(c->out, &lost))
		return 1;
	return WIFSIGNALED(c->status) ? 128 + WTERMSIG(c->status) : WEXITSTATUS(c->status);
}

int gn_exec_child_passed_on(const struct gn_exec_child *c)
{
	return c->passed_on;
}

void gn_exec_child_reason(const struct gn_exec_child *c, struct gn_strbuf *out)
{
	int number = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;
	struct gn_err lost;
	char oom[128];

	if (number && number == c->passed_on)
		gn_strbuf_printf(out, "stopped by signal %d (%s), which gannet exec received and passed on", number, strsignal(number));
	else if (!c->status && gn_exec_output_end(c->out, &lost))
		gn_strbuf_printf(out, "exit code 0, but %s", lost.text);
	else if (number)
		gn_strbuf_printf(out, "killed by signal %d (%s)", number, strsignal(number));
	else
		gn_strbuf_printf(out, "exit code %d", WEXITSTATUS(c->status));
	gn_strbuf_puts(out, gn_oom_describe(c->oom_kills, number == SIGKILL, oom, sizeof oom));
}

const char *gn_exec_child_last_lines(const struct gn_exec_child *c)
{
	return gn_exec_output_last(c->error);
}

/* The children of this process by now: orphans of the program included. */
static int kill_children(void)
{
	char path[64], text[4096], *at = text, *end;
	int count = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	gn_file_read_start(path, text, sizeof text);
	for (long pid; (pid = strtol(at, &end, 10)) > 0; at = end) {
		kill((pid_t)pid, SIGKILL);
		count++;
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return count;
}

void gn_exec_child_destroy(struct gn_exec_child *c)
{
	if (!c)
		return;
	if (c->pid > 0)
		gn_exec_child_signal(c, SIGKILL);
	gn_exec_guard_end(&c->guard);
	/* a process that the kernel does not let go of is not waited for */
	for (int i = 0; i < 1000 && kill_children(); i++)
		gn_clock_sleep_ns(1000000);
	gn_exec_output_destroy(c->out);
	gn_exec_output_destroy(c->error);
	free(c);
}
