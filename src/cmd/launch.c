#include "src/cmd/cmd.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "transport/bootstrap.h"
#include "transport/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536
#define GRACE_NS 10000000000u
#define KILL_AFTER_NS 2000000000u
#define DRAIN_NS 1000000000u

struct launch_options {
	int64_t ranks;
	const char *bind;
};

/* One stream of one rank: its bytes wait here until a line is whole. */
struct stream {
	int fd, to;
	size_t len;
	char *line;
};

struct child {
	pid_t pid; /* 0: ended */
	struct stream out, error;
};

struct job {
	struct child *children;
	int size, running, signals, forwarded, bind;
	int code;	   /* of the launcher, once something went wrong */
	uint64_t end_ns;   /* when those still running are asked to end; 0: no such time */
	int asked;
};

static void pass_on(const struct stream *s, size_t len)
{
	/* whoever read us is gone: the ranks go on all the same */
	gn_write_full(s->to, s->line, len, "standard output", NULL);
}

/* Writes out the whole lines; a line that fills the buffer goes in parts. */
static void flush_lines(struct stream *s, int all)
{
	char *end = s->len ? memrchr(s->line, '\n', s->len) : NULL;
	size_t len = all || (!end && s->len == LINE_MAX_BYTES) ? s->len : end ? (size_t)(end - s->line) + 1 : 0;

	if (!len)
		return;
	pass_on(s, len);
	memmove(s->line, s->line + len, s->len - len);
	s->len -= len;
}

static void close_stream(struct stream *s)
{
	flush_lines(s, 1);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static void read_stream(struct stream *s)
{
	ssize_t n = gn_read_some(s->fd, s->line + s->len, LINE_MAX_BYTES - s->len);

	if (n <= 0) {
		close_stream(s);
		return;
	}
	s->len += (size_t)n;
	flush_lines(s, 0);
}

/* An equal share of the processors that we may use, neighbours together, when there is one for each rank: ranks that wait
 * for each other by spinning must not sit on one processor. */
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

static void become_rank(char *const *argv, char **environment, int out, int error, pid_t parent)
{
	char name[PATH_MAX];
	sigset_t none;
	int null;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* its own group: a terminal's ^C reaches it once, from us, and we can end what it has started, too */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(GN_EXIT_FAILED);
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(error, 2) < 0)
		_exit(GN_EXIT_FAILED);
	execvpe(argv[0], argv, environment);
	dprintf(2, "gannet launch: cannot run %s: %s\n", gn_text_visible(argv[0], name, sizeof name), strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static enum gn_status open_stream(struct stream *s, int to, int *write_end, struct gn_err *err)
{
	int ends[2];

	s->to = to;
	s->line = malloc(LINE_MAX_BYTES);
	if (!s->line)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a line");
	if (pipe2(ends, O_CLOEXEC))
		return gn_err_errno(err, errno, "no pipe for a rank");
	s->fd = ends[0];
	*write_end = ends[1];
	return GN_OK;
}

static enum gn_status start_rank(struct job *j, struct gn_server *server, int rank, char *const *argv,
				 struct gn_err *err)
{
	struct child *c = &j->children[rank];
	int out = -1, error = -1;
	char **environment = NULL;
	pid_t parent = getpid(), pid;
	enum gn_status status = open_stream(&c->out, STDOUT_FILENO, &out, err);

	if (!status)
		status = open_stream(&c->error, STDERR_FILENO, &error, err);
	if (!status)
		status = gn_server_environment(server, rank, &environment, err);
	if (!status) {
		pid = fork();
		if (pid == 0 && j->bind)
			bind_to_share(rank, j->size);
		if (pid == 0)
			become_rank(argv, environment, out, error, parent);
		if (pid < 0) {
			status = gn_err_errno(err, errno, "cannot start rank %d", rank);
		} else {
			setpgid(pid, pid); /* as the child does: whoever comes first */
			c->pid = pid;
			j->running++;
		}
	}
	gn_server_environment_free(environment);
	if (out >= 0)
		close(out);
	if (error >= 0)
		close(error);
	return status;
}

static void signal_all(const struct job *j, int number)
{
	for (int r = 0; r < j->size; r++)
		if (j->children[r].pid > 0)
			kill(-j->children[r].pid, number);
}

static void end_within(struct job *j, uint64_t ns)
{
	if (!j->end_ns)
		j->end_ns = gn_clock_ns() + ns;
}

static void rank_ended(struct job *j, int rank, int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0, code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

	/* what it started in its group and left behind must not outlive the job */
	kill(-j->children[rank].pid, SIGKILL);
	j->children[rank].pid = 0;
	j->running--;
	if (number && !j->asked)
		fprintf(stderr, "gannet launch: rank %d was killed by signal %d (%s)\n", rank, number, strsignal(number));
	if (!number && !code)
		return;
	if (!j->code)
		j->code = !number ? code : number == j->forwarded ? 128 + number : GN_EXIT_PEER_LOST;
	if (j->running)
		end_within(j, GRACE_NS);
}

static void reap(struct job *j)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int r = 0; r < j->size; r++)
			if (j->children[r].pid == pid)
				rank_ended(j, r, status);
}

