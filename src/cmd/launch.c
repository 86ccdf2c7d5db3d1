#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/cmd/launch_internal.h"
#include "src/jobs/program.h"
#include "transport/bootstrap/bootstrap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct launch_options {
	int64_t ranks, grace;
	const char *bind;
	int keep_going;
};

/* The launcher's private folder, locked for its lifetime. */
struct folder {
	char path[512]; /* "": none */
	int lock;
};

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

/* parent, and the name prefix shared by all launchers of this host. The prefix contains the host name: the file system may be
 * shared, and locks of other hosts may be invisible. */
static enum gn_status name_folders(char *parent, size_t parent_size, char *prefix, size_t prefix_size, struct gn_err *err)
{
	const char *set = getenv("TMPDIR");
	char host[64] = "";

	gethostname(host, sizeof host - 1);
	snprintf(prefix, prefix_size, "gannet-launch-%s.", host);
	if ((size_t)snprintf(parent, parent_size, "%s", set && *set ? set : "/tmp") >= parent_size)
		return gn_err_set(err, GN_ERR_USAGE, "TMPDIR is too long");
	return GN_OK;
}

/* Opens and locks a folder of this user that no process holds; else -1. */
static int lock_abandoned(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat info;

	if (fd < 0 || (!fstat(fd, &info) && info.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB)))
		return fd;
	close(fd);
	return -1;
}

/* Removes the folders, with their secrets, of launchers of this user that were killed. Failures are ignored. */
static void remove_abandoned(const char *parent, const char *prefix)
{
	DIR *dir = opendir(parent);
	struct dirent *entry;
	char path[512];
	int lock;

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) || (lock = lock_abandoned(dirfd(dir), entry->d_name)) < 0)
			continue;
		if (!gn_path_join(path, sizeof path, parent, entry->d_name, NULL))
			gn_remove_tree(path, NULL);
		close(lock);
	}
	if (dir)
		closedir(dir);
}

