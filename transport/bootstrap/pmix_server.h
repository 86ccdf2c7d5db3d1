/* A PMIx server for one host: gannet launch runs it for the processes that it starts.
 *
 * It serves one job whose ranks all run on this host: their environment, job information, fences with data. PMIx runs threads of
 * its own and calls back from them; the owner polls gn_pmix_server_fd().
 *
 * PMIx allows one server per process. Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_PMIX_SERVER_H
#define GN_TRANSPORT_BOOTSTRAP_PMIX_SERVER_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

struct gn_pmix_server;

/* Before gn_pmix_server_create() and other threads: removes from the environment, and appends to dropped ("A=1, B=2"), variables
 * PMIX_MCA_* by which server and clients have to agree and which may be left from another launcher: where they do not fit PMIx hangs or crashes. */
void gn_pmix_server_clean_environment(struct gn_strbuf *dropped);
/* directory holds PMIx's sockets: it is private to this server and outlives it. Blocks until PMIx has registered all ranks, for as long
 * as ranks may take to join (limits.h): after that it fails, and the process must end soon, because a thread of it is still in PMIx. */
enum gn_status gn_pmix_server_create(int size, const char *directory, struct gn_pmix_server **out, struct gn_err *err);
/* The process must end soon. clean: all ranks have ended without failure. Otherwise PMIx is not finalized: PMIx 4.2.2 can wait
 * for ever for a rank that died while it connected, and is left at it after 2 s. NULL is fine. */
void gn_pmix_server_destroy(struct gn_pmix_server *s, int clean);
/* A NULL-terminated copy of the present environment plus the variables for a rank; owned by the caller. */
enum gn_status gn_pmix_server_environment(struct gn_pmix_server *s, int rank, char ***out, struct gn_err *err);
void gn_pmix_server_environment_free(char **environment);
/* Readable once a rank has called PMIx_Abort(). */
int gn_pmix_server_fd(const struct gn_pmix_server *s);
/* Returns 1 and sets rank and code if a rank has called PMIx_Abort(), else 0. */
int gn_pmix_server_aborted(struct gn_pmix_server *s, int *rank, int *code);

#endif