static void take_signal(struct job *j)
{
	struct signalfd_siginfo info;

	if (read(j->signals, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	if (info.ssi_signo == SIGCHLD) {
		reap(j);
		return;
	}
	/* asked a second time: no more patience */
	if (info.ssi_signo == SIGINT && j->forwarded == SIGINT)
		signal_all(j, SIGKILL);
	j->forwarded = (int)info.ssi_signo;
	signal_all(j, j->forwarded);
}

static void take_abort(struct job *j, struct gn_server *server)
{
	int rank, code;

	if (!gn_server_aborted(server, &rank, &code) || j->code)
		return;
	fprintf(stderr, "gannet launch: rank %d aborted the job with code %d\n", rank, code);
	j->code = code > 0 && code < 126 ? code : GN_EXIT_FAILED;
	end_within(j, 0);
}

static void hurry(struct job *j)
{
	uint64_t now = gn_clock_ns();

	if (!j->running || !j->end_ns || now < j->end_ns)
		return;
	if (!j->asked)
		fprintf(stderr, "gannet launch: ending the ranks that are left\n");
	signal_all(j, j->asked ? SIGKILL : SIGTERM);
	j->asked = 1;
	j->end_ns = now + KILL_AFTER_NS;
}

static int open_streams(const struct job *j)
{
	int count = 0;

	for (int r = 0; r < j->size; r++)
		count += (j->children[r].out.fd >= 0) + (j->children[r].error.fd >= 0);
	return count;
}

static void turn(struct job *j, struct gn_server *server, struct pollfd *p)
{
	nfds_t n = 2;

	p[0] = (struct pollfd){.fd = j->signals, .events = POLLIN};
	p[1] = (struct pollfd){.fd = gn_server_fd(server), .events = POLLIN};
	for (int r = 0; r < j->size; r++) {
		p[n++] = (struct pollfd){.fd = j->children[r].out.fd, .events = POLLIN};
		p[n++] = (struct pollfd){.fd = j->children[r].error.fd, .events = POLLIN};
	}
	if (poll(p, n, 200) > 0) {
		for (int r = 0; r < j->size; r++) {
			if (p[2 + 2 * r].revents)
				read_stream(&j->children[r].out);
			if (p[3 + 2 * r].revents)
				read_stream(&j->children[r].error);
		}
		if (p[1].revents)
			take_abort(j, server);
		if (p[0].revents)
			take_signal(j);
	}
	hurry(j);
}

/* Until all ranks have ended and said everything; something that a rank left running may hold its pipe open. */
static enum gn_status watch_over(struct job *j, struct gn_server *server, struct gn_err *err)
{
	struct pollfd *p = calloc(2 + 2 * (size_t)j->size, sizeof *p);
	uint64_t over = 0;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", j->size);
	while (j->running || (open_streams(j) && gn_clock_ns() < over)) {
		turn(j, server, p);
		if (j->running)
			over = gn_clock_ns() + DRAIN_NS;
	}
	free(p);
	return GN_OK;
}

static enum gn_status run_job(struct job *j, const char *directory, const struct gn_text_list *program,
			      struct gn_err *err)
{
	char **argv = calloc(program->count + 1, sizeof *argv);
	struct gn_server *server = NULL;
	enum gn_status status = argv ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");

	for (size_t i = 0; !status && i < program->count; i++)
		argv[i] = (char *)(uintptr_t)program->items[i];
	if (!status)
		status = gn_server_create(j->size, directory, &server, err);
	for (int r = 0; r < j->size && !status; r++)
		status = start_rank(j, server, r, argv, err);
	if (status)
		signal_all(j, SIGKILL);
	else
		status = watch_over(j, server, err);
	gn_server_destroy(server, !status && !j->code);
	free(argv);
	return status;
}

static enum gn_status take_signals(struct job *j, struct gn_err *err)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGUSR1);
	sigaddset(&ours, SIGCHLD);
	/* before the PMIx server's threads, which inherit it */
	sigprocmask(SIG_BLOCK, &ours, NULL);
	signal(SIGPIPE, SIG_IGN);
	j->signals = signalfd(-1, &ours, SFD_CLOEXEC);
	return j->signals < 0 ? gn_err_errno(err, errno, "cannot wait for signals") : GN_OK;
}

