/* What a run stands on, for logs and --version: versions of the libraries that were loaded, the job's id, its hosts.
 * Thread safety: any thread. */
#ifndef GN_TRANSPORT_BOOTSTRAP_LIBRARY_VERSIONS_H
#define GN_TRANSPORT_BOOTSTRAP_LIBRARY_VERSIONS_H

#include "src/base/strbuf.h"
#include "transport/bootstrap/world.h"

/* Versions at run time, not those of the headers: "1.13.1"; PMIx's own sentence, up to its first comma. */
const char *gn_library_versions_ucx(void);
void gn_library_versions_pmix(struct gn_strbuf *out);
/* Slurm's job as sacct names it, "12", "12_3" in an array; NULL outside of Slurm. text: its memory, 64 bytes. */
const char *gn_library_versions_job(char text[64]);
/* The hosts of the world, in the order of their first ranks, as n[1-4]. */
void gn_library_versions_hosts(const struct gn_world *world, struct gn_strbuf *out);

#endif
