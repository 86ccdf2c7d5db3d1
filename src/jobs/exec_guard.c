#include "src/jobs/exec_guard.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

#define BUFFER_BYTES 65536
#define LAST_BYTES 2000

struct gn_exec_output {
	int fd, to, inside; /* inside: of a line that was passed on in part */
	char label[32];
	char buffer[BUFFER_BYTES], last[LAST_BYTES + 1];
	size_t len, last_len;
	int lost_errno; /* of the first write that failed; 0: none */
};

enum gn_status gn_exec_output_create(int to, const char *label, int *write_end, struct gn_exec_output **out, struct gn_err *err)
{
	struct gn_exec_output *s = calloc(1, sizeof *s);
	int ends[2];

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the program's output");
	if (pipe2(ends, O_CLOEXEC)) {
		free(s);
		return gn_err_errno(err, errno, "no pipe for the program's output");
	}
	s->fd = ends[0];
	s->to = to;
	snprintf(s->label, sizeof s->label, "%s", label);
	*write_end = ends[1];
	*out = s;
	return GN_OK;
}

int gn_exec_output_fd(const struct gn_exec_output *s)
{
	return s ? s->fd : -1;
}

static void remember(struct gn_exec_output *s, const char *text, size_t len)
{
	size_t keep = len < LAST_BYTES ? LAST_BYTES - len : 0;

	if (len > LAST_BYTES) {
		text += len - LAST_BYTES;
		len = LAST_BYTES;
	}
	if (s->last_len > keep) {
		memmove(s->last, s->last + s->last_len - keep, keep);
		s->last_len = keep;
	}
	memcpy(s->last + s->last_len, text, len);
	s->last_len += len;
}

/* In one write: a line and its label. The program continues when that fails. */
static void pass_on(struct gn_exec_output *s, const char *text, size_t len)
{
	char both[BUFFER_BYTES + sizeof s->label];
	size_t label = s->inside ? 0 : strlen(s->label);

	memcpy(both, s->label, label);
	memcpy(both + label, text, len);
	if (gn_write_full(s->to, both, label + len, "output", NULL) && errno != EPIPE && !s->lost_errno)
		s->lost_errno = errno;
	s->inside = text[len - 1] != '\n';
}

static void flush(struct gn_exec_output *s, int all)
{
	size_t done = 0;
	char *end;

	/* without labels as many lines as there are, at once */
	while (done < s->len) {
		end = *s->label ? memchr(s->buffer + done, '\n', s->len - done) : memrchr(s->buffer + done, '\n', s->len - done);
		if (!end && !all && (done || s->len < BUFFER_BYTES))
			break;
		end = end ? end + 1 : s->buffer + s->len;
		pass_on(s, s->buffer + done, (size_t)(end - s->buffer) - done);
		done = (size_t)(end - s->buffer);
	}
	memmove(s->buffer, s->buffer + done, s->len - done);
	s->len -= done;
}

void gn_exec_output_read(struct gn_exec_output *s)
{
	ssize_t n;

	if (!s || s->fd < 0)
		return;
	n = gn_read_some(s->fd, s->buffer + s->len, BUFFER_BYTES - s->len);
	if (n <= 0) {
		flush(s, 1);
		close(s->fd);
		s->fd = -1;
		return;
	}
	remember(s, s->buffer + s->len, (size_t)n);
	s->len += (size_t)n;
	flush(s, 0);
}

const char *gn_exec_output_last(struct gn_exec_output *s)
{
	char *first;

	if (!s)
		return "";
	s->last[s->last_len] = 0;
	if (s->last_len < LAST_BYTES)
		return s->last;
	/* half a line says little */
	first = memchr(s->last, '\n', s->last_len);
	return first && first[1] ? first + 1 : s->last;
}

enum gn_status gn_exec_output_end(struct gn_exec_output *s, struct gn_err *err)
{
	if (!s)
		return GN_OK;
	flush(s, 1);
	return s->lost_errno ? gn_err_errno(err, s->lost_errno, "cannot write %s", s->to == 1 ? "standard output" : "standard error") : GN_OK;
}

void gn_exec_output_destroy(struct gn_exec_output *s)
{
	if (!s)
		return;
	flush(s, 1);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}