static enum gn_status make_directory(char *path, size_t size, struct gn_err *err)
{
	const char *parent = getenv("TMPDIR");

	if ((size_t)snprintf(path, size, "%s/gannet-launch.XXXXXX", parent && *parent ? parent : "/tmp") >= size)
		return gn_err_set(err, GN_ERR_USAGE, "TMPDIR is too long");
	if (!mkdtemp(path)) {
		enum gn_status status = gn_err_errno(err, errno, "cannot make %s", path);

		path[0] = 0;
		return status;
	}
	return GN_OK;
}

/* Ranks know each other by what is in a file of the job's own: on a machine with many users PMIx's word is not enough. */
static enum gn_status make_secret(const char *directory, struct gn_err *err)
{
	char path[600];
	enum gn_status status;

	snprintf(path, sizeof path, "%s/secret", directory);
	status = gn_secret_make(path, err);
	if (!status && setenv(GN_BOOTSTRAP_SECRET, path, 1))
		status = gn_err_errno(err, errno, "cannot set " GN_BOOTSTRAP_SECRET);
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct launch_options *o = options;
	struct job j = {.size = (int)o->ranks, .signals = -1, .bind = !strcmp(o->bind, "share")};
	char directory[512] = "";
	struct gn_err err;
	enum gn_status status;

	j.children = calloc((size_t)j.size, sizeof *j.children);
	if (!j.children)
		return GN_EXIT_FAILED;
	for (int r = 0; r < j.size; r++)
		j.children[r].out.fd = j.children[r].error.fd = -1;
	status = take_signals(&j, &err);
	if (!status)
		status = make_directory(directory, sizeof directory, &err);
	if (!status)
		status = make_secret(directory, &err);
	if (!status)
		status = run_job(&j, directory, positional, &err);
	for (int r = 0; r < j.size; r++) {
		close_stream(&j.children[r].out);
		close_stream(&j.children[r].error);
		free(j.children[r].out.line);
		free(j.children[r].error.line);
	}
	if (directory[0])
		gn_remove_tree(directory, NULL);
	if (j.signals >= 0)
		close(j.signals);
	free(j.children);
	return status ? gn_cmd_fail("launch", &err) : j.code;
}

static const struct gn_option options_table[] = {
	{.name = "ranks", .letter = 'n', .kind = GN_OPTION_INT, .offset = offsetof(struct launch_options, ranks),
	 .value_name = "N", .help = "how many ranks to start", .min = 1, .max = 1024, .required = 1},
	{.name = "bind", .kind = GN_OPTION_CHOICE, .offset = offsetof(struct launch_options, bind), .value_name = "HOW",
	 .initial = "share", .help = "give each rank its share of the processors, if there are enough, or all of them",
	 .choices = "share|none"},
};

static const struct gn_command command = {
	.name = "launch",
	.summary = "start ranks of a program on this machine",
	.positional = "PROGRAM [ARG]...",
	.description =
		"Starts N copies of PROGRAM on this machine and lets them find each other through a PMIx server of its own. "
		"Lines that ranks write pass through whole. Standard input is empty.\n\n"
		"SIGTERM, SIGINT and SIGUSR1 are passed on to all ranks. When a rank fails, the others have ten seconds to "
		"end by themselves; then they are ended. All end when the launcher does.\n\n"
		"The exit code is that of the rank that failed first, 4 when it was killed by a signal, 128+S when that "
		"signal S had been passed on by the launcher, and 0 when all went well.",
	.examples = "  gannet launch -n 4 gannet bench allreduce   # four ranks, shared memory\n",
	.options = options_table,
	.option_count = sizeof options_table / sizeof *options_table,
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_launch = {&command, run, sizeof(struct launch_options)};
