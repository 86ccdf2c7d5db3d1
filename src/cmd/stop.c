#include "src/cmd/stop.h"

#include "src/base/clock.h"
#include "src/cmd/cmd.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_MS 5000

struct gn_stop {
	struct gn_log *log;
	const char *kept;
	sigset_t signals;
	pthread_t thread;
	volatile sig_atomic_t wanted, quiet, begun;
};

/* Unblocks the signal in this thread and raises it: the default action ends the process. */
static void end_by(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	signal(number, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
}

/* The other ranks do not wait for a rank that has not connected yet. */
static void end_before_connect(const struct gn_stop *s, int number)
{
	if (number == SIGINT)
		end_by(number);
	gn_log_warn(s->log, "stopped before the run began, while connecting to the other ranks");
	_exit(gn_cmd_exit_code(GN_ERR_STOPPED));
}

/* Non-zero when all that threads have written has left; a reader that has stopped is waited for no longer than FLUSH_MS. */
static int flush_output(void)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
	uint64_t until = gn_clock_ns() + FLUSH_MS * UINT64_C(1000000);

	while (ftrylockfile(stdout)) {
		if (gn_clock_ns() > until)
			return 0;
		gn_clock_sleep_ns(1000000);
	}
	return poll(&out, 1, FLUSH_MS) > 0 && !fflush(stdout);
}

static void end_and_tell(const struct gn_stop *s, int number)
{
	const char *rank = getenv("PMIX_RANK") ? getenv("PMIX_RANK") : getenv("RANK");
	const char *kept = flush_output() ? s->kept : "nobody reads standard output, which may end within a line";

	if (!rank || !strcmp(rank, "0"))
		gn_log_warn(s->log, "ended by SIG%s: %s", sigabbrev_np(number), kept);
	end_by(number);
}

static void *await_signals(void *argument)
{
	const char *checkpoint = ", with a checkpoint if --checkpoint is given";
	struct gn_stop *s = argument;
	uint64_t first_ns = 0;
	int number, state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	for (;;) {
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
		if (sigwait(&s->signals, &number))
			return NULL;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		if (s->kept)
			end_and_tell(s, number);
		if (!s->begun)
			end_before_connect(s, number);
		if (number != SIGINT && !s->wanted && !s->quiet)
			gn_log_warn(s->log, "got SIG%s: the run stops after the current step%s", sigabbrev_np(number), checkpoint);
		s->wanted = 1;
		if (number != SIGINT)
			continue;
		if (first_ns && gn_clock_ns() - first_ns < GN_INTERRUPT_REPEAT_NS)
			continue;
		if (first_ns)
			end_by(number);
		first_ns = gn_clock_ns();
		if (!s->quiet)
			gn_log_warn(s->log, "interrupted: the run stops after the current step%s; a second interrupt ends it immediately, without one",
				    checkpoint);
	}
}

enum gn_status gn_stop_create(struct gn_log *log, const char *kept, struct gn_stop **out, struct gn_err *err)
{
	struct gn_stop *s = calloc(1, sizeof *s);
	static const int unless_ignored[] = {SIGINT, SIGHUP};
	struct sigaction now;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for signals");
	s->log = log;
	s->kept = kept;
	sigemptyset(&s->signals);
	sigaddset(&s->signals, SIGTERM);
	sigaddset(&s->signals, SIGUSR1);
	for (size_t i = 0; i < sizeof unless_ignored / sizeof *unless_ignored; i++)
		if (!sigaction(unless_ignored[i], NULL, &now) && now.sa_handler != SIG_IGN)
			sigaddset(&s->signals, unless_ignored[i]);
	if (pthread_sigmask(SIG_BLOCK, &s->signals, NULL) || pthread_create(&s->thread, NULL, await_signals, s)) {
		free(s);
		return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread for signals (see ulimit -u)");
	}
	*out = s;
	return GN_OK;
}

void gn_stop_destroy(struct gn_stop *s)
{
	if (!s)
		return;
	pthread_cancel(s->thread);
	pthread_join(s->thread, NULL);
	free(s);
}

const volatile sig_atomic_t *gn_stop_flag(const struct gn_stop *s)
{
	return &s->wanted;
}

void gn_stop_begin(struct gn_stop *s)
{
	s->begun = 1;
}

void gn_stop_be_quiet(struct gn_stop *s)
{
	s->quiet = 1;
}
