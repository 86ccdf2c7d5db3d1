/* A small PMIx server for one machine: what gannet launch puts under the processes it starts.
 *
 * It knows one job of size ranks, all on this host, and does what ranks need to find each other: environment, job facts,
 * fences with data. PMIx runs its own threads and calls back from them; the owner polls gn_pmix_server_fd().
 *
 * PMIx allows one server in a process. Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_PMIX_SERVER_H
#define GN_TRANSPORT_BOOTSTRAP_PMIX_SERVER_H

#include "src/base/status.h"

struct gn_pmix_server;

/* directory is private to this server and outlives it; PMIx puts its sockets there. */
enum gn_status gn_pmix_server_create(int size, const char *directory, struct gn_pmix_server **out, struct gn_err *err);
/* clean: all ranks have ended well. Otherwise PMIx is left as it is until the process ends, soon: 4.2.2 can wait for ever
 * for a rank that died while it was connecting. NULL is fine. */
void gn_pmix_server_destroy(struct gn_pmix_server *s, int clean);
/* A NULL-terminated copy of the present environment plus what rank needs; gn_pmix_server_environment_free() frees it. */
enum gn_status gn_pmix_server_environment(struct gn_pmix_server *s, int rank, char ***out, struct gn_err *err);
void gn_pmix_server_environment_free(char **environment);
/* Readable once a rank has called PMIx_Abort. */
int gn_pmix_server_fd(const struct gn_pmix_server *s);
/* Which one, and the code it gave; 0 when none has. */
int gn_pmix_server_aborted(struct gn_pmix_server *s, int *rank, int *code);

#endif
