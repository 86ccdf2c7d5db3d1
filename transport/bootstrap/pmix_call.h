/* Calls to PMIx that do not block, and waiting for them: only transport/bootstrap_pmix.c.
 *
 * Thread safety: done and found come from PMIx's thread, the rest from the caller's.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_PMIX_CALL_H
#define GN_TRANSPORT_BOOTSTRAP_PMIX_CALL_H

#include "transport/bootstrap/bootstrap.h"

#include <pmix.h>
#include <pthread.h>

/* A call to PMIx that may outlive its caller, who gives up when a peer is lost: both sides hold it, and it holds what the call was
 * given. */
struct gn_pmix_call {
	pmix_proc_t who;
	char key[32];
	pmix_info_t info;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int done, holders;
	pmix_status_t result, seen; /* seen: what the caller's wait ended with, the caller's alone */
	/* what a look-up found */
	char *bytes;
	size_t len_bytes;
};

enum gn_status gn_pmix_fail(struct gn_err *err, const char *what, pmix_status_t rc);
/* Held twice: by the caller, and by PMIx once it has taken the call; else the caller drops it twice. NULL: no memory. */
struct gn_pmix_call *gn_pmix_call_new(struct gn_err *err);
void gn_pmix_call_drop(struct gn_pmix_call *p);
/* For PMIx, with the call as data. A value that is found is copied. */
void gn_pmix_call_done(pmix_status_t status, void *data);
void gn_pmix_call_found(pmix_status_t status, pmix_value_t *value, void *data);
/* Waits in short slices, so that a loss seen by the watch ends it. until_ns (gn_clock_ns; 0: no limit): then, as if PMIx had said so,
 * it took too long. Afterwards p->seen is what PMIx said. */
enum gn_status gn_pmix_call_wait(const struct gn_bootstrap *b, struct gn_pmix_call *p, uint64_t until_ns, const char *what,
				 struct gn_err *err);

#endif
