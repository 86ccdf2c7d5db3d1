#include "src/cmd/launch_internal.h"

#include "src/base/clock.h"
#include "src/base/oom.h"
#include "src/base/process.h"
#include "src/cmd/cmd.h"
#include "src/cmd/stop.h"
#include "src/jobs/exec_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AFTER_NS 2000000000u
/* Delay before stopped ranks are killed after a failure. The other ranks may be writing diagnoses meanwhile. */
#define STOPPED_NS 2000000000u
#define DRAIN_NS 1000000000u
/* Failed ranks in the last line. */
#define FAILED_SHOWN 16
/* Descriptors of the launcher besides those of ranks, with a margin for libraries. */
#define DESCRIPTORS 32

struct gn_launch_job {
	struct gn_launch_rank *ranks;
	struct gn_exec_guard guard;
	int size, running, signals, forwarded, bind;
	int code;	   /* the launcher's exit code after a failure */
	uint64_t oom_kills; /* at the start */
	int followed;	   /* it is that of a rank which ended because another was lost */
	uint64_t grace_ns;
	uint64_t end_ns;   /* time of SIGTERM to the remaining ranks; 0: none */
	uint64_t interrupted_ns; /* when the first SIGINT came; 0: none did */
	uint64_t failed_ns; /* when end_ns was set */
	int ending; /* a terminating signal was sent to all ranks */
	int keep_going, failed; /* failed: ranks that did */
	uint64_t stopped_ns; /* with keep_going: since when all ranks that are left are stopped; 0: they are not */
};

static void signal_all(const struct gn_launch_job *j, int number)
{
	for (int r = 0; r < j->size; r++)
		if (j->ranks[r].pid > 0)
			kill(-j->ranks[r].pid, number);
}

static void end_within(struct gn_launch_job *j, uint64_t ns)
{
	if (j->end_ns)
		return;
	j->failed_ns = gn_clock_ns();
	j->end_ns = j->failed_ns + ns;
}

static void rank_ended(struct gn_launch_job *j, int rank, int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0, code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	char oom[128];

	/* processes of the rank's group must not outlive the job */
	kill(-j->ranks[rank].pid, SIGKILL);
	gn_exec_guard_tell(&j->guard, j->ranks[rank].pid, 1);
	j->ranks[rank].pid = 0;
	j->ranks[rank].status = status;
	j->running--;
	if (number && !j->ending && !j->ranks[rank].killed)
		fprintf(stderr, "gannet launch: rank %d was killed by signal %d (%s)%s\n", rank, number, strsignal(number),
			number == SIGKILL ? gn_oom_describe(j->oom_kills, 1, oom, sizeof oom) : "");
	if (!number && !code)
		return;
	/* of codes that are not Gannet's own the program may have said nothing */
	if (code > GN_EXIT_CHECK && j->running && !j->ending && !j->keep_going && !j->failed)
		fprintf(stderr, "gannet launch: rank %d ended with code %d%s; the others have %.0f s to end\n", rank, code,
			code == 127 ? " (of shells: there is no such program)" : "", (double)j->grace_ns / 1e9);
	j->failed++;
	/* 4 is the code of those that another one has taken along, whose own code may come later */
	if (!j->code || (j->followed && code && code != GN_EXIT_PEER_LOST && !j->ending)) {
		j->followed = code == GN_EXIT_PEER_LOST;
		j->code = !number ? code : number == j->forwarded ? 128 + number : GN_EXIT_PEER_LOST;
	}
	if (j->running && !j->keep_going)
		end_within(j, j->grace_ns);
}

static void reap(struct gn_launch_job *j)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int r = 0; r < j->size; r++)
			if (j->ranks[r].pid == pid)
				rank_ended(j, r, status);
}

