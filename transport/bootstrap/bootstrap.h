/* How ranks that know nothing of each other yet exchange small messages: PMIx, a TCP meeting point, or nobody.
 *
 * One table of functions per source, one file each; everything above uses only this page. Calls marked collective are made
 * by all ranks in the same order.
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_BOOTSTRAP_H
#define GN_TRANSPORT_BOOTSTRAP_BOOTSTRAP_H

#include "src/base/log.h"
#include "transport/bootstrap/launcher_detect.h"
#include "transport/auth/secret.h"
#include "transport/bootstrap/gathered.h"

#include <stddef.h>
#include <stdint.h>

struct gn_bootstrap;
struct gn_recorder;
struct gn_heartbeat;

/* The variable that names a file by which ranks know each other; gannet launch sets it for the ranks it starts. */
#define GN_BOOTSTRAP_SECRET "GANNET_SECRET_FILE"

struct gn_bootstrap_ops {
	const char *name;
	/* Before anything else: rank 0 gives len_bytes; each of the others gets them, malloc'ed, as soon as itself and rank 0
	 * are there, whoever else is still missing; or NULL when it is not to be had before the first exchange: then call again
	 * after that. Rank 0 may wait here for all others, or not. */
	enum gn_status (*word)(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
			       struct gn_err *err);
	/* Whether rank 0 has said meanwhile that nothing comes of it: GN_OK when not, else why. Does not wait. */
	enum gn_status (*called_off)(struct gn_bootstrap *b, struct gn_err *err);
	/* Collective, after word: what every rank gives, of any length. *out is set only on success. */
	enum gn_status (*exchange)(struct gn_bootstrap *b, const void *mine, size_t len_bytes, struct gn_gathered *out,
				   struct gn_err *err);
	/* clean: everyone is done and well; otherwise let go without waiting for anyone. */
	void (*destroy)(struct gn_bootstrap *b, int clean);
};

/* The part that all sources share; each embeds it as its first member. */
struct gn_bootstrap {
	const struct gn_bootstrap_ops *ops;
	int rank, size;
	const char *address; /* of loopback, when all ranks are known to be on this machine; NULL: they may be anywhere */
	const char *ifnames; /* where ranks listen for each other, see gn_net_choose(); NULL: everywhere. Borrowed */
	struct gn_secret secret; /* from a file; zero when the source's own channel is all there is */
	/* Once there is a watch, waits end when it has seen a loss; until then they end at this time (gn_clock_ns). */
	struct gn_heartbeat *watch;
	struct gn_recorder *recorder; /* as soon as there is a watch */
	uint64_t deadline_ns, timeout_ns;
	/* What else has to go on while this rank waits; NULL: nothing. */
	void (*progress)(void *context);
	void *progress_context;
};

/* Local, and does not wait for other ranks. log (may be NULL) hears of strangers at this rank's ports. */
enum gn_status gn_bootstrap_pmix(const struct gn_launcher *d, struct gn_log *log, struct gn_bootstrap **out, struct gn_err *err);
enum gn_status gn_bootstrap_env(const struct gn_launcher *d, struct gn_log *log, struct gn_bootstrap **out, struct gn_err *err);
enum gn_status gn_bootstrap_alone(struct gn_bootstrap **out, struct gn_err *err);
/* Local, before anything else: without a watch, waits end with GN_ERR_STALL timeout_ms from here on. */
void gn_bootstrap_wait_at_most(struct gn_bootstrap *b, int timeout_ms);

/* For the implementations: how long to sleep at once, and, called in between: may this wait go on? GN_ERR_PEER_LOST from the
 * watch, GN_ERR_STALL past the deadline saying that what did not happen in time. */
enum gn_status gn_bootstrap_may_wait(const struct gn_bootstrap *b, uint64_t started_ns, const char *what,
				     struct gn_err *err);
int gn_bootstrap_nap_ms(const struct gn_bootstrap *b);
/* For sources on which nobody calls anything off. */
enum gn_status gn_bootstrap_never_off(struct gn_bootstrap *b, struct gn_err *err);

#endif
