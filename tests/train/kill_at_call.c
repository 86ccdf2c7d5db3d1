/* kill_at_call FOLDER K PROGRAM ARGUMENT...: runs a program and kills it, with all its threads, right before its K-th system call that
 * changes something below FOLDER: write, fsync, rename, open for writing, mkdir, unlink, link and what is like them. Exit code 9 when it
 * was killed, else the program's. K 0: it is not killed, and each call is a line on standard output. Exit code 77: it cannot be traced. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a call names what it changes: arguments that are a path, a folder's descriptor before a path, or a descriptor; -1: none. */
struct call {
	long number;
	const char *name;
	int path, folder, fd, flags;
};

static const struct call calls[] = {
	{SYS_write, "write", -1, -1, 0, -1},
	{SYS_pwrite64, "pwrite", -1, -1, 0, -1},
	{SYS_writev, "writev", -1, -1, 0, -1},
	{SYS_fsync, "fsync", -1, -1, 0, -1},
	{SYS_fdatasync, "fdatasync", -1, -1, 0, -1},
	{SYS_ftruncate, "ftruncate", -1, -1, 0, -1},
	{SYS_openat, "openat", 1, 0, -1, 2},
	{SYS_mkdirat, "mkdirat", 1, 0, -1, -1},
	{SYS_unlinkat, "unlinkat", 1, 0, -1, -1},
	{SYS_renameat2, "renameat2", 1, 0, -1, -1},
	{SYS_symlinkat, "symlinkat", 2, 1, -1, -1},
	{SYS_linkat, "linkat", 3, 2, -1, -1},
#ifdef SYS_renameat
	{SYS_renameat, "renameat", 1, 0, -1, -1},
#endif
#ifdef SYS_open /* older names, which some processors' kernels lack */
	{SYS_open, "open", 0, -1, -1, 1},
	{SYS_creat, "creat", 0, -1, -1, -1},
	{SYS_mkdir, "mkdir", 0, -1, -1, -1},
	{SYS_rmdir, "rmdir", 0, -1, -1, -1},
	{SYS_unlink, "unlink", 0, -1, -1, -1},
	{SYS_rename, "rename", 0, -1, -1, -1},
	{SYS_symlink, "symlink", 1, -1, -1, -1},
	{SYS_link, "link", 1, -1, -1, -1},
#endif
};
enum { CALLS = sizeof calls / sizeof *calls, CANNOT_TRACE = 77, KILLED = 9 };

/* In the child: these calls stop it. */
static int stop_at_calls(void)
{
	struct sock_filter filter[CALLS + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog program = {CALLS + 3, filter};

	for (int i = 0; i < CALLS; i++)
		filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i].number, (uint8_t)(CALLS - i), 0);
	filter[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	filter[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The path behind a descriptor of the process. */
static void path_of(pid_t pid, int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t len;

	if (fd == AT_FDCWD)
		snprintf(link, sizeof link, "/proc/%d/cwd", (int)pid);
	else
		snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, fd);
	len = readlink(link, path, PATH_MAX - 1);
	path[len > 0 ? len : 0] = '\0';
}

/* Page by page, for the string may end before memory does. */
static void read_string(pid_t pid, uint64_t address, char out[PATH_MAX])
{
	size_t done = 0;

	while (done < PATH_MAX - 1 && !memchr(out, '\0', done)) {
		size_t len = 4096 - (address + done) % 4096;
		struct iovec to = {out + done, len < PATH_MAX - 1 - done ? len : PATH_MAX - 1 - done};
		struct iovec from = {(void *)(uintptr_t)(address + done), to.iov_len};
		ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	out[done] = '\0';
}

/* What a stopped call changes; NULL: no call of these, or it only reads. */
static const struct call *look(pid_t pid, char path[2 * PATH_MAX])
{
	struct __ptrace_syscall_info info;
	const struct call *c = NULL;
	char name[PATH_MAX];

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_SECCOMP)
		return NULL;
	for (int i = 0; i < CALLS && !c; i++)
		if (calls[i].number == (long)info.seccomp.nr)
			c = &calls[i];
	if (!c || (c->flags >= 0 && !(info.seccomp.args[c->flags] & (O_WRONLY | O_RDWR | O_CREAT))))
		return NULL;
	path[0] = '\0';
	if (c->fd >= 0) {
		path_of(pid, (int)info.seccomp.args[c->fd], path);
		return c;
	}
	read_string(pid, info.seccomp.args[c->path], name);
	if (name[0] != '/')
		path_of(pid, c->folder >= 0 ? (int)info.seccomp.args[c->folder] : AT_FDCWD, path);
	if (name[0] != '/')
		strcat(path, "/");
	strncat(path, name, PATH_MAX);
	return c;
}

/* Until the program, the first process, has ended. */
static int follow(pid_t first, const char *folder, long k)
{
	char path[2 * PATH_MAX];
	size_t len = strlen(folder);
	long seen = 0;

	for (;;) {
		int state, signal_number = 0;
		pid_t pid = waitpid(-1, &state, __WALL);

		if (pid < 0)
			return 1;
		if (pid == first && (WIFEXITED(state) || WIFSIGNALED(state)))
			return WIFEXITED(state) ? WEXITSTATUS(state) : k && seen >= k ? KILLED : 1;
		if (!WIFSTOPPED(state))
			continue;
		if (state >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
			const struct call *c = look(pid, path);

			if (c && !strncmp(path, folder, len) && (path[len] == '/' || !path[len])) {
				seen++;
				if (!k)
					printf("%ld %s %s\n", seen, c->name, path[len] ? path + len + 1 : ".");
				if (seen == k)
					kill(first, SIGKILL);
			}
		} else if (!(state >> 16) && WSTOPSIG(state) != SIGSTOP && WSTOPSIG(state) != SIGTRAP) {
			signal_number = WSTOPSIG(state);
		}
		ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)signal_number);
	}
}

int main(int argc, char **argv)
{
	long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
	int state;
	pid_t pid;

	if (argc < 4)
		return 2;
	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(CANNOT_TRACE);
		raise(SIGSTOP);
		if (stop_at_calls())
			_exit(CANNOT_TRACE);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &state, 0) != pid || !WIFSTOPPED(state) || ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options))
		return CANNOT_TRACE;
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	return follow(pid, argv[1], atol(argv[2]));
}
