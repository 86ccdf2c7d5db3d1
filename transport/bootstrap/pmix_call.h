/* PMIx calls and waiting for them, never longer than a limit. Private to bootstrap_pmix.c and pmix_server.c.
 *
 * Thread safety: gn_pmix_call_done() and gn_pmix_call_found() are called by PMIx's thread, the others by the caller's.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_PMIX_CALL_H
#define GN_TRANSPORT_BOOTSTRAP_PMIX_CALL_H

#include "transport/bootstrap/bootstrap.h"

#include <pmix.h>
#include <pthread.h>

#define GN_PMIX_KEY 48

/* A PMIx call and its arguments. It may outlive the caller, which stops waiting when a peer is lost: caller and PMIx each hold a
 * reference. */
struct gn_pmix_call {
	pmix_proc_t who;
	char key[GN_PMIX_KEY];
	pmix_info_t info;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int done, refs;
	pmix_status_t result, seen; /* seen: the result with which the caller's wait ended; accessed by the caller only */
	/* the value of a get; of gn_pmix_call_run() an argument of the call */
	char *bytes;
	size_t len_bytes;
	pmix_status_t (*call)(struct gn_pmix_call *p); /* of gn_pmix_call_run() */
};

/* GN_ERR_FAILED with PMIx's error text; GN_ERR_PEER_LOST for a fence that a rank did not live to see. */
enum gn_status gn_pmix_fail(struct gn_err *err, const char *what, pmix_status_t rc);
/* A call with two references: the caller's, and PMIx's, which the caller drops as well if PMIx does not accept the call. NULL: no
 * memory. */
struct gn_pmix_call *gn_pmix_call_create(struct gn_err *err);
void gn_pmix_call_unref(struct gn_pmix_call *p);
/* Callbacks for PMIx, with the call as data. found copies the value. Both drop PMIx's reference. */
void gn_pmix_call_done(pmix_status_t status, void *data);
void gn_pmix_call_found(pmix_status_t status, pmix_value_t *value, void *data);
/* Runs call(p), which may block for ever (PMIx_Init, PMIx_server_init), in a thread of its own, and waits for it as gn_pmix_call_wait() does
 * with until_ns 0. The caller keeps its reference. After GN_ERR_STALL the thread is still in PMIx, and the process must end soon. Sets HOME
 * to "/", as container runtimes do, for a user who has neither it nor an entry in passwd: PMIx 4.2.2 crashes otherwise, and so it would in
 * programs that this one starts. */
enum gn_status gn_pmix_call_run(const struct gn_bootstrap *b, struct gn_pmix_call *p, pmix_status_t (*call)(struct gn_pmix_call *p),
				const char *what, struct gn_err *err);
/* Blocks until the call is done, gn_bootstrap_check_wait() fails, or until_ns (gn_clock_ns; 0: no limit), which counts as PMIx's
 * timeout. p->seen is then PMIx's result. */
enum gn_status gn_pmix_call_wait(const struct gn_bootstrap *b, struct gn_pmix_call *p, uint64_t until_ns, const char *what,
				 struct gn_err *err);
/* What follows a non-blocking call that returned rc: waits for it, without a limit besides the bootstrap's, if PMIx has accepted it.
 * Drops the caller's reference, and PMIx's if it has not. */
enum gn_status gn_pmix_call_finish(const struct gn_bootstrap *b, struct gn_pmix_call *p, pmix_status_t rc, const char *what,
				   struct gn_err *err);

#endif
