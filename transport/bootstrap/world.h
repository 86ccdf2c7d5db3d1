/* Who takes part: rank, size, hosts, and a small key-value exchange, from whatever started the processes.
 *
 * Sources, in order: PMIx (srun --mpi=pmix, mpirun, gannet launch), the environment (RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR, MASTER_PORT as torchrun sets them; OMPI_COMM_WORLD_* with MASTER_*), or a world of one when nothing speaks of
 * more. Signs that disagree (PMIx says 4 ranks, WORLD_SIZE says 2; a Slurm step of several tasks without PMIx) are
 * GN_ERR_USAGE that names both: a world of one by accident is the worst outcome there is.
 *
 * A watch thread keeps one TCP connection per rank to rank 0. When a process dies or falls silent, every other rank learns
 * which within seconds; from then on gn_world_check() and everything that waits on peers return GN_ERR_PEER_LOST.
 *
 * Only the job's own processes can join: whoever connects to a port of ours proves to know the job's secret, or is refused
 * and logged, and the job goes on. transport/auth/handshake.h says what that keeps out and what it does not, and
 * transport/ucx/ucx.h how far it reaches for UCX's ports.
 *
 * The same thread notices when an operation stands still: rank 0 then compares the flight records of all ranks, and either
 * all go on waiting (someone is busy, and has said so) or all get the same verdict: who never came, who waits for whom, who
 * started something else.
 *
 * Thread safety: gn_world_check and the accessors from any thread; the rest from one thread. Collective calls are marked.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_WORLD_H
#define GN_TRANSPORT_BOOTSTRAP_WORLD_H

#include "src/base/log.h"
#include "src/base/status.h"
#include "transport/bootstrap/limits.h"
#include "transport/bootstrap/gathered.h"

#include <stddef.h>
#include <stdint.h>

struct gn_recorder;
struct gn_world;

struct gn_world_options {
	struct gn_limits limits; /* rank 0's count for all; what is not given is found as limits.h says */
	/* Interfaces of rank 0 for heartbeats and of any rank that others connect to for the exchange at start, when its host is not the
	 * only one, as gn_net_ifname_matches() reads them; NULL: of GANNET_SOCKET_IFNAME, else all. Not kept. None that matches is
	 * GN_ERR_USAGE. */
	const char *ifnames;
};

#define GN_WORLD_IFNAMES "GANNET_SOCKET_IFNAME"

/* Collective. log may be NULL, and outlives the world; on success its rank is set. */
enum gn_status gn_world_create(const struct gn_world_options *options, struct gn_log *log, struct gn_world **out,
			       struct gn_err *err);
/* Collective when the world is whole: says goodbye so that nobody takes this end for a death. After a failure it only lets
 * go, and does not wait for anyone. */
void gn_world_destroy(struct gn_world *w);

int gn_world_rank(const struct gn_world *w);
int gn_world_size(const struct gn_world *w);
int gn_world_local_rank(const struct gn_world *w); /* among the ranks of this host */
int gn_world_local_size(const struct gn_world *w);
int gn_world_nodes(const struct gn_world *w);
/* Index of the rank's node, 0 .. nodes-1, in order of first rank. */
int gn_world_node_of(const struct gn_world *w, int rank);
/* Borrowed host name of a rank. */
const char *gn_world_host_of(const struct gn_world *w, int rank);
/* A key of the job's own for one use, the same on all ranks and known to nobody else (transport/auth/secret.h says from where);
 * at most 32 bytes. */
enum gn_status gn_world_key(const struct gn_world *w, const char *use, void *key, size_t len_bytes, struct gn_err *err);
/* "pmix", "environment" or "alone". */
const char *gn_world_bootstrap(const struct gn_world *w);

/* For how long a peer may give no sign of life. */
int gn_world_silent_after_ms(const struct gn_world *w);
/* How long it may take the world to know who was lost once a connection of another kind has broken: a missing heartbeat and 2 s, for
 * what has broken does not mend and the job ends either way 30 s at most. */
uint64_t gn_world_failure_reason_ns(const struct gn_world *w);

/* Collective: everyone gives len_bytes (the same everywhere or not), all get all; gn_gathered_release frees it. *out is set only
 * on success. Over the bootstrap's tree (transport/bootstrap/boot_tree.h), for small things (addresses, digests): each rank receives all. */
enum gn_status gn_world_exchange(struct gn_world *w, const void *mine, size_t len_bytes, struct gn_gathered *out,
				 struct gn_err *err);
/* Collective, blocking, over the bootstrap. */
enum gn_status gn_world_barrier(struct gn_world *w, struct gn_err *err);
/* What this rank is about to do outside of collectives, and how long that may take before the others, who wait, take it for
 * hanging: "reading data", "writing a checkpoint". The time counts from here, or from the last collective if that was later.
 * what is copied (47 characters); NULL takes the announcement back, and the stall limit counts. Until the first call it is
 * "starting", with the join limit: programs open devices, libraries and files before their first step. Local, cheap. Within a
 * collective it has no effect. */
void gn_world_set_phase(struct gn_world *w, const char *what, int limit_ms);
/* This rank's flight recorder, for whoever runs collectives. Borrowed, never NULL. */
struct gn_recorder *gn_world_recorder(const struct gn_world *w);
/* What has to go on while this rank waits in an exchange, besides: others may need this rank's part in what it is through
 * with itself. Called every millisecond or so; NULL: nothing. */
void gn_world_set_progress(struct gn_world *w, void (*progress)(void *context), void *context);
/* GN_OK; GN_ERR_PEER_LOST naming rank, host and how it was noticed; GN_ERR_STALL or GN_ERR_MISMATCH when the job cannot go on
 * although all are alive, with what the records of all ranks say about it. Cheap: one atomic load. */
enum gn_status gn_world_check(const struct gn_world *w, struct gn_err *err);
/* The same for someone who has been waiting for peers since started_ns (gn_clock_ns): GN_ERR_PEER_LOST also when a rank
 * has left orderly and what is waited for has not come for some seconds since. */
enum gn_status gn_world_check_wait(const struct gn_world *w, uint64_t started_ns, struct gn_err *err);
/* Whether a rank has left orderly while this one is here. */
int gn_world_anyone_left(const struct gn_world *w);
/* For a rank that fails by itself (bad data, no space): the others see it as lost within moments, with why as the reason
 * (at most 160 characters). Does not wait; destroy follows. */
void gn_world_give_up(struct gn_world *w, const char *why);
/* Whether this rank has: what the world says from then on comes of that. */
int gn_world_aborted(const struct gn_world *w);

#endif
