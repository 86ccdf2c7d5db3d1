/* Stop requests by signal, received without a signal handler: oneDNN's generated matrix code keeps data addresses in the stack
 * pointer, so that the signal frame of a handler would overwrite heap memory. All threads block these signals, and a dedicated
 * thread receives them with sigwait().
 *
 * Until gn_stop_begin() the first signal ends the process: SIGINT by that signal, SIGTERM, SIGUSR1 and SIGHUP with the exit code of
 * GN_ERR_STOPPED. Afterwards these and the first SIGINT set a flag, and a second SIGINT ends the process immediately by that signal.
 * SIGINT and SIGHUP stay ignored if the parent process had them ignored, as shells do for background processes, and nohup. One per process.
 */
#ifndef GN_CMD_STOP_H
#define GN_CMD_STOP_H

#include "src/base/log.h"

#include <signal.h>

/* A SIGINT that follows the first one sooner is the same request: it may be sent to a process and to its group. */
#define GN_INTERRUPT_REPEAT_NS 500000000u

struct gn_stop;

/* Call before any other thread starts. log is borrowed: it receives an early end and the first signal. kept: for commands without steps, what
 * there is of their results when a signal ends them, which the log of rank 0 is told: standard output is flushed then, at the end of what a
 * thread has written under flockfile(), if its reader takes that within some seconds, and the process ends by the signal; NULL: as above. */
enum gn_status gn_stop_create(struct gn_log *log, const char *kept, struct gn_stop **out, struct gn_err *err);
/* The signals stay blocked. NULL is fine. */
void gn_stop_destroy(struct gn_stop *s);
/* The ranks are connected: from now on signals set the flag, because a rank that ends alone is a lost peer for the others. */
void gn_stop_begin(struct gn_stop *s);
/* Non-zero once the run is to stop. Borrowed; any thread may read it. */
const volatile sig_atomic_t *gn_stop_flag(const struct gn_stop *s);
/* Suppresses the log messages for signals: every rank receives them, and another one reports it. */
void gn_stop_be_quiet(struct gn_stop *s);

#endif
