/* The ranks of a job: rank, size, hosts, failure detection, and an exchange of small messages, whatever has started the processes.
 *
 * Sources, in this order: PMIx (srun --mpi=pmix, mpirun, gannet launch); the environment (RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR, MASTER_PORT as torchrun sets them; OMPI_COMM_WORLD_* with MASTER_*); otherwise a single rank. Conflicting launcher
 * variables (PMIx says 4 ranks, WORLD_SIZE says 2; a Slurm step of several tasks without PMIx) are GN_ERR_USAGE that names both,
 * because single-rank runs by accident would go unnoticed.
 *
 * A heartbeat thread holds one TCP connection between each rank and rank 0 (transport/health/heartbeat.h). When a process dies or
 * hangs, all other ranks learn within seconds which. From then on gn_world_check() and what depends on that rank return
 * GN_ERR_PEER_LOST: the exchanges below, and the operations of groups that it is in (transport/coll/comm.h). Other groups go on,
 * and further losses are found in the same way. The loss of rank 0, which coordinates, ends all.
 *
 * When an operation makes no progress although all ranks are alive, rank 0 compares the flight records of all ranks: either all
 * continue to wait (a rank is busy and has set a phase), or all get the same diagnosis: which ranks never started the operation,
 * which wait for which, which started another one.
 *
 * Only processes that know the job's secret can join; other connections are refused and logged, and the job goes on.
 * transport/auth/handshake.h says what this protects against, transport/ucx/ucx.h how far it covers UCX's ports.
 *
 * Thread safety: gn_world_check() and the accessors from any thread; the others from one thread. Collective calls are marked.
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
struct gn_secret;
struct gn_world;

struct gn_world_options {
	struct gn_limits limits; /* rank 0's apply to all ranks; limits that are 0 are resolved as limits.h says */
	/* The interfaces that rank 0 listens on for heartbeats, and each rank for the exchange at start, unless all ranks run on
	 * one host: see gn_net_ifname_matches(). NULL: GANNET_SOCKET_IFNAME, else all. GN_ERR_USAGE when none matches. Not kept. */
	const char *ifnames;
	/* "HOST:PORT" where rank 0 listens and the others connect, with rank and size, for a program that knows them and asks no launcher;
	 * HOST may be several addresses of rank 0 with commas between them, which are tried in turn. NULL: of the launcher, as above.
	 * Not kept. */
	const char *rendezvous;
	int rank, size;
	const struct gn_secret *secret; /* with a rendezvous: what its ranks authenticate by; NULL: the file of secret.h. Not kept */
	/* With a rendezvous, of rank 0: a descriptor of gn_net_listen() at its port. Taken over, also on failure. 0: none */
	int listener;
	/* With a rendezvous: called often while gn_world_create(), exchanges and barriers wait, which end with its failure; from the calling
	 * thread. context outlives the world. NULL: nothing. */
	enum gn_status (*check)(void *context, struct gn_err *err);
	void *check_context;
	/* The program goes on after a rank is lost, the same on all ranks: gn_world_destroy() then still waits for the other ranks,
	 * so that rank 0 stays while they work; and PMIx is finalized once all ranks have joined, because Slurm's plugin kills a
	 * step when a task that has not finalized dies. 0: it waits for nobody after a loss. */
	int keep_going;
	/* Messages between nodes are encrypted, the same on all ranks; also if the environment's GN_ENCRYPT_NETWORK is set to anything but 0 */
	int encrypt;
};

#define GN_WORLD_ENCRYPT "GN_ENCRYPT_NETWORK"
#define GN_WORLD_IFNAMES "GANNET_SOCKET_IFNAME"

/* Collective; blocks until all ranks have joined. log may be NULL and outlives the world; on success its rank is set. */
enum gn_status gn_world_create(const struct gn_world_options *options, struct gn_log *log, struct gn_world **out,
			       struct gn_err *err);
/* Tells the user why. */
typedef void gn_world_teller(void *context, const struct gn_err *why);
/* Instead of gn_world_create(), for a process that cannot take part (wrong usage, a file that is missing): the other ranks of its job, if there
 * are any, end with *why instead of waiting for it, and their errors have its status as their cause. Blocks until they know: with rank 0 not
 * there, for the join limit; of rank 0, for 10 s. Sets why->told when rank 0 tells the same, or when tell has been called, which happens
 * before the wait gets long; else *why, which then names this rank, is the caller's to tell. tell may be NULL. Allows one call in a process
 * that has had no world. */
void gn_world_decline(struct gn_log *log, gn_world_teller *tell, void *context, struct gn_err *why);
/* Collective over the ranks that are not lost, and blocking: announces the exit of this rank and waits for theirs. After a failure,
 * unless it is a loss with options.keep_going, it does not wait. */
void gn_world_destroy(struct gn_world *w);

/* What this process is started as, the same on all ranks: the name of a command, and behind a space a line of gn_options_describe(). Ranks whose
 * texts differ get GN_ERR_MISMATCH from gn_world_create(), with what differs. Borrowed until the last world is there. Before the first one;
 * else it is "". */
void gn_world_set_command(const char *text);
/* For a program that is one job, not a library: a world without keep_going that is destroyed after a loss leaves the launcher's step to
 * gn_world_end_job(), if a lost rank may still be there. Before the first world. */
