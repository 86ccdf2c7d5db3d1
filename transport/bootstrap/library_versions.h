/* The environment of a run for logs and --version: versions of the loaded libraries, the job's ID, its hosts.
 * Thread safety: any thread. */
#ifndef GN_TRANSPORT_BOOTSTRAP_LIBRARY_VERSIONS_H
#define GN_TRANSPORT_BOOTSTRAP_LIBRARY_VERSIONS_H

#include "src/base/strbuf.h"
#include "transport/bootstrap/world.h"

/* Versions of the loaded libraries, not of the headers: "1.13.1", "OpenPMIx 4.2.2". Static text; appended text. */
const char *gn_library_versions_ucx(void);
void gn_library_versions_pmix(struct gn_strbuf *out);
/* The Slurm job ID as sacct prints it, "12", or "12_3" in an array; NULL outside of Slurm. The result is in text, 64 bytes. */
const char *gn_library_versions_job(char text[64]);
/* Appends the hosts of the world in the order of their lowest ranks as a host list, "n[1-4]". */
void gn_library_versions_hosts(const struct gn_world *world, struct gn_strbuf *out);

#endif
