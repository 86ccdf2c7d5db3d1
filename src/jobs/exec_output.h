/* One output stream of the program: passed on line by line, so that lines of several processes do not mix, and remembered at its end.
 *
 * A line that never ends is passed on in parts. Thread safety: one thread. NULL is a stream that nobody reads here.
 */
#ifndef GN_JOBS_EXEC_OUTPUT_H
#define GN_JOBS_EXEC_OUTPUT_H

#include "src/base/status.h"

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
