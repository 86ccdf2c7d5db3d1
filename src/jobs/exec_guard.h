/* A process that kills what a launcher has started when the launcher is killed itself: SIGKILL, a crash, lack of memory.
 *
 * It has a session of its own, blocks all signals, holds nothing open but a socket to the launcher, and waits for that to close. It then
 * kills the programs that it was told of, their process groups and descendants, and every process whose environment has the guard's mark:
 * a descendant that has left its group, and whose parents are gone, is known by that. Processes of other users are killed if the launcher
 * may. Thread safety: one thread.
 */
#ifndef GN_JOBS_EXEC_GUARD_H
#define GN_JOBS_EXEC_GUARD_H

#include "src/base/status.h"

#include <sys/types.h>

/* The variable by which programs of a launcher are known: the marks of all launchers around them, with commas between. */
#define GN_EXEC_GUARD "GANNET_GUARD"

struct gn_exec_guard {
	pid_t pid; /* 0: none runs */
	int fd;
	char marks[256]; /* for GN_EXEC_GUARD in the programs' environments, which the caller sets */
};

/* Forks. */
enum gn_status gn_exec_guard_start(struct gn_exec_guard *g, struct gn_err *err);
/* A program has started, or ended and been waited for: from then on its number may be another process's. */
void gn_exec_guard_tell(const struct gn_exec_guard *g, pid_t program, int ended);
/* The launcher ends in order: so does the guard, and is waited for, for a second at most. */
void gn_exec_guard_end(struct gn_exec_guard *g);

/* One output stream of the program: passed on line by line, so that lines of several processes do not mix, and remembered at its end.
 *
 * A line that never ends is passed on in parts. Thread safety: one thread. NULL is a stream that nobody reads here. */

struct gn_exec_output;

/* to: 1 or 2. label begins each line, copied. *write_end is the program's, to be closed here after the fork. */
enum gn_status gn_exec_output_create(int to, const char *label, int *write_end, struct gn_exec_output **out, struct gn_err *err);
/* -1 when it has ended, and of NULL. */
int gn_exec_output_fd(const struct gn_exec_output *s);
/* What there is; at the end the rest. */
void gn_exec_output_read(struct gn_exec_output *s);
/* The last lines, at most 2,000 characters; borrowed until the next read, "" of NULL. */
const char *gn_exec_output_last(struct gn_exec_output *s);
/* Passes on what is left. The error of the first write that failed; a reader that is gone (EPIPE) is none, and NULL has none. */
enum gn_status gn_exec_output_end(struct gn_exec_output *s, struct gn_err *err);
/* Passes on what is left, too. */
void gn_exec_output_destroy(struct gn_exec_output *s);

#endif
