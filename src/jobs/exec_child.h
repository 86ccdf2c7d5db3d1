/* The program that gannet exec starts in its own place: output passed on line by line, with its last lines remembered; signals; why it
 * ended.
 *
 * The child is the leader of a process group, unless standard input is a terminal, which then stays its own; it is killed when this
 * process dies, with all that it has started (exec_guard.h), and so is all that it leaves behind when it ends. One in a process, which takes SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and
 * SIGCHLD over for good; those that were ignored stay so, for the program, too. Thread safety: one thread.
 */
#ifndef GN_JOBS_EXEC_CHILD_H
#define GN_JOBS_EXEC_CHILD_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/jobs/exec_environment.h"

#include <sched.h>

struct gn_exec_child;

struct gn_exec_child_options {
	char *const *argv;
	const struct gn_exec_place *place;
	const struct gn_exec_environment *environment;
	const cpu_set_t *cores; /* to bind to; an empty set: as this process */
	int label;		/* lines begin with the rank */
};

/* Until this is called signals do what they do to any process: end it. */
enum gn_status gn_exec_child_start(const struct gn_exec_child_options *options, struct gn_exec_child **out, struct gn_err *err);
/* Waits at most timeout_ms for output, signals or the end; passes them on. 0 once the program has ended and its output is through. */
int gn_exec_child_turn(struct gn_exec_child *c, int timeout_ms);
/* For the group: SIGTERM, SIGKILL. */
void gn_exec_child_signal(struct gn_exec_child *c, int number);
/* Once it has ended: its exit code, 128 and the signal's number if a signal ended it, 1 if it succeeded and its output was lost. */
int gn_exec_child_code(const struct gn_exec_child *c);
/* The signal that was passed on last; 0: none. */
int gn_exec_child_passed_on(const struct gn_exec_child *c);
/* Appends "exit code 7", "killed by signal 9 (Killed): out of memory, the limit of its cgroup is 2.0 GiB". */
void gn_exec_child_reason(const struct gn_exec_child *c, struct gn_strbuf *out);
/* What it wrote to standard error at last, at most 2,000 characters, "" if that is a terminal. Borrowed. */
const char *gn_exec_child_last_lines(const struct gn_exec_child *c);
/* Kills what is left. NULL is fine. */
void gn_exec_child_destroy(struct gn_exec_child *c);

#endif
