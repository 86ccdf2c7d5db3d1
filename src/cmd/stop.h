/* Signals that ask a run to stop, taken without a handler: oneDNN's generated matrix code keeps data addresses in the stack
 * pointer, and the frame that the kernel pushes for a handler would land in the middle of the heap. All threads block these
 * signals, and one that computes nothing takes them.
 *
 * Until gn_stop_begin() the first signal ends the process: SIGINT by that signal, SIGTERM and SIGUSR1 with the exit code of
 * GN_ERR_STOPPED. From then on SIGTERM, SIGUSR1 and the first SIGINT set the flag. A second SIGINT ends the process at once, by that signal. SIGINT is left alone
 * where whoever started the process had it ignored, as a shell does for what it runs in the background. One for each process.
 */
#ifndef GN_CMD_STOP_H
#define GN_CMD_STOP_H

#include "src/base/log.h"

#include <signal.h>

struct gn_stop;

/* To be called before any other thread starts. log is borrowed: an early end and the first SIGINT are told there. */
enum gn_status gn_stop_create(struct gn_log *log, struct gn_stop **out, struct gn_err *err);
/* NULL is fine. The signals stay blocked. */
void gn_stop_destroy(struct gn_stop *s);
/* The ranks have met: from now on one that left alone would be a lost rank to the others, and a signal sets the flag. */
void gn_stop_begin(struct gn_stop *s);
/* Not 0 once the run is to stop. Borrowed; to be read by any thread. */
const volatile sig_atomic_t *gn_stop_flag(const struct gn_stop *s);
/* Another rank tells of the interrupt that all of them get. */
void gn_stop_be_quiet(struct gn_stop *s);

#endif