static void handle_signal(struct gn_launch_job *j)
{
	struct signalfd_siginfo info;

	if (read(j->signals, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	if (info.ssi_signo == SIGCHLD) {
		reap(j);
		return;
	}
	if (info.ssi_signo == SIGINT && j->interrupted_ns && gn_clock_ns() - j->interrupted_ns < GN_INTERRUPT_REPEAT_NS)
		return;
	if (info.ssi_signo == SIGINT && !j->interrupted_ns) {
		j->interrupted_ns = gn_clock_ns();
	} else if (info.ssi_signo == SIGINT) {
		fprintf(stderr, "gannet launch: second interrupt: the ranks are killed\n");
		j->ending = 1;
		j->code = 128 + SIGINT;
		signal_all(j, SIGKILL);
	}
	j->forwarded = (int)info.ssi_signo;
	signal_all(j, j->forwarded);
}

static void handle_abort(struct gn_launch_job *j, struct gn_pmix_server *server)
{
	int rank, code;

	if (!gn_pmix_server_aborted(server, &rank, &code) || j->code)
		return;
	fprintf(stderr, "gannet launch: rank %d aborted the job with code %d\n", rank, code);
	j->code = code > 0 && code < 126 ? code : GN_EXIT_FAILED;
	end_within(j, 0);
}

/* Stopped by SIGSTOP or the like; not by a debugger. */
static int is_stopped(pid_t pid)
{
	struct gn_process p;

	return gn_process_read(pid, &p) && p.state == 'T';
}

static int count_stopped(const struct gn_launch_job *j)
{
	int stopped = 0;

	for (int r = 0; r < j->size; r++)
		stopped += j->ranks[r].pid > 0 && is_stopped(j->ranks[r].pid);
	return stopped;
}

static void kill_stopped(struct gn_launch_job *j)
{
	for (int r = 0; r < j->size; r++) {
		struct gn_launch_rank *c = &j->ranks[r];

		if (c->pid <= 0 || c->killed || !is_stopped(c->pid))
			continue;
		fprintf(stderr, "gannet launch: rank %d is stopped (SIGSTOP) and does not end: killing it\n", r);
		c->killed = 1;
		kill(-c->pid, SIGKILL);
	}
}

static void enforce_deadline(struct gn_launch_job *j)
{
	uint64_t now = gn_clock_ns();

	if (j->running && j->end_ns) {
		int stopped = count_stopped(j);

		if (stopped == j->running || now >= j->failed_ns + STOPPED_NS)
			kill_stopped(j);
	} else if (j->running && j->running < j->size && j->keep_going && count_stopped(j) == j->running) {
		j->stopped_ns = j->stopped_ns ? j->stopped_ns : now;
		if (now >= j->stopped_ns + j->grace_ns)
			kill_stopped(j);
	} else {
		j->stopped_ns = 0;
	}
	if (!j->running || !j->end_ns || now < j->end_ns)
		return;
	if (!j->ending)
		fprintf(stderr, "gannet launch: terminating the remaining ranks\n");
	signal_all(j, j->ending ? SIGKILL : SIGTERM);
	j->ending = 1;
	j->end_ns = now + KILL_AFTER_NS;
}

static int open_streams(const struct gn_launch_job *j)
{
	int count = 0;

	for (int r = 0; r < j->size; r++)
		count += (gn_exec_output_fd(j->ranks[r].out) >= 0) + (gn_exec_output_fd(j->ranks[r].error) >= 0);
	return count;
}

static void poll_once(struct gn_launch_job *j, struct gn_pmix_server *server, struct pollfd *p)
{
	nfds_t n = 2;

	p[0] = (struct pollfd){.fd = j->signals, .events = POLLIN};
	p[1] = (struct pollfd){.fd = gn_pmix_server_fd(server), .events = POLLIN};
	for (int r = 0; r < j->size; r++) {
		p[n++] = (struct pollfd){.fd = gn_exec_output_fd(j->ranks[r].out), .events = POLLIN};
		p[n++] = (struct pollfd){.fd = gn_exec_output_fd(j->ranks[r].error), .events = POLLIN};
	}
	if (poll(p, n, 200) > 0) {
		for (int r = 0; r < j->size; r++) {
			if (p[2 + 2 * r].revents)
				gn_exec_output_read(j->ranks[r].out);
			if (p[3 + 2 * r].revents)
				gn_exec_output_read(j->ranks[r].error);
		}
		if (p[1].revents)
			handle_abort(j, server);
		if (p[0].revents)
			handle_signal(j);
	}
	enforce_deadline(j);
}

/* Until all ranks have ended and their output is read. A process that a rank left running may hold its pipe open: DRAIN_NS after the
 * last rank's end. */
static enum gn_status poll_until_ended(struct gn_launch_job *j, struct gn_pmix_server *server, struct gn_err *err)
{
	struct pollfd *p = calloc(2 + 2 * (size_t)j->size, sizeof *p);
	uint64_t over = 0;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", j->size);
	while (j->running || (open_streams(j) && gn_clock_ns() < over)) {
		int were_running = j->running;

		poll_once(j, server, p);
		/* also when the last ones end in this turn, however long it took: what they wrote since its poll is still in the pipes */
		if (were_running || !over)
			over = gn_clock_ns() + DRAIN_NS;
	}
	free(p);
	return GN_OK;
}

/* Whether a rank was killed, as machines that are lost and batch systems do, or ended as one that the others had given up. Signals by which
 * programs crash are failures. */
static int was_lost(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM;
	return WIFEXITED(status) && WEXITSTATUS(status) == GN_EXIT_PEER_LOST;
}

/* With keep_going: whether the program has gone on without the ranks that failed, which were all lost. */
static int went_on(const struct gn_launch_job *j)
{
	for (int r = 0; r < j->size; r++)
		if (j->ranks[r].status && !was_lost(j->ranks[r].status))
			return 0;
	return j->keep_going && j->failed < j->size && !j->ending && !j->forwarded;
}

/* With keep_going, and a signal for all: whether all ranks but those that were lost ended as one that was asked to stop. */
static int has_stopped(const struct gn_launch_job *j)
{
	int stopped = 0;

	for (int r = 0; r < j->size; r++) {
		int status = j->ranks[r].status, now = WIFEXITED(status) && WEXITSTATUS(status) == GN_EXIT_STOPPED;

		if (!now && !was_lost(status))
			return 0;
		stopped += now;
	}
	return j->keep_going && stopped && j->forwarded && !j->ending;
}

/* Who failed, and how. */
static void report_failed(const struct gn_launch_job *j)
{
	const char *before = "";

	if (!j->failed)
		return;
	fprintf(stderr, "gannet launch: ");
	for (int r = 0, shown = 0; r < j->size && shown < FAILED_SHOWN; r++) {
		int status = j->ranks[r].status;

		if (!status)
			continue;
		if (WIFSIGNALED(status))
			fprintf(stderr, "%srank %d was killed by signal %d (%s)", before, r, WTERMSIG(status), strsignal(WTERMSIG(status)));
		else
			fprintf(stderr, "%srank %d ended with code %d", before, r, WEXITSTATUS(status));
		before = ", ";
		shown++;
	}
	if (j->failed > FAILED_SHOWN)
		fprintf(stderr, " and %d more failed", j->failed - FAILED_SHOWN);
	fprintf(stderr, "; %d of %d ranks succeeded\n", j->size - j->failed, j->size);
}

/* A full disk must not look like success. */
static void check_output(struct gn_launch_job *j)
{
	struct gn_err lost;
	int r = 0;

	while (r < j->size && !gn_exec_output_end(j->ranks[r].out, &lost))
		r++;
	if (r == j->size)
		return;
	fprintf(stderr, "gannet launch: output of rank %d: %s\n", r, lost.text);
	j->code = j->code ? j->code : GN_EXIT_FAILED;
}

enum gn_status gn_launch_job_run(struct gn_launch_job *j, const char *directory, const struct gn_text_list *program,
				 struct gn_err *err)
{
	char **argv = calloc(program->count + 1, sizeof *argv);
	struct gn_pmix_server *server = NULL;
	enum gn_status status = argv ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");

	for (size_t i = 0; !status && i < program->count; i++)
		argv[i] = (char *)(uintptr_t)program->items[i];
	if (!status)
		status = gn_exec_guard_start(&j->guard, err);
	if (!status && setenv(GN_EXEC_GUARD, j->guard.marks, 1))
		status = gn_err_errno(err, errno, "cannot set " GN_EXEC_GUARD);
	if (!status)
		status = gn_pmix_server_create(j->size, directory, &server, err);
	for (int r = 0; r < j->size && !status; r++)
		if (!(status = gn_launch_rank_start(&j->ranks[r], server, r, j->size, j->bind, argv, err))) {
			j->running++;
			gn_exec_guard_tell(&j->guard, j->ranks[r].pid, 0);
		}
	if (status)
		signal_all(j, SIGKILL);
	else
		status = poll_until_ended(j, server, err);
	if (!status && went_on(j))
		j->code = 0;
	else if (!status && has_stopped(j))
		j->code = GN_EXIT_STOPPED;
	if (!status)
		check_output(j);
	if (!status && j->keep_going)
		report_failed(j);
	gn_pmix_server_destroy(server, !status && !j->code);
	free(argv);
	return status;
}

static enum gn_status open_signals(struct gn_launch_job *j, struct gn_err *err)
{
	struct sigaction hangup;
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGUSR1);
	/* under nohup the ranks ignore it as well */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		sigaddset(&ours, SIGHUP);
	sigaddset(&ours, SIGCHLD);
	/* before the PMIx server starts threads, which inherit the mask */
	sigprocmask(SIG_BLOCK, &ours, NULL);
	signal(SIGPIPE, SIG_IGN);
	j->signals = signalfd(-1, &ours, SFD_CLOEXEC);
	return j->signals < 0 ? gn_err_errno(err, errno, "cannot wait for signals") : GN_OK;
}

enum gn_status gn_launch_job_create(const struct gn_launch_options *o, struct gn_launch_job **out, struct gn_err *err)
{
	struct gn_launch_job *j = calloc(1, sizeof *j);
	int size = o->ranks;
	enum gn_status status;

	if (j)
		j->ranks = calloc((size_t)size, sizeof *j->ranks);
	if (!j || !j->ranks) {
		free(j);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	}
	j->size = size;
	j->bind = o->bind;
	j->grace_ns = (uint64_t)o->grace_s * 1000000000u;
	j->keep_going = o->keep_going;
	j->signals = -1;
	j->oom_kills = gn_oom_kills();
	/* two pipes and a PMIx connection per rank */
	status = gn_descriptors_want(3 * (size_t)size + DESCRIPTORS, "the launcher", err);
	if (!status)
		status = open_signals(j, err);
	if (status)
		gn_launch_job_destroy(j);
	else
		*out = j;
	return status;
}

void gn_launch_job_destroy(struct gn_launch_job *j)
{
	if (!j)
		return;
	for (int r = 0; r < j->size; r++) {
		gn_exec_output_destroy(j->ranks[r].out);
		gn_exec_output_destroy(j->ranks[r].error);
	}
	gn_exec_guard_end(&j->guard);
	if (j->signals >= 0)
		close(j->signals);
	free(j->ranks);
	free(j);
}

int gn_launch_job_code(const struct gn_launch_job *j)
{
	return j->code;
}
