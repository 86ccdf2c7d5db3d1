#include "src/jobs/exec_guard.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/process.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* As many as gannet launch starts. */
#define PROGRAMS_MAX 1024
#define ENVIRONMENT_MAX ((size_t)2 << 20)
/* A process that the kernel does not let go of is left. */
#define KILL_NS 5000000000u
#define END_MS 1000

/* From the launcher. program 0: it ends in order. */
struct order {
	pid_t program;
	int ended;
};

struct process {
	pid_t pid;
	int chosen;
	struct gn_process is;
};

struct watch {
	const char *mark;
	pid_t programs[PROGRAMS_MAX];
	int program_count;
	struct process *list;
	size_t count, room;
	char *text; /* ENVIRONMENT_MAX */
};

/* Whether a process is one of the programs, or known by group or mark; fills in the rest. Not if it has ended. */
static int read_process(struct watch *w, struct process *p)
{
	char path[64];
	ssize_t len;

	if (!gn_process_read(p->pid, &p->is) || gn_process_has_ended(&p->is))
		return 0;
	for (int i = 0; i < w->program_count; i++)
		p->chosen |= p->pid == w->programs[i] || p->is.group == w->programs[i];
	snprintf(path, sizeof path, "/proc/%d/environ", (int)p->pid);
	len = p->chosen ? 0 : gn_file_read_start(path, w->text, ENVIRONMENT_MAX);
	p->chosen |= len > 0 && memmem(w->text, (size_t)len, w->mark, strlen(w->mark));
	return 1;
}

static void list_processes(struct watch *w)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	w->count = 0;
	while (dir && (entry = readdir(dir))) {
		struct process p = {.pid = (pid_t)strtol(entry->d_name, NULL, 10)};

		if (p.pid <= 1 || p.pid == getpid() || !read_process(w, &p))
			continue;
		if (w->count == w->room) {
			struct process *more = realloc(w->list, (w->room + 1024) * sizeof *more);

			if (!more)
				break;
			w->list = more;
			w->room += 1024;
		}
		w->list[w->count++] = p;
	}
	if (dir)
		closedir(dir);
}

static int choose_children(struct watch *w)
{
	int chosen = 0;

	for (size_t i = 0; i < w->count; i++)
		for (size_t k = 0; k < w->count && !w->list[i].chosen; k++)
			if (w->list[k].chosen && w->list[k].pid == w->list[i].is.parent)
				chosen = w->list[i].chosen = 1;
	return chosen;
}

static void kill_all(struct watch *w)
{
	uint64_t until = gn_clock_ns() + KILL_NS;
	int left = 1;

	while (left && gn_clock_ns() < until) {
		list_processes(w);
		while (choose_children(w))
			;
		left = 0;
		for (size_t i = 0; i < w->count; i++)
			left += w->list[i].chosen && !kill(w->list[i].pid, SIGKILL);
		gn_clock_sleep_ns(2000000);
	}
}

static void close_all_but(int kept)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int fd = (int)strtol(entry->d_name, NULL, 10);

		if (*entry->d_name != '.' && fd != kept && fd != dirfd(dir))
			close(fd);
	}
	if (dir)
		closedir(dir);
}

static void watch(int fd, const char *mark)
{
	struct watch w = {.mark = mark, .text = malloc(ENVIRONMENT_MAX)};
	struct order o;

	setsid();
	prctl(PR_SET_NAME, "gannet-guard");
	close_all_but(fd);
	if (!w.text || chdir("/"))
		_exit(1);
	while (recv(fd, &o, sizeof o, 0) == (ssize_t)sizeof o) {
		int i = 0;

		if (!o.program)
			_exit(0);
		while (o.ended && i < w.program_count && w.programs[i] != o.program)
			i++;
		if (!o.ended && w.program_count < PROGRAMS_MAX)
			w.programs[w.program_count++] = o.program;
		else if (o.ended && i < w.program_count)
			w.programs[i] = w.programs[--w.program_count];
	}
	kill_all(&w);
	_exit(0);
}

enum gn_status gn_exec_guard_start(struct gn_exec_guard *g, struct gn_err *err)
{
	const char *outer = getenv(GN_EXEC_GUARD);
	char mark[64];
	sigset_t all, before;
	int ends[2], len;

	snprintf(mark, sizeof mark, "%ld-%llx", (long)getpid(), (unsigned long long)gn_clock_ns());
	len = snprintf(g->marks, sizeof g->marks, "%s%s%s", outer ? outer : "", outer ? "," : "", mark);
	if (len >= (int)sizeof g->marks)
		memcpy(g->marks, mark, sizeof mark);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return gn_err_errno(err, errno, "no socket to a process that ends programs if this one is killed");
	/* all signals stay blocked in the child */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	g->pid = fork();
	if (!g->pid) {
		close(ends[1]);
		watch(ends[0], mark);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(ends[0]);
	g->fd = ends[1];
	if (g->pid > 0)
		return GN_OK;
	g->pid = 0;
	close(g->fd);
	return gn_err_errno(err, errno, "cannot start a process that ends programs if this one is killed (see ulimit -u)");
}

void gn_exec_guard_tell(const struct gn_exec_guard *g, pid_t program, int ended)
{
	struct order o = {program, ended};
	ssize_t sent;

	/* a guard that is gone guards nothing */
	do
		sent = g->pid ? send(g->fd, &o, sizeof o, MSG_NOSIGNAL) : 0;
	while (sent < 0 && errno == EINTR);
}

void gn_exec_guard_end(struct gn_exec_guard *g)
{
	struct pollfd p = {.fd = g->fd};
	int ready;

	if (!g->pid)
		return;
	gn_exec_guard_tell(g, 0, 1);
	/* POLLHUP: it has ended. One that still holds its end is still there to be killed, because somebody has stopped it. */
	do
		ready = poll(&p, 1, END_MS);
	while (ready < 0 && errno == EINTR);
	if (!ready)
		kill(g->pid, SIGKILL);
	close(g->fd);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}
