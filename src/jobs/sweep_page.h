/* A sweep as one static HTML page: its trials from the best to the worst in a table, their curves, and the result by each parameter.
 *
 * No scripts, no external resources, all text escaped. Thread safety: no state. Blocks on the file system to read the trials' logs.
 */
#ifndef GN_JOBS_SWEEP_PAGE_H
#define GN_JOBS_SWEEP_PAGE_H

#include "src/base/strbuf.h"
#include "src/jobs/sweep_status.h"

/* Appends the whole document. name: of the sweep. Trials without a step are in the table only. */
enum gn_status gn_sweep_page(const char *name, const struct gn_sweep_state *states, size_t count, struct gn_strbuf *out, struct gn_err *err);

#endif