void gn_world_ends_job(void);
/* The last act of the program, with its exit code: where a rank is lost that may still be there, such as one that is stopped, and Slurm would
 * wait for it, its step is ended. Else no effect. Blocks for up to 2 s, in which other ranks may tell what they know. */
void gn_world_end_job(int code);
/* From now on gn_world_destroy() waits for nobody after a loss, also with options.keep_going. Local. */
void gn_world_wait_for_nobody(struct gn_world *w);

int gn_world_rank(const struct gn_world *w);
int gn_world_size(const struct gn_world *w);
int gn_world_local_rank(const struct gn_world *w); /* among the ranks of this host */
int gn_world_local_size(const struct gn_world *w);
int gn_world_nodes(const struct gn_world *w);
/* The node of a rank, 0 .. nodes - 1; nodes are numbered by their lowest rank. */
int gn_world_node_of(const struct gn_world *w, int rank);
/* The host name of a rank; borrowed. */
const char *gn_world_host_of(const struct gn_world *w, int rank);
/* A key for one use, derived from the job's secret: the same on all ranks and unknown outside of the job; at most 32 bytes. */
enum gn_status gn_world_key(const struct gn_world *w, const char *use, void *key, size_t len_bytes, struct gn_err *err);
/* Whether options or environment asked for encryption. */
int gn_world_encrypts(const struct gn_world *w);
/* "pmix", "environment" or "alone" (a single rank). */
const char *gn_world_bootstrap(const struct gn_world *w);

/* How long a rank may send no heartbeat before it is lost. */
int gn_world_silent_after_ms(const struct gn_world *w);
/* How long the heartbeat may take to find which rank was lost after another connection has failed: its limit plus 2 s, 30 s at
 * most. */
uint64_t gn_world_failure_reason_ns(const struct gn_world *w);

/* Collective, blocking: an allgather of messages of any length over the bootstrap's tree (transport/bootstrap/boot_tree.h), for
 * small data (addresses, digests): each rank receives all of it. *out, to be freed by gn_gathered_release(), is set only on
 * success. */
enum gn_status gn_world_exchange(struct gn_world *w, const void *mine, size_t len_bytes, struct gn_gathered *out,
				 struct gn_err *err);
/* Collective, blocking, over the bootstrap. */
enum gn_status gn_world_barrier(struct gn_world *w, struct gn_err *err);
/* The phase of this rank outside of collectives ("reading data", "writing a checkpoint"; 47 characters, copied) and how long it may
 * take, from now or from the last collective, before ranks that wait for this one report a stall. NULL: no phase, the stall limit
 * holds. Until the first call the phase is "starting" with the join limit, because programs open devices, libraries and files
 * before their first step. Local; no effect during a collective. */
void gn_world_set_phase(struct gn_world *w, const char *what, int limit_ms);
/* This rank's flight recorder, for the code that runs collectives. Borrowed, never NULL. */
struct gn_recorder *gn_world_recorder(const struct gn_world *w);
/* A function to call about every millisecond while this rank waits in an exchange: other ranks may need this rank's part in an
 * operation that it has completed. NULL: none. */
void gn_world_set_progress(struct gn_world *w, void (*progress)(void *context), void *context);
/* GN_OK; GN_ERR_PEER_LOST with rank, host and reason of the first lost rank, whichever it is; GN_ERR_STALL or GN_ERR_MISMATCH with
 * the diagnosis, when the job cannot continue although all ranks are alive. Costs one atomic load when the job is healthy. */
enum gn_status gn_world_check(const struct gn_world *w, struct gn_err *err);
/* The same for a caller that has been waiting for peers since started_ns (gn_clock_ns): also GN_ERR_PEER_LOST when a rank left the
 * job in an orderly way some seconds ago. */
enum gn_status gn_world_check_wait(const struct gn_world *w, uint64_t started_ns, struct gn_err *err);
/* The same for what depends on `count` ranks alone (NULL: 0 .. count - 1): GN_ERR_PEER_LOST if one of them is lost, the first
 * named, or rank 0. started_ns not 0: the caller has been waiting for them since then, as for gn_world_check_wait(). */
enum gn_status gn_world_check_ranks(const struct gn_world *w, const int *ranks, int count, uint64_t started_ns, struct gn_err *err);
/* Rises with each lost rank, and with a failure of the job; 0: all is well. One atomic load. */
unsigned gn_world_losses(const struct gn_world *w);
/* Rank 0: when the last message of a rank arrived (gn_clock_ns); ranks send one a second. 0 of a rank that is not connected, and on other ranks. */
uint64_t gn_world_heard_ns(const struct gn_world *w, int rank);
int gn_world_is_lost(const struct gn_world *w, int rank);
/* Whether a rank has left the job in an orderly way. */
int gn_world_anyone_left(const struct gn_world *w);
/* Reports that this rank fails by itself (bad data, no space): the other ranks see it as lost, with `why` as the reason, and cause as for
 * gn_heartbeat_abort(). Does not block; gn_world_destroy() follows. */
void gn_world_abort(struct gn_world *w, enum gn_status cause, const char *why);
/* Whether this rank has aborted: later errors of the world are a consequence. */
int gn_world_aborted(const struct gn_world *w);

#endif
