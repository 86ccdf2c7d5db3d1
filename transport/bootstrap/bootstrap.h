/* How ranks exchange small messages before they have other connections: over PMIx, over a TCP rendezvous, or not at all (one rank).
 *
 * A table of functions per implementation, one file each: bootstrap_pmix.c, bootstrap_env.c, bootstrap_single.c. Calls marked
 * collective are made by all ranks in the same order.
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

/* The environment variable that names the file with the job's secret; gannet launch sets it for the ranks that it starts. */
#define GN_BOOTSTRAP_SECRET "GANNET_SECRET_FILE"
/* How many gannet exec are around this process: they and it are the same ranks to PMIx. */
#define GN_BOOTSTRAP_DEPTH "GANNET_EXEC_DEPTH"
/* "1" when gannet launch ends all ranks as soon as one is lost. */
#define GN_BOOTSTRAP_ENDS_ALL "GANNET_LAUNCH_ENDS_ALL"

struct gn_bootstrap_ops {
	const char *name;
	/* Distributes rank 0's root info; the first call. Rank 0 provides len_bytes of `mine`. Every other rank gets them in *out,
	 * owned by the caller (free()), as soon as it and rank 0 run, whichever other ranks are missing; or NULL when they are not
	 * available before the first exchange: the caller then calls again after it. Blocks; rank 0 may block until all ranks have
	 * called. */
	enum gn_status (*root_info)(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
				    struct gn_err *err);
	/* GN_OK, or why rank 0 has cancelled the start. Does not block. */
	enum gn_status (*check_cancelled)(struct gn_bootstrap *b, struct gn_err *err);
	/* Collective, after root_info; blocks: an allgather of messages of any length. *out is set only on success. */
	enum gn_status (*exchange)(struct gn_bootstrap *b, const void *mine, size_t len_bytes, struct gn_gathered *out,
				   struct gn_err *err);
	/* After the first exchange, and only if this rank may be lost without an end of the others: the launcher is told that this rank
	 * needs it no longer. Local. NULL: nothing to tell. */
	void (*detach)(struct gn_bootstrap *b);
	/* clean: the job has ended without failure; otherwise closes without waiting for other ranks. */
	void (*destroy)(struct gn_bootstrap *b, int clean);
};

/* The part that all implementations share; each embeds it as its first member. */
struct gn_bootstrap {
	const struct gn_bootstrap_ops *ops;
	int rank, size;
	const char *address; /* the loopback address when all ranks run on this host; NULL: they may run anywhere */
	const char *ifnames; /* the interfaces that ranks listen on for each other, see gn_net_choose(); NULL: all. Borrowed */
	int is_lost; /* of a world that ends: a rank is lost that may still be there, gn_heartbeat_has_silent() */
	struct gn_secret secret; /* from a file; zero when there is none */
	struct gn_heartbeat *heartbeat; /* borrowed; NULL until it runs */
	struct gn_recorder *recorder; /* borrowed; NULL until the heartbeat runs */
	uint64_t deadline_ns, timeout_ns; /* waits end at deadline_ns (gn_clock_ns) while there is no heartbeat */
	int listener; /* of rank 0: listens at the rendezvous already, taken over; 0: none */
	/* Called during waits, which end with its failure; NULL: nothing. */
	enum gn_status (*check)(void *context, struct gn_err *err);
	void *check_context;
	/* Called during waits; NULL: nothing. */
	void (*progress)(void *context);
	void *progress_context;
};

/* Local; do not wait for other ranks. log (may be NULL) receives refused connections. join_s: how long PMIx may take to start; 0: as limits.h
 * says. After GN_ERR_STALL a thread is still in PMIx, and the process must end soon. secret: copied; NULL: from the file. */
enum gn_status gn_bootstrap_pmix(const struct gn_launcher *d, double join_s, struct gn_log *log, struct gn_bootstrap **out,
				 struct gn_err *err);
enum gn_status gn_bootstrap_env(const struct gn_launcher *d, const struct gn_secret *secret, struct gn_log *log, struct gn_bootstrap **out,
				struct gn_err *err);
/* See gn_world_ends_job(), gn_world_end_job(). */
void gn_bootstrap_pmix_ends_job(void);
void gn_bootstrap_pmix_end_job(int code);
enum gn_status gn_bootstrap_single(struct gn_bootstrap **out, struct gn_err *err);
/* Local: waits without a heartbeat end with GN_ERR_STALL timeout_ms from now. To be called before any other operation. */
void gn_bootstrap_set_timeout(struct gn_bootstrap *b, int timeout_ms);

/* For implementations. Called between polls of a wait that began at started_ns (gn_clock_ns): GN_OK to continue; GN_ERR_PEER_LOST
 * from the heartbeat; GN_ERR_STALL past the deadline, with `what` as the subject of the message. Runs progress(). */
enum gn_status gn_bootstrap_check_wait(const struct gn_bootstrap *b, uint64_t started_ns, const char *what,
				       struct gn_err *err);
/* How long a poll may block. */
int gn_bootstrap_poll_ms(const struct gn_bootstrap *b);
/* check_cancelled of implementations that never cancel. */
enum gn_status gn_bootstrap_never_cancelled(struct gn_bootstrap *b, struct gn_err *err);

#endif