/* 1: locked, or the file system has no locks. 0: another launcher removed the folder first. -1 with errno. */
static int lock_folder(struct folder *f)
{
	struct stat info;

	f->lock = open(f->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f->lock < 0)
		return errno == ENOENT ? 0 : -1;
	if ((!flock(f->lock, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) && !fstat(f->lock, &info) && info.st_nlink)
		return 1;
	close(f->lock);
	f->lock = -1;
	return 0;
}

/* In a world-writable folder without the sticky bit another user could replace the job's folder. */
static enum gn_status check_parent(const char *parent, struct gn_err *err)
{
	const char *what = getenv("TMPDIR") && *getenv("TMPDIR") ? "TMPDIR " : "";
	struct stat info;

	/* GN_ERR_NOT_FOUND would blame the input */
	if (stat(parent, &info))
		return gn_err_set(err, GN_ERR_IO, "%s%s: %s: TMPDIR must name an existing folder", what, parent, strerror(errno));
	if ((info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX))
		return gn_err_set(err, GN_ERR_IO, "%s%s is world-writable without the sticky bit, so that any user "
				  "could replace the job's folder: chmod +t it, or set TMPDIR to another folder", what, parent);
	return GN_OK;
}

static enum gn_status make_folder(struct folder *f, struct gn_err *err)
{
	char parent[384], prefix[96];
	enum gn_status status = name_folders(parent, sizeof parent, prefix, sizeof prefix, err);
	int locked = 0;

	if (!status)
		status = check_parent(parent, err);
	if (status)
		return status;
	remove_abandoned(parent, prefix);
	while (!locked) {
		snprintf(f->path, sizeof f->path, "%s/%sXXXXXX", parent, prefix);
		if (!mkdtemp(f->path)) {
			/* GN_ERR_NOT_FOUND would blame the input */
			status = gn_err_set(err, GN_ERR_IO, "TMPDIR: cannot make %s: %s", f->path, gn_errno_text(errno));
			f->path[0] = 0;
			return status;
		}
		locked = lock_folder(f);
	}
	return locked > 0 ? GN_OK : gn_err_errno(err, errno, "cannot open %s", f->path);
}

static void remove_folder(const struct folder *f)
{
	if (f->path[0])
		gn_remove_tree(f->path, NULL);
	if (f->lock >= 0)
		close(f->lock);
}

/* Ranks authenticate by a secret in a file of the job: on a machine with many users PMIx data is not sufficient proof. */
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

static void clean_environment(void)
{
	struct gn_strbuf dropped = {0};
	char shown[512];

	gn_pmix_server_clean_environment(&dropped);
	if (dropped.len)
		fprintf(stderr, "gannet launch: warning: %s: not used, nor passed on, because PMIx server and ranks could fail to agree\n",
			gn_text_visible(gn_strbuf_text(&dropped), shown, sizeof shown));
	gn_strbuf_release(&dropped);
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct launch_options *o = options;
	const struct gn_launch_options how = {(int)o->ranks, !strcmp(o->bind, "share"), (int)o->grace, o->keep_going};
	struct gn_launch_job *j = NULL;
	struct folder folder = {.lock = -1};
	struct gn_err err;
	enum gn_status status = gn_launch_job_create(&how, &j, &err);
	int code = 0;

	clean_environment();
	if (!status && gn_cmd_lost_folder())
		fprintf(stderr, "gannet launch: warning: %s\n", gn_cmd_lost_folder());
	if (!status)
		status = make_folder(&folder, &err);
	if (!status && setenv(GN_BOOTSTRAP_ENDS_ALL, o->keep_going ? "0" : "1", 1))
		status = gn_err_errno(&err, errno, "cannot set " GN_BOOTSTRAP_ENDS_ALL);
	if (!status)
		status = make_secret(folder.path, &err);
	if (!status)
		status = gn_launch_job_run(j, folder.path, positional, &err);
	if (!status)
		code = gn_launch_job_code(j);
	gn_launch_job_destroy(j);
	remove_folder(&folder);
	return status ? gn_cmd_fail("launch", &err) : code;
}

static const struct gn_option options_table[] = {
	GN_OPT_INT("ranks", offsetof(struct launch_options, ranks), "N", NULL, 1, 1024, "number of ranks", .letter = 'n', .required = 1),
	GN_OPT_CHOICE("bind", offsetof(struct launch_options, bind), "HOW", "share", "share|none", "share: bind each rank to its own "
		    "processors if there are enough; none: do not bind"),
	GN_OPT_INT("grace", offsetof(struct launch_options, grace), "S", "10", 0, 3600, "seconds between the failure of a rank and SIGTERM "
		    "to the others"),
	GN_OPT_FLAG("keep-going", offsetof(struct launch_options, keep_going), "do not end the other ranks when one fails: for programs "
		    "that go on without it"),
};

static const struct gn_command command = {
	.name = "launch",
	.summary = "start ranks of a program on this machine",
	.positional = "PROGRAM [ARG]...",
	.description =
		"Starts N copies of PROGRAM on this machine and connects them by a PMIx server. Output of the ranks is passed on "
		"in whole lines. Standard input is empty.\n\n"
		"SIGTERM, SIGINT, SIGUSR1 and SIGHUP are forwarded to all ranks; a second SIGINT kills them. After a rank fails, the "
		"others have --grace seconds to end by themselves; then they are terminated. A rank that is stopped (SIGSTOP) is "
		"killed 2 s after the failure. All ranks end when the launcher does; when it is killed, so do all processes that they have started. With --keep-going the others are left to "
		"themselves, but for stopped ones that are the only ones left, which are killed after --grace seconds; the last line "
		"names the ranks that failed, and how.\n\n"
		"Variables PMIX_MCA_* by which PMIx server and ranks must agree (gds, psec, ptl and others) are dropped with a warning. PMIx has "
		"to start within GANNET_JOIN_TIMEOUT, in the launcher and in each rank.\n\n"
		"The exit code is that of the rank that failed first (after 4, which followers of another one end with, the first other one), 4 if a "
		"signal killed it, 128+S if the launcher had forwarded "
		"that signal S, and 0 if all ranks succeeded. With --keep-going it is 0, too, if some ranks succeeded and all others were "
		"killed by SIGKILL or SIGTERM, or ended with 4, as ranks do that the others have given up.",
	.examples = "  gannet launch -n 4 gannet bench allreduce   # four ranks, shared memory\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_launch = {.command = &command, .run = run, .options_size = sizeof(struct launch_options)};
